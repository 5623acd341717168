"""Windows by time that every n-th row of a key opens, in the order of time, against a list of rows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upstream.operators.windows.kinds import SlideByTupleWindows

from .drawn import END, any_batches, everything, plan_of, slides_by_rows
from .windows_of import Batch, Run, latest_of


@settings(max_examples=100, deadline=None)
@given(
    length=st.integers(1, 12),
    every=st.integers(2, 4),
    batches=any_batches(),
    emit=st.sampled_from(["all", "lazy"]),
    method=st.sampled_from(["paned", "adaptive", "buffering"]),
    tasks=st.sampled_from([1, 2]),
)
def test_every_nth_row_in_the_order_of_time_opens_a_window_whatever_the_order_of_arrival(
    length: int, every: int, batches: list[Batch], emit: str, method: str, tasks: int
) -> None:
    windows = SlideByTupleWindows(length, every, "time")
    run = Run(plan_of(windows, emit, method)).batches(batches, tasks)
    wanted = slides_by_rows(sorted(everything(batches)), length, every)
    got = {(row["key"], row["window_id"]): (row["n"], row["total"]) for row in run.results}
    assert len(got) == len(run.results), "a window closes once"
    if emit == "all":
        assert got == wanted
    else:
        assert got.items() <= wanted.items()
        assert latest_of(got) == latest_of(wanted)


def test_a_late_row_has_no_number_and_counts_where_windows_are_open() -> None:
    run = Run(plan_of(SlideByTupleWindows(10, 2, "time"), shards=1))
    run.batches([([(1, 1, 1), (1, 2, 2), (1, 5, 4)], 6), ([(1, 3, 8), (1, 9, 16)], None), ([], END)])
    assert [(row["window_id"], row["total"]) for row in run.results] == [(2, 3), (9, 31)]
    assert [table.column("v").to_pylist() for table in run.late] == [[8]]


@pytest.mark.parametrize("keys", [1, 3000])
def test_a_batch_touches_the_pages_of_the_keys_whose_rows_it_counts(keys: int) -> None:
    run = Run(plan_of(SlideByTupleWindows(5, 3, "time"), shards=1))
    for time in range(7):
        run.batches([([(key, time, 1) for key in range(keys)], time + 1)])
    assert sorted({row["window_id"] for row in run.results}) == [2, 5]
    assert len(run.results) == 2 * keys
    pages = sum(kind == "numbers" for kind, _ in run.stores[0].values)
    assert pages == (1 if keys == 1 else 4)
