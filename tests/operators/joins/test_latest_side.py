import numpy as np
import pyarrow as pa

from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE
from upstream.operators.joins.expiry import Expiry
from upstream.operators.joins.forgetting import Forgetting
from upstream.operators.joins.key_runs import KeyRuns
from upstream.operators.joins.latest_plan import GONE, VERSION, LatestSide
from upstream.operators.joins.latest_side import ARRIVAL, FIRST, NewestSide, kept_schema
from upstream.operators.joins.side import NUMBER
from upstream.operators.runtime.store import DictStore

from .batches import table

SCHEMA = pa.schema([("k", pa.int64()), ("r", pa.int64()), ("t", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])
OWN = LatestSide(("r",), "t", SCHEMA, ("k", "r"), "t")
MOVES = LatestSide(("r",), "t", SCHEMA, ("k",), "t")


class Side:
    def __init__(self, side):
        self._side, self._store, self._saved = side, DictStore(), {}

    def batch(self, *rows, first=None):
        """Rows (key, on, time, deleted, version, gone), each arriving at its time; the last two for versions only."""
        times = [row[2] for row in rows]
        before = None if first is None else [first] * len(rows)
        deleted = [row[3] for row in rows]
        given = table(SCHEMA, rows, seq=times, arrival_us=times, first_arrival_us=before, deleted=deleted)
        if not self._side.stays:
            given = given.append_column(VERSION, pa.array([row[4] for row in rows], pa.int64()))
            given = given.append_column(GONE, pa.array([row[5] for row in rows], pa.bool_()))
        runs = KeyRuns(self._store, "left", NUMBER, kept_schema(self._side), self._saved, ("k",))
        expiry = Expiry(self._store, "left", None, {})
        side = NewestSide(self._side, runs, given, Forgetting(self._side, {}), expiry)
        side.read(np.unique(np.append(side.numbers, 7)))
        side.keep()
        self._saved = runs.to_json()
        self.rows = runs.rows
        return {
            name: sorted((row["k"], row["r"], row["t"], row[VERSION]) for row in getattr(side, name).to_pylist())
            for name in ("same", "new", "removed", "gone", "keyless", "keyless_left", "now")
        }, side


def test_rows_of_keys_that_stay_get_versions_and_deleted_ones_are_remembered():
    keys = Side(OWN)
    found, _ = keys.batch((1, 7, 5, False), (2, 7, 5, False), (3, 8, 5, False))
    assert found["new"] == [(1, 7, 5, 1), (2, 7, 5, 1), (3, 8, 5, 1)]
    found, _ = keys.batch((1, 7, 4, False), (2, 7, 6, True))
    assert (found["same"], found["new"]) == ([(1, 7, 5, 1)], [])
    assert found["removed"] == found["gone"] == [(2, 7, 5, 2)]
    assert keys.rows == 3
    found, _ = keys.batch((2, 7, 5, False), (4, 7, 1, True))
    assert (found["new"], found["removed"], found["same"]) == ([], [], [(1, 7, 5, 1)])
    found, side = keys.batch((2, 7, 6, False), first=3)
    assert (found["new"], found["now"]) == ([(2, 7, 6, 3)], [(1, 7, 5, 1), (2, 7, 6, 3)])
    assert (side.new.column(ARRIVAL).to_pylist(), side.new.column(FIRST).to_pylist()) == ([6], [3])


def test_rows_with_versions_come_and_go_as_they_say():
    keys = Side(MOVES)
    found, _ = keys.batch((1, 7, 5, False, 1, False), (2, None, 5, False, 1, False))
    assert (found["new"], found["keyless"]) == ([(1, 7, 5, 1)], [(2, None, 5, 1)])
    found, side = keys.batch((1, 7, 6, True, 2, False), (1, 8, 6, False, 2, False))
    assert (found["removed"], found["gone"], found["new"]) == ([(1, 7, 5, 2)], [], [(1, 8, 6, 2)])
    assert side.removed.column(ARRIVAL).to_pylist() == [6]
    assert found["now"] == [(1, 8, 6, 2)]
    found, _ = keys.batch((1, 8, 7, True, 3, True), (2, None, 7, True, 2, True))
    assert (found["removed"], found["gone"]) == ([(1, 8, 6, 3)], [(1, 8, 7, 3), (2, None, 7, 2)])
    assert found["keyless_left"] == [(2, None, 7, 2)]
    assert keys.rows == 0
