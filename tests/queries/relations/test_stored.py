from dataclasses import replace

from kit.continuous import DOMAINS

from upstream.queries.deltas.lowering import identity
from upstream.queries.relations.fingerprints import fingerprint
from upstream.queries.relations.nodes import Unbounded, Windowed
from upstream.queries.relations.stored import StoredTable


def test_versions_of_a_table_do_not_share_what_is_computed_of_them():
    tables = [None, StoredTable("/t", "x", 1), StoredTable("/t", "x", 2), StoredTable("/t", "y", 1)]
    plans = [Windowed(replace(DOMAINS, table=table), Unbounded()) for table in tables]
    assert len({identity(each) for each in plans}) == 4
    assert len({fingerprint(each) for each in plans}) == 4
