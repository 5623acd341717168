import numpy as np
import pyarrow as pa
import pytest
from kit.latest_joins import plan

from upstream.core.rows.system_column import SYSTEM
from upstream.operators.joins.latest_changes import ARRIVAL, FIRST, LatestResults

LEFT = pa.table({"v": [1], "r": ["x"], "t": [5], "a": [7], ARRIVAL: [10], FIRST: [9]})
RIGHT = pa.table({"w": [2], "r": ["x"], "t": [6], "b": [8], ARRIVAL: [20], FIRST: [3]})
CAUSE = pa.table({ARRIVAL: [30], FIRST: [29]})
NUMBER = np.array([77], dtype=np.int64)


def made(how, rows, cause=None, deleted=False):
    results = LatestResults(plan(("w",), how=how), 4)
    (row,) = (results.tombstones if deleted else results.given)(rows, NUMBER, cause).to_pylist()
    system = row.pop(SYSTEM)
    assert (system["source"], system["seq"], system["deleted"]) == ("join/4", 77, deleted)
    return row, system["arrival"].microsecond, system["first_arrival"].microsecond


def test_a_pair_has_the_values_of_both_and_the_later_time_and_its_tombstone_the_key_alone():
    row, arrival, first = made("inner", (LEFT, RIGHT))
    assert row == {"r": "x", "v": 1, "t": 5, "a": 7, "w": 2, "t_right": 6, "b": 8, "join_time": 6}
    assert (arrival, first) == (20, 3)  # those of the later row
    gone, *_ = made("inner", (LEFT, RIGHT), deleted=True)
    assert {name: value for name, value in gone.items() if value is not None} == {"v": 1, "w": 2}


@pytest.mark.parametrize(
    ("rows", "keys", "values"),
    [
        ((LEFT, RIGHT), ("1", "2"), (1, 7, 2, 8, 6)), ((LEFT, None), ("1", "\\N"), (1, 7, None, None, 5)),
        ((None, RIGHT), ("\\N", "2"), (None, None, 2, 8, 6)),
    ],
)  # fmt: skip
def test_an_outer_result_names_both_keys_and_always_has_the_equal_columns(rows, keys, values):
    row, arrival, _ = made("full", rows, CAUSE)
    assert (row["left_key"], row["right_key"]) == keys
    assert tuple(row[name] for name in ("v", "a", "w", "b", "join_time")) == values
    assert row["r"] == "x"
    assert arrival == 30
    gone, arrival, _ = made("full", rows, deleted=True)
    assert {name for name, value in gone.items() if value is not None} == {"left_key", "right_key"}
    assert (gone["left_key"], gone["right_key"]) == keys
    assert arrival == (10 if rows[1] is None else 20)
