"""Windows by time that every n-th row of a key opens, in the order of arrival, against a list of rows."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upstream.core.rows.system_column import SYSTEM
from upstream.operators.windows.kinds import SlideByTupleWindows
from upstream.operators.windows.shards.plan import OPENS

from .drawn import END, any_batches, everything, plan_of, slides_by_rows
from .windows_of import Batch, Run, latest_of


@settings(max_examples=150, deadline=None)
@given(
    length=st.integers(1, 12),
    every=st.integers(2, 4),
    batches=any_batches(),
    emit=st.sampled_from(["all", "lazy"]),
    method=st.sampled_from(["paned", "adaptive", "buffering"]),
    tasks=st.sampled_from([1, 2]),
)
def test_every_nth_row_that_arrives_opens_a_window_whatever_the_batches(
    length: int, every: int, batches: list[Batch], emit: str, method: str, tasks: int
) -> None:
    run = Run(plan_of(SlideByTupleWindows(length, every, "arrival"), emit, method))
    for batch in batches:
        again = copy.deepcopy(run)
        again.batches([batch], tasks)
        run.batches([batch], tasks)
        assert again.results == run.results, "a batch that is run again gives the same"
    wanted = slides_by_rows(everything(batches), length, every)
    got = {(row["key"], row["window_id"]): (row["n"], row["total"]) for row in run.results}
    assert len(got) == len(run.results), "a window closes once"
    assert all(OPENS not in row for row in run.results)
    if emit == "all":
        assert got == wanted
    else:
        assert got.items() <= wanted.items()
        assert latest_of(got) == latest_of(wanted)


def test_the_order_of_arrival_decides() -> None:
    """The second row that came is the earlier one by time."""
    for order, window in (("arrival", (2, 2)), ("time", (5, 3))):
        run = Run(plan_of(SlideByTupleWindows(10, 2, order), shards=1))
        run.batches([([(1, 5, 1), (1, 2, 2)], None), ([], END)])
        assert [(row["window_id"], row["total"]) for row in run.results] == [window]


def test_of_windows_that_close_together_the_latest_of_a_key_is_given() -> None:
    run = Run(plan_of(SlideByTupleWindows(10, 2, "arrival"), "lazy", shards=1))
    run.batches([([(1, 5, 1), (1, 9, 2), (1, 3, 4), (1, 7, 8), (2, 4, 16), (2, 6, 32)], END)])
    assert sorted((row["key"], row["window_id"], row["total"]) for row in run.results) == [(1, 9, 15), (2, 6, 48)]


def test_a_window_ends_with_its_row_and_begins_after_its_range() -> None:
    """Of the rows at the two bounds, the later one is inside. Rows of one time open one window."""
    run = Run(plan_of(SlideByTupleWindows(10, 2, "arrival"), shards=1))
    run.batches([([(1, 10, 1), (1, 20, 2), (1, 20, 4), (1, 20, 8), (1, 21, 16), (1, 11, 32)], 20), ([], 21)])
    assert [(row["batch"], row["window_id"], row["total"]) for row in run.results] == [(1, 11, 33), (2, 20, 46)]


def test_a_late_row_has_a_number_and_opens_no_window() -> None:
    run = Run(plan_of(SlideByTupleWindows(10, 2, "arrival"), shards=1))
    run.batches([([(1, 5, 1)], 6), ([(1, 3, 2)], None), ([(1, 7, 4), (1, 9, 8)], None), ([], END)])
    assert [(row["window_id"], row["total"]) for row in run.results] == [(9, 15)]
    assert [table.column("v").to_pylist() for table in run.late] == [[2]]
    assert run.late[0].column_names == ["key", "time", "v", SYSTEM], "as it came"


@pytest.mark.parametrize("keys", [1, 3000])
def test_a_batch_touches_the_pages_of_the_keys_whose_rows_arrive(keys: int) -> None:
    run = Run(plan_of(SlideByTupleWindows(5, 3, "arrival"), shards=1))
    for time in range(7):
        run.batches([([(key, time, 1) for key in range(keys)], time + 1)])
    assert sorted({row["window_id"] for row in run.results}) == [2, 5]
    assert len(run.results) == 2 * keys
    pages = sum(kind == "numbers" for kind, _ in run.stores[0].values)
    assert pages == (1 if keys == 1 else 4)
