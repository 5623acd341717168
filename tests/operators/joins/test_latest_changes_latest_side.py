import numpy as np
import pyarrow as pa

from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE
from upstream.operators.joins.latest_changes import ARRIVAL, FIRST, NewestSide, kept_schema
from upstream.operators.joins.latest_plan import VERSION, LatestSide
from upstream.operators.joins.versions import DeletionRetention, Expiry
from upstream.operators.state.key_runs import KeyRuns
from upstream.operators.state.store import DictStore

from .batches import table

SCHEMA = pa.schema([("k", pa.int64()), ("r", pa.int64()), ("t", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])
OWN = LatestSide(("r",), "t", SCHEMA, ("k", "r"), "t")


def test_rows_of_keys_that_stay_get_versions_and_deleted_ones_are_remembered():
    store, saved = DictStore(), {}

    def batch(*rows, first=None):
        """Rows (key, on, time, deleted), each arriving at its time."""
        nonlocal saved
        times = [row[2] for row in rows]
        before = None if first is None else [first] * len(rows)
        deleted = [row[3] for row in rows]
        given = table(SCHEMA, rows, seq=times, arrival_us=times, first_arrival_us=before, deleted=deleted)
        runs = KeyRuns(store, "left", kept_schema(OWN), saved)
        side = NewestSide(OWN, runs, given, DeletionRetention(OWN, {}), Expiry(store, "left", None, {}))
        side.read(np.unique(np.append(side.numbers, 7)))
        side.keep()
        saved = runs.to_json()
        return {
            name: sorted((row["k"], row["r"], row["t"], row[VERSION]) for row in getattr(side, name).to_pylist())
            for name in ("same", "new", "removed", "gone", "now")
        }, side

    found, _ = batch((1, 7, 5, False), (2, 7, 5, False), (3, 8, 5, False))
    assert found["new"] == [(1, 7, 5, 1), (2, 7, 5, 1), (3, 8, 5, 1)]
    found, _ = batch((1, 7, 4, False), (2, 7, 6, True))
    assert (found["same"], found["new"]) == ([(1, 7, 5, 1)], [])
    assert found["removed"] == found["gone"] == [(2, 7, 5, 2)]
    assert saved["rows"] == 3
    found, _ = batch((2, 7, 5, False), (4, 7, 1, True))
    assert (found["new"], found["removed"], found["same"]) == ([], [], [(1, 7, 5, 1)])
    found, side = batch((2, 7, 6, False), first=3)
    assert (found["new"], found["now"]) == ([(2, 7, 6, 3)], [(1, 7, 5, 1), (2, 7, 6, 3)])
    assert (side.new.column(ARRIVAL).to_pylist(), side.new.column(FIRST).to_pylist()) == ([6], [3])
