"""The newest row of each key, and where it was before."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array
from upstream.operators.joins.latest_plan import GONE, VERSION, LatestSide
from upstream.operators.joins.versions import LatestVersions
from upstream.operators.runtime.store import DictStore

SCHEMA = pa.schema([("k", pa.int64()), ("r", pa.string()), ("t", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])
SIDE = LatestSide(("r",), "t", SCHEMA, ("k",), "t")


class Keys:
    def __init__(self, side=SIDE):
        self._side, self._store, self._saved, self._seq = side, DictStore(), {}, 0

    def batch(self, *rows):
        """Rows (key, on, time); on None and "gone" for a tombstone."""
        deleted = np.array([row[1] == "gone" for row in rows], dtype=np.bool_)
        columns = [
            pa.array([row[0] for row in rows], pa.int64()),
            pa.array([None if row[1] == "gone" else row[1] for row in rows], pa.string()),
            pa.array([row[2] for row in rows], pa.int64()),
        ]
        seq = self._seq + np.arange(len(rows))
        self._seq += len(rows)
        system = system_array(source="f", seq=seq, arrival_us=seq, deleted=deleted)
        versions = LatestVersions(self._store, "keys", self._side, self._saved)
        found = versions.changes(pa.table([*columns, system], schema=SCHEMA))
        self._saved = versions.to_json()
        self.rows = versions.rows
        return [(row["k"], row["r"], row[VERSION], row[SYSTEM]["deleted"], row[GONE]) for row in found.to_pylist()]


def test_an_older_row_goes_no_further_and_one_of_the_same_time_does():
    keys = Keys()
    assert keys.batch((1, "x", 5), (1, "y", 4)) == [(1, "x", 1, False, False)]
    assert keys.batch((1, "z", 4)) == []
    assert keys.batch((1, "x", 5)) == [(1, "x", 2, False, False)]
    assert keys.rows == 1


def test_a_key_that_moves_leaves_a_tombstone_where_it_was():
    keys = Keys()
    keys.batch((1, "x", 5), (2, None, 5))
    assert keys.batch((1, "y", 6), (2, "x", 6)) == [
        (1, "x", 2, True, False), (2, None, 2, True, False), (1, "y", 2, False, False), (2, "x", 2, False, False),
    ]  # fmt: skip
    assert keys.batch((1, "y", 7)) == [(1, "y", 3, False, False)]


def test_a_deleted_key_stays_deleted_for_older_rows_and_comes_back_with_newer_ones():
    keys = Keys()
    keys.batch((1, "x", 5))
    assert keys.batch((1, "gone", 7)) == [(1, "x", 2, True, True)]
    assert keys.batch((1, "x", 6)) == []
    assert keys.batch((1, "gone", 8)) == []
    assert keys.batch((1, "x", 8)) == [(1, "x", 4, False, False)]
    assert keys.batch((3, "gone", 1)) == []
    assert keys.batch((3, "x", 0)) == []
