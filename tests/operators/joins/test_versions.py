import pyarrow as pa

from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE
from upstream.operators.joins.latest_plan import GONE, VERSION, LatestSide
from upstream.operators.joins.versions import LatestVersions
from upstream.operators.state.store import DictStore

from .batches import table

SCHEMA = pa.schema([("k", pa.int64()), ("r", pa.string()), ("t", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])
SIDE = LatestSide(("r",), "t", SCHEMA, ("k",), "t")


def test_a_key_that_moves_leaves_a_tombstone_and_an_older_row_or_deletion_goes_no_further():
    store, saved = DictStore(), {}

    def batch(*rows):
        nonlocal saved
        versions = LatestVersions(store, "keys", SIDE, saved)
        deleted = [row[1] == "gone" for row in rows]
        kept = [(key, None if gone else on, time) for (key, on, time), gone in zip(rows, deleted, strict=True)]
        found = versions.changes(table(SCHEMA, kept, deleted=deleted)).to_pylist()
        saved = versions.to_json()
        return [(row["k"], row["r"], row[VERSION], row[SYSTEM]["deleted"], row[GONE]) for row in found]

    assert batch((1, "x", 5), (2, None, 5)) == [(1, "x", 1, False, False), (2, None, 1, False, False)]
    assert batch((1, "y", 6), (2, "x", 6)) == [
        (1, "x", 2, True, False), (2, None, 2, True, False), (1, "y", 2, False, False), (2, "x", 2, False, False),
    ]  # fmt: skip
    assert batch((1, "y", 7)) == [(1, "y", 3, False, False)]
    assert batch((1, "z", 6)) == []
    assert batch((1, "y", 7)) == [(1, "y", 4, False, False)]
    assert batch((1, "gone", 8), (3, "gone", 1)) == [(1, "y", 5, True, True)]
    assert batch((1, "x", 7), (3, "x", 0)) == []
    assert batch((1, "x", 8)) == [(1, "x", 6, False, False)]
