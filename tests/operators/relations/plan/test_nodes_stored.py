from dataclasses import replace

from kit.continuous import DOMAINS

from upstream.operators.relations.physical_plan import identity
from upstream.operators.relations.plan.fingerprints import fingerprint
from upstream.operators.relations.plan.nodes import StoredTable, UnboundedWindow, WindowOver


def test_versions_of_a_table_do_not_share_what_is_computed_of_them():
    tables = [None, StoredTable("/t", "x", 1), StoredTable("/t", "x", 2), StoredTable("/t", "y", 1)]
    plans = [WindowOver(replace(DOMAINS, table=table), UnboundedWindow()) for table in tables]
    assert len({identity(each) for each in plans}) == 4
    assert len({fingerprint(each) for each in plans}) == 4
