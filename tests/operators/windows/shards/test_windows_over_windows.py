"""Windows over windows, shard after shard: which may be, and what they hold."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.aggregates.functions import count, sum_
from upstream.operators.windows.kinds import LandmarkWindows, SlideByTupleWindows, SlidingWindows
from upstream.operators.windows.parse import window_by_time
from upstream.operators.windows.shards.completeness import left_out_by_windows
from upstream.operators.windows.shards.plan import WindowPlan
from upstream.operators.windows.shards.results import result_schema

from .windows_of import SCHEMA, Run

ROWS = [(1, second, 1) for second in range(60)]
END = 60
EVERY_TEN = [(ROWS[first : first + 10], first + 10) for first in range(0, END, 10)]


def plan_of(windows: Any, emit: Any = "all", lateness_us: int = 0) -> WindowPlan:
    """A plan that counts the tests' rows."""
    return WindowPlan(
        ("key",), "time", None, "UTC", windows, {"n": count()}, emit, "paned", lateness_us, shards=2, schema=SCHEMA
    )


@pytest.mark.parametrize(("emit", "at_once"), [("lazy", 10), ("eager", 10), ("all", 60)])
def test_windows_that_leave_some_out_are_refused_to_another_window(emit: Any, at_once: int) -> None:
    """Their sum depends on the batches, so it is no answer."""
    plan = plan_of(SlidingWindows(10, 10), emit)
    sums = [sum(each["n"] for each in Run(plan).batches(batches).results) for batches in ([(ROWS, END)], EVERY_TEN)]
    assert sums == [at_once, 60]
    refused = left_out_by_windows(plan)
    assert (refused is not None) == (sums[0] != sums[1])


@pytest.mark.parametrize("emit", ["lazy", "eager", "early", "all+early"])
def test_the_cure_is_in_the_message(emit: Any) -> None:
    """And following it helps."""
    plan = plan_of(SlidingWindows(10, 10), emit)
    refused = left_out_by_windows(plan)
    assert refused is not None
    problem, cure = refused
    assert problem.startswith(plan.output_text)
    assert 'output="all"' in cure
    assert left_out_by_windows(plan_of(SlidingWindows(10, 10), "all")) is None


def test_windows_that_are_corrected_are_refused() -> None:
    """A correction would count twice."""
    assert left_out_by_windows(plan_of(SlidingWindows(10, 10), "all", lateness_us=5)) is not None


def over(first: Run, windows: Any, time: str = "window_time") -> Run:
    """Windows over another run's results, batch by batch, as they came."""
    schema = result_schema(first.plan)
    aggregates = {"windows": count(), "rows": sum_("n")}
    plan = WindowPlan(("key",), time, None, "UTC", windows, aggregates, "all", "paned", 0, shards=2, schema=schema)
    run, given = Run(plan), [*first.results, *first.punctuation]
    for batch in sorted({each["batch"] for each in given}):
        rows = [{name: each[name] for name in schema.names} for each in given if each["batch"] == batch]
        run.tables(pa.Table.from_pylist(rows, schema=pa.schema([field.with_nullable(True) for field in schema])))
    return run


@pytest.mark.parametrize("batches", [[(ROWS, END)], EVERY_TEN])
@pytest.mark.parametrize("length", [10, 20, 30, 60])
def test_a_window_holds_the_windows_that_lie_in_it(batches: Any, length: int) -> None:
    """Tens in longer windows: as many rows as if they had been counted there, and closed with the last of them."""
    first = Run(plan_of(SlidingWindows(10, 10))).batches(batches)
    outer = over(first, SlidingWindows(length, length))
    got = {each["window_id"]: (each["windows"], each["rows"]) for each in outer.results}
    assert got == dict.fromkeys(range(END // length), (length // 10, length))


@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, END - 1), st.just(1)), max_size=40),
    inner=st.integers(1, 7),
    origin=st.integers(-3, 3),
    times=st.integers(1, 4),
    cut=st.integers(0, 40),
)
def test_counts_of_counts_are_counts(rows: list[Any], inner: int, origin: int, times: int, cut: int) -> None:
    """Whatever the windows' lengths, where the inner ones divide the outer ones."""
    wide = SlidingWindows(inner * times, inner * times, origin)
    batches = [(rows[:cut], 0), (rows[cut:], END)]
    outer = over(Run(plan_of(SlidingWindows(inner, inner, origin))).batches(batches), wide)
    at_once = Run(plan_of(wide)).batches(batches)
    assert {(each["key"], each["window_id"]): each["rows"] for each in outer.results} == {
        (each["key"], each["window_id"]): each["n"] for each in at_once.results
    }


@pytest.mark.parametrize(
    "windows",
    [
        SlidingWindows(10, 4, 1),
        SlidingWindows(4, 10),
        SlidingWindows(3, 2, attribute="rank"),
        LandmarkWindows(7, 2),
        SlideByTupleWindows(5),
        window_by_time("1 day", zone="Europe/Paris"),
    ],
)
@pytest.mark.parametrize("window", [-3, 0, 17])
def test_the_time_of_a_result_is_the_last_instant_inside(windows: Any, window: int) -> None:
    """In the window, while the next instant is not."""
    at = int(windows.last_instant(window))
    low, high = (int(each) for each in windows.extent(window))
    assert low <= at < high
    assert at + 1 == high
    first, last = windows.wids(at)
    assert int(first) <= window <= int(last)


def test_windows_of_rows_and_by_row_have_it_too() -> None:
    """The number of the last row; the time of the row that the window ends with."""
    plan = dataclasses.replace(plan_of(SlidingWindows(3, 2, attribute="rank")), time=None)
    run = Run(plan).batches([([(1, at, at) for at in range(5)], None)])
    assert [(each["window_end"], each["window_time"]) for each in run.results] == [(2, 1), (4, 3)]
    run = Run(plan_of(SlideByTupleWindows(5))).batches([([(1, 3, 1), (1, 9, 1)], 20)])
    assert [each["window_time"] for each in run.results] == [each["window_end"] for each in run.results]
    assert len(run.results) == 2
