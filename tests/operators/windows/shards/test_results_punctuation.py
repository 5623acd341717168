"""What punctuation says of feeds and of single keys, and what is kept of it."""

import pyarrow as pa
import pytest

from upstream.core.rows.exact_integers import LOWEST
from upstream.operators.runtime.feeds import ALL_FEEDS, ENDED, FeedBounds
from upstream.operators.state.store import DictStore
from upstream.operators.windows.kinds import SlidingWindows
from upstream.operators.windows.shards.results import hear, key_bounds

from .drawn import plan_of
from .windows_of import Run, punctuation_table, rows_table

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
