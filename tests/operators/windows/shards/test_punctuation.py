"""What punctuation says of feeds and of single keys, and what is kept of it."""

import json

import numpy as np
import pyarrow as pa
import pytest

from upstream.core.rows.exact_integers import LOWEST
from upstream.core.rows.frames import from_frame, to_frame
from upstream.operators.runtime.feeds import ENDED, FeedBounds
from upstream.operators.runtime.key_bounds import ALL_FEEDS
from upstream.operators.state.store import DictStore
from upstream.operators.windows.kinds import LandmarkWindows, SlideByTupleWindows, SlidingWindows
from upstream.operators.windows.shards.punctuation import hear, key_bounds

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


@pytest.mark.parametrize(
    ("windows", "lateness"),
    [(SlidingWindows(10, 5), 0), (SlidingWindows(10, 10, 3), 4), (LandmarkWindows(7), 0), (SlideByTupleWindows(6), 0)],
)
@pytest.mark.parametrize("bound", [21, 25, ENDED])
def test_state_of_an_earlier_release_goes_on(windows, lateness, bound):
    """It has the greatest closed window of a key, and no bound: the results that follow are the same."""
    plan = plan_of(windows, "all", shards=1, lateness_us=lateness)
    given = [None if bound == ENDED else bound]
    runs: list[Run] = []
    for _ in range(2):
        run = Run(plan)
        run.tables(
            rows_table([(1, 3, 1), (1, 13, 1), (2, 14, 1)], 1),
            punctuation_table(9, 1),
            punctuation_table(given[0], 1, key=1),
        )
        runs.append(run)
    values = runs[1].stores[0].values
    assert json.loads(values["head", 0])["ahead"] == 1
    table = from_frame(values["ahead", 0])
    was = table.column("__upstream_was").to_numpy()
    closed = np.where(was == LOWEST, LOWEST, windows.last_complete(np.maximum(was, LOWEST + lateness) - lateness))
    closed = np.where(was == ENDED, windows.last_complete(ENDED), closed)
    old = table.drop_columns(["__upstream_was", "__upstream_told"]).append_column("__upstream_closed", pa.array(closed))
    values["ahead", 0] = to_frame(old)
    runs[1].promises.known.clear()  # such a release promised nothing of a key
    for run in runs:
        before = len(run.results)
        run.tables(rows_table([(2, 15, 1)], 2), punctuation_table(16, 2))
        run.tables(rows_table([(1, 24, 1)], 3), punctuation_table(60, 3))
        assert len({(each["key"], each["window_id"]) for each in run.results}) == len(run.results)
        assert len(run.results) > before
    found = [[{**each, "_upstream": None} for each in run.results] for run in runs]
    assert found[0] == found[1]
    assert [run.reports[-1].late for run in runs] == [runs[0].reports[-1].late] * 2
