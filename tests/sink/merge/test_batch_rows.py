"""Rows that wait for their merge, with what they stand for."""

from typing import Any

import numpy as np
import pytest

from upstream.delta_format.latest_table import SEQ
from upstream.sink.merge.batch_rows import UNKNOWN, as_pending, concat_pending, seq_in_order

from .rows import LEAST, data, full, shown


def test_rows_of_which_only_the_columns_are_known():
    pending = as_pending(data(("a", 1, "x", 0), ("b", 2, "y", 1)))
    assert (pending.arrival_us, pending.first_arrival_us, pending.deleted) == (None, None, None)
    assert pending.covered.tolist() == [1, 1]
    assert shown(pending.take(np.array([1]))) == [("b", 2, "y", 1)]
    assert shown(pending.slice(1, 2)) == [("b", 2, "y", 1)]


THREE = full(("a", 1, "x", 0, 10, 7, 2, False), ("b", 2, "y", 1, 11, 8, 3, True), ("c", 3, "z", 2, 12, 9, 4, False))


@pytest.mark.parametrize("how", ["take", "chosen", "slice"])
def test_some_rows_take_along_what_they_stand_for(how):
    given: tuple[Any, ...] = {
        "take": (np.array([1, 2]),),
        "chosen": (np.array([False, True, True]),),
        "slice": (1, 3),
    }[how]
    some = getattr(THREE, how)(*given)
    assert shown(some) == [("b", 2, "y", 3), ("c", 3, "z", 4)]
    assert some.arrival_us.tolist() == [11, 12]
    assert some.first_arrival_us.tolist() == [8, 9]
    assert some.deleted.tolist() == [True, False]


def test_rows_of_several_tasks_as_one():
    plain = as_pending(data(("d", 4, "w", 3)))
    assert concat_pending([THREE]) is THREE
    both = concat_pending([THREE, plain])
    assert shown(both) == [*shown(THREE), ("d", 4, "w", 1)]
    assert (both.arrival_us, both.first_arrival_us) == (None, None), "not all of them know it"
    assert both.deleted is not None
    assert (both.deleted.dtype, both.deleted.tolist()) == (np.dtype(np.bool_), [False, True, False, False])
    assert concat_pending([plain, plain]).deleted is None
    twice = concat_pending([THREE, THREE])
    assert twice.arrival_us is not None
    assert twice.first_arrival_us is not None
    assert (twice.arrival_us.tolist(), twice.first_arrival_us.tolist()) == ([10, 11, 12] * 2, [7, 8, 9] * 2)


def test_rows_without_a_number_came_after_what_is_held():
    table = data(("a", 1, "", None), ("a", 1, "", 5), ("a", 1, "", None), ("a", 1, "", 6))
    assert seq_in_order(table, 2).tolist() == [LEAST, 5, UNKNOWN, 6]
    assert table.column(SEQ).null_count == 2
