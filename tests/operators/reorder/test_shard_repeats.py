"""Which rows go on, and which of them are remembered: worked out by hand."""

import pyarrow as pa
import pytest

from upstream.operators.reorder.shard import INPUT, admitted, no_memory
from upstream.operators.state.entries import PANE


def rows(*each):
    """Rows (key, time, input)."""
    key, time, source = zip(*each, strict=True) if each else ((), (), ())
    return pa.table(
        {"k": pa.array(key, pa.string()), PANE: pa.array(time, pa.int64()), INPUT: pa.array(source, pa.int64())}
    )


def outcome(new, memory, repeats, prefer=None):
    found = admitted(new, memory, ["k"], repeats, prefer)
    assert found.keep.dtype == found.remember.dtype == bool
    return found.keep.tolist(), found.remember.tolist()


NEW = rows(("a", 1, 0), ("a", 1, 1), ("a", 1, 0), ("a", 2, 1), ("b", 1, 1), ("b", 1, 0))
NONE = rows()


def test_nothing_is_remembered_at_first():
    table = pa.table({"v": [1.5], "k": ["a"], "t": [1]})
    nothing = no_memory(table, ["k", "v"])
    assert nothing.num_rows == 0
    assert nothing.schema == pa.schema(
        [("k", pa.string()), ("v", pa.float64()), (PANE, pa.int64()), (INPUT, pa.int64())]
    )


def test_all_go_on_where_repeats_are_kept():
    assert outcome(NEW, NONE, "keep") == ([True] * 6, [False] * 6)
    assert outcome(NONE, NEW, "inputs") == ([], [])


def test_one_of_all_goes_on():
    keep = [True, False, False, True, True, False]
    assert outcome(NEW, NONE, "all") == (keep, keep)
    keep = [False, False, False, True, False, False]
    assert outcome(NEW, rows(("b", 1, 0), ("a", 1, 1)), "all") == (keep, keep)


def test_the_rows_of_the_first_input_go_on():
    assert outcome(NEW, NONE, "inputs") == (
        [True, False, True, True, True, False],
        [True, False, False, True, True, False],
    )
    memory = rows(("a", 1, 1), ("b", 9, 0))
    assert outcome(NEW, memory, "inputs") == (
        [False, True, False, True, True, False],
        [False, False, False, True, True, False],
    ), "what is remembered is not remembered again"


@pytest.mark.parametrize("columns", [["k", PANE, INPUT], [INPUT, PANE, "k"]])
def test_the_rows_of_the_preferred_input_go_on_whoever_came_first(columns):
    memory = rows(("a", 2, 1), ("b", 1, 0)).select(columns)
    assert outcome(NEW, memory, "inputs", prefer=1) == (
        [False, True, False, True, True, False],
        [False, True, False, False, True, False],
    )
    assert outcome(NEW, memory, "inputs", prefer=0) == (
        [True, False, True, True, False, True],
        [True, False, False, False, False, False],
    )
