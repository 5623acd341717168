"""Windows over windows, shard after shard: which may be, and what they hold."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.aggregates.functions import count, sum_
from upstream.operators.windows.kinds import SlidingWindows
from upstream.operators.windows.shards.completeness import left_out_by_windows
from upstream.operators.windows.shards.plan import WindowPlan
from upstream.operators.windows.shards.results import result_schema

from .windows_of import SCHEMA, Run

ROWS = [(1, second, 1) for second in range(60)]
END = 60
EVERY_TEN = [(ROWS[first : first + 10], first + 10) for first in range(0, END, 10)]


def plan_of(windows, emit="all", lateness_us=0):
    """A plan that counts the tests' rows."""
    return WindowPlan(
        ("key",), "time", None, "UTC", windows, {"n": count()}, emit, "paned", lateness_us, shards=2, schema=SCHEMA
    )


@pytest.mark.parametrize(("emit", "at_once"), [("lazy", 10), ("eager", 10), ("all", 60)])
def test_windows_that_leave_some_out_are_refused_to_another_window(emit, at_once):
    """Their sum depends on the batches, so it is no answer."""
    plan = plan_of(SlidingWindows(10, 10), emit)
    sums = [sum(each["n"] for each in Run(plan).batches(batches).results) for batches in ([(ROWS, END)], EVERY_TEN)]
    assert sums == [at_once, 60]
    refused = left_out_by_windows(plan)
    assert (refused is not None) == (sums[0] != sums[1])


@pytest.mark.parametrize("emit", ["lazy", "eager", "early", "all+early"])
def test_the_cure_is_in_the_message_and_helps(emit):
    plan = plan_of(SlidingWindows(10, 10), emit)
    problem, cure = left_out_by_windows(plan)
    assert problem.startswith(plan.output_text)
    assert 'output="all"' in cure
    assert left_out_by_windows(plan_of(SlidingWindows(10, 10), "all")) is None


def test_windows_that_are_corrected_are_refused():
    """A correction would count twice."""
    assert left_out_by_windows(plan_of(SlidingWindows(10, 10), "all", lateness_us=5)) is not None


def over(first, windows, time="window_time"):
    """Windows over another run's results, batch by batch, as they came."""
    schema = result_schema(first.plan)
    aggregates = {"windows": count(), "rows": sum_("n")}
    plan = WindowPlan(("key",), time, None, "UTC", windows, aggregates, "all", "paned", 0, shards=2, schema=schema)
    run, given = Run(plan), [*first.results, *first.punctuation]
    for batch in sorted({each["batch"] for each in given}):
        rows = [{name: each[name] for name in schema.names} for each in given if each["batch"] == batch]
        run.tables(pa.Table.from_pylist(rows, schema=pa.schema([field.with_nullable(True) for field in schema])))
    return run


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, END - 1), st.just(1)), max_size=40),
    st.integers(1, 7),
    st.integers(-3, 3),
    st.integers(1, 4),
    st.integers(0, 40),
)
def test_counts_of_counts_are_counts(rows, inner, origin, times, cut):
    wide = SlidingWindows(inner * times, inner * times, origin)
    batches = [(rows[:cut], 0), (rows[cut:], END)]
    outer = over(Run(plan_of(SlidingWindows(inner, inner, origin))).batches(batches), wide)
    at_once = Run(plan_of(wide)).batches(batches)
    assert {(each["key"], each["window_id"]): each["rows"] for each in outer.results} == {
        (each["key"], each["window_id"]): each["n"] for each in at_once.results
    }
