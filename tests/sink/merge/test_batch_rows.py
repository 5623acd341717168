"""Rows that wait for their merge, with what they stand for."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.delta_format.latest_table import SEQ
from upstream.sink.merge.batch_rows import UNKNOWN, OlderKeys, as_pending, concat_pending, counted, seq_in_order
from upstream.sink.table.key_index import key_hashes

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


ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", "ab", ""]), st.booleans()), max_size=8)


def table(keys):
    return pa.table({"k": pa.array(keys, pa.string())})


def of(rows, most=99):
    return OlderKeys.of(table([key for key, _ in rows]), ["k"], np.array([won for _, won in rows], dtype=bool), most)


@given(tasks=st.lists(ROWS, min_size=1, max_size=3))
def test_a_key_counts_if_none_of_its_rows_won(tasks):
    won = {key for rows in tasks for key, wins in rows if wins}
    lost = {key for rows in tasks for key, wins in rows if not wins} - won
    found = OlderKeys.together([of(rows) for rows in tasks], key_hashes(table(sorted(won)), ["k"]))
    assert found.total == len(lost)
    assert sorted(np.frombuffer(found.hashes, dtype=np.int64)) == sorted(key_hashes(table(sorted(lost)), ["k"]))


def test_beyond_a_number_of_keys_each_task_counts_its_own():
    rows = [("a", False), ("b", False), ("c", True)]
    assert of(rows, most=1) == (2, None)
    assert OlderKeys.together([of(rows, most=1), of(rows)]) == (4, None)
    assert counted([[of(rows), of(rows)], [of(rows)]]) == 4
    assert OlderKeys.of(table(["a"]), (), np.array([False]), 9).total == 1, "without a key, rows"
