"""Columns in, columns out."""

import dataclasses
import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import CheckpointError
from upstream.core.rows.event_times import event_time_us
from upstream.core.rows.exact_integers import LOWEST
from upstream.operators.aggregates.functions import avg, count, max_, sum_
from upstream.operators.runtime.feeds import ALL_FEEDS, ENDED, FeedBounds
from upstream.operators.state.store import DictStore
from upstream.operators.windows.kinds import LandmarkWindows, SlidingWindows
from upstream.operators.windows.parse import window_by_time
from upstream.operators.windows.shards.plan import WindowPlan
from upstream.operators.windows.shards.results import ends_column, hear, key_bounds

from .drawn import plan_of
from .windows_of import SCHEMA, Run, in_windows, punctuation_table, rows_table

UTC = dt.timezone.utc


def test_ends_are_timestamps_again():
    column = pa.array(
        [dt.datetime(1969, 12, 31, 23, 59, 30, tzinfo=UTC), dt.datetime(9999, 12, 31, 23, 59, tzinfo=UTC)]
    )
    windows = window_by_time("1 minute")
    low, high = windows.extent(windows.wids(event_time_us(column, None, "UTC"))[0])
    assert ends_column(low, column.type).to_pylist() == [
        dt.datetime(1969, 12, 31, 23, 59, tzinfo=UTC),
        dt.datetime(9999, 12, 31, 23, 59, tzinfo=UTC),
    ]
    assert ends_column(high, column.type)[0].as_py() == dt.datetime(1970, 1, 1, tzinfo=UTC)


def test_a_landmark_window_begins_with_null():
    low, high = LandmarkWindows(10).extent(np.array([1]))
    assert ends_column(low, pa.timestamp("us", "UTC")).to_pylist() == [None]
    assert ends_column(high, pa.int64()).to_pylist() == [20]
    assert ends_column(SlidingWindows(5, 5).extent(np.array([0]))[0], pa.int32()).to_pylist() == [0]


def test_no_leap_seconds():
    """POSIX time has none: the second after 2016-12-31T23:59:59Z is that of midnight, whatever it is called."""
    called = event_time_us(pa.array(["2016-12-31T23:59:60Z", "2017-01-01T00:00:00Z"]), None, "UTC")
    assert called[0] == called[1]
    column = pa.array([dt.datetime(2016, 12, 31, 23, 59, 59, tzinfo=UTC), dt.datetime(2017, 1, 1, tzinfo=UTC)])
    low, high = event_time_us(column, None, "UTC")
    assert high - low == 1_000_000
    for windows in (window_by_time("1 minute"), window_by_time("1 day", zone="UTC")):
        first, _ = windows.wids(np.array([low, high]))
        assert first[1] == first[0] + 1
        assert windows.extent(first)[1][0] == high


SLIDING = SlidingWindows(6, 2)
TEN = SlidingWindows(10, 10)
FEW = {"n": count()}
MORE = {"n": count(), "total": sum_("v"), "top": max_("v")}


def plan_with(aggregates, windows=SLIDING, emit="all", **more):
    options = {"method": "paned", "lateness_us": 0, **more}
    return WindowPlan(("key",), "time", None, "UTC", windows, aggregates, emit, shards=1, schema=SCHEMA, **options)


def go_on(run, aggregates):
    """The job's next run, in another process, from the state that the last one left."""
    return Run(dataclasses.replace(run.plan, aggregates=aggregates), run.stores)


def rows_until(time):
    return st.lists(st.tuples(st.integers(0, 2), st.integers(0, time), st.integers(-5, 5)), max_size=25)


@given(
    rows_until(30),
    rows_until(60),
    st.integers(0, 31),
    st.sampled_from([SlidingWindows(6, 2), SlidingWindows(5, 5), SlidingWindows(3, 4)]),
    st.sampled_from(["all", "lazy", "all+early"]),
    st.sampled_from(["paned", "wid"]),
)
def test_no_aggregate_is_wrong(before, after, bound, windows, emit, method):
    after = [row for row in after if row[1] >= bound]
    first = Run(plan_with(FEW, windows, emit, method=method)).batches([(before, bound)])
    second = go_on(first, MORE).batches([(after[:10], None), (after[10:], 90)])
    inside = in_windows(windows, [*before, *after], 90)
    last_before = max((row[1] for row in before), default=-1)
    for each in second.results:
        if not each["final"]:
            continue
        values = inside[each["key"], each["window_id"]]
        assert each["n"] == len(values)
        assert (each["total"] is None) == (each["top"] is None)
        if each["total"] is not None:
            assert (each["total"], each["top"]) == (sum(values), max(values))
        else:  # it began before the change, but for a pane that reaches beyond what was seen
            start = int(windows.start_and_end(each["window_id"])[0])
            assert start <= max(last_before, bound) + windows.slide


DAY = 86_400_000_000
PARIS = window_by_time("1 day", zone="Europe/Paris")


@pytest.mark.parametrize(
    ("windows", "runs", "wanted"),
    [
        (
            TEN,
            [(FEW, [(1, 3, 5)], 1), (MORE, [(1, 4, 7)], 2), (MORE, [(1, 5, 8), (1, 15, 9)], 20)],
            [(3, None), (1, 9)],
        ),
        (TEN, [(MORE, [(1, 3, 5)], 1), (FEW, [(1, 4, 7)], 2), (MORE, [(1, 15, 9)], 20)], [(2, None), (1, 9)]),
        (TEN, [(FEW, [], 1), (MORE, [(1, 4, 7)], 20)], [(1, 7)]),
        (TEN, [(FEW, [(1, 3, 5)], 10), (MORE, [(1, 4, 7)], 12)], [(2, None)]),
        (PARIS, [(FEW, [(1, 3, 5)], 1), (MORE, [(1, 4, 7), (1, DAY + 9, 8)], 3 * DAY)], [(2, None), (1, 8)]),
    ],
    ids=["two restarts", "away for a while", "nothing kept", "closed before", "calendar"],
)
def test_an_aggregate_is_null_in_windows_that_began_without_it(windows, runs, wanted):
    run = None
    for aggregates, rows, bound in runs:
        run = Run(plan_with(aggregates, windows, lateness_us=100)) if run is None else go_on(run, aggregates)
        run.batches([(rows, bound)])
    run.batches([([], 10 * DAY)])
    last = {each["window_id"]: (each["n"], each["total"]) for each in run.results}
    assert [last[wid] for wid in sorted(last)] == wanted


def test_what_is_computed_from_kept_state_is_whole_at_once():
    first = Run(plan_with({"n": count(), "total": sum_("v"), "mean": avg("v")}, TEN))
    second = go_on(first.batches([([(1, 3, 5)], 1)]), {"mean": avg("v"), "again": sum_("v")})
    assert [(each["mean"], each["again"]) for each in second.batches([([(1, 4, 7)], 20)]).results] == [(6.0, 12)]


@pytest.mark.parametrize(
    "plan",
    [
        plan_with(FEW, LandmarkWindows(7, 2)),
        plan_with(FEW, emit="eager"),
        plan_with(FEW, method="buffering"),
        plan_with(FEW, method="adaptive"),
    ],
)
def test_where_more_than_entries_is_kept_the_aggregates_stay(plan):
    run = Run(plan).batches([([(1, 3, 5)], 1)])
    with pytest.raises(CheckpointError, match=r"other aggregates: n=count\(\*\); now n=.*top=max\(v\)"):
        go_on(run, MORE).batches([([(1, 4, 7)], 2)])
    go_on(run, FEW).batches([([(1, 4, 7)], 2)])


def test_another_type_of_the_same_state_is_refused():
    run = Run(plan_with(MORE)).batches([([(1, 3, 5)], 1)])
    schema = SCHEMA.set(2, SCHEMA.field("v").with_type(pa.float64()))
    changed = dataclasses.replace(run.plan, schema=schema, aggregates={**MORE, "more": count("v")})
    with pytest.raises(CheckpointError, match="other aggregates"):
        Run(changed, run.stores).batches([([(1, 4, 7)], 2)])


PLAN = plan_of(SlidingWindows(10, 10), shards=1)


def test_punctuation_with_a_key_raises_the_bound_of_that_key_alone():
    feeds, ahead = FeedBounds(), key_bounds(PLAN, DictStore(), {}, 0)
    told = [
        punctuation_table(5, 1, "a"), punctuation_table(3, 1, "b"), punctuation_table(9, 1, "a", key=1),
        punctuation_table(7, 1, "b", key=1), punctuation_table(8, 1, "c", key=2),
        punctuation_table(8, 1, ALL_FEEDS, key=3),
    ]  # fmt: skip
    hear(PLAN, pa.concat_tables(told), feeds, ahead)
    assert dict(feeds.bounds) == {"a": 5, "b": 3, "c": LOWEST}
    assert feeds.low_watermark is None, "a feed that has promised nothing for all keys holds them back"
    ahead.raised({"a": 5, "b": 3, "c": 20})
    assert ahead.of([pa.array([1, 2, 3, 4])]).tolist() == [7, LOWEST, 8, LOWEST]
    hear(PLAN, punctuation_table(None, 2, "a", key=1), feeds, None)
    assert dict(feeds.bounds) == {"a": 5, "b": 3, "c": LOWEST}
    hear(PLAN, punctuation_table(None, 2, "a"), feeds, None)
    assert feeds.bounds["a"] == ENDED


def test_punctuation_of_keys_is_passed_on_after_that_of_all_and_as_windows():
    run = Run(PLAN)
    run.tables(rows_table([(1, 3, 1), (2, 4, 2)], 1), punctuation_table(12, 1), punctuation_table(25, 1, key=1))
    run.tables(punctuation_table(26, 2, key=1))  # of the same window
    run.tables(punctuation_table(None, 3, key=1))
    micros = [
        tuple(None if row[name] is None else row[name].microsecond for name in ("window_time", "window_end"))
        for row in (*run.punctuation, *run.of_keys)
    ]
    assert micros == [(19, 20), (29, 30), (None, None)]
    assert [(row["batch"], row["key"], row["_upstream"]["source"]) for row in run.of_keys] == [
        (1, 1, ALL_FEEDS), (3, 1, ALL_FEEDS),
    ]  # fmt: skip


@pytest.mark.parametrize("flush", ["slow", "lazy"])
def test_punctuation_of_a_key_waits_for_results_that_have_not_left(flush):
    run = Run(plan_of(SlidingWindows(10, 10), shards=1, flush=flush, flush_rows=1 if flush == "slow" else None))
    rows = rows_table([(key, time, 1) for key in (1, 2) for time in (3, 13)], 1)
    run.tables(rows, punctuation_table(20, 1), punctuation_table(40, 1, key=1))
    waiting = run.reports[-1].waiting
    assert waiting > 0
    assert all(row["window_time"].microsecond <= 19 for row in run.of_keys)
    run.tables(punctuation_table(30, 2))
    run.ticks()
    assert run.reports[-1].waiting == 0
    assert (run.of_keys[-1]["key"], run.of_keys[-1]["window_time"].microsecond) == (1, 49)
