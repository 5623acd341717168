"""Shards beside the Key Transition Graph: a batch a tick is an operator that is always served at once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from the_benchmarks.models.transitions import KeyTransitionGraph

from upstream.operators.windows.emission import NONE, latest_started
from upstream.operators.windows.kinds import SlidingWindows

from .drawn import plan_of
from .windows_of import Run

# Operator's ticks in one of the rows': enough for all rows that one of them may set free.
SERVED = 200
DRAIN = 30

Given = set[tuple[int, int, int, int]]
"""Tick, key, the last tick of the window, and how many rows it has."""


def by_the_graph(windows, semantics, feed):
    """What the report's operator gives, and when."""
    graph = KeyTransitionGraph(windows, semantics)
    found: Given = set()
    for tick, keys in enumerate(feed, start=1):
        now = tick * SERVED
        for key in keys:
            graph.arrive(tick, key, now)
        graph.progress(tick + 1, now)
        for step in range(SERVED):
            found |= {(tick, each.key, each.end, len(each.rows)) for each in graph.serve(now + step).results}
    return found


def by_shards(windows, semantics, feed):
    """What the operator on Spark gives, and in which batch."""
    run = Run(plan_of(windows, semantics))
    run.batches([([(key, tick, 1) for key in keys], tick + 1) for tick, keys in enumerate(feed, start=1)])
    ends = windows.extent(np.array([each["window_id"] for each in run.results], dtype=np.int64))[1].tolist()
    return {(each["batch"], each["key"], end - 1, each["n"]) for each, end in zip(run.results, ends, strict=True)}


feeds = st.lists(st.lists(st.integers(0, 2), max_size=3, unique=True), min_size=1, max_size=25).map(
    lambda feed: feed + [[] for _ in range(DRAIN)]
)
shapes = st.builds(SlidingWindows, st.integers(1, 8), st.integers(1, 8), st.integers(-3, 3))


@pytest.mark.parametrize("semantics", ["lazy", "eager"])
@settings(max_examples=50)
@given(shapes, feeds)
def test_shards_give_what_the_graph_gives_when_it_gives_it(semantics, windows, feed):
    """Of lazy windows the graph knows those with a row in their first SLIDE; shards give any window that has a row."""
    ours = by_shards(windows, semantics, feed)
    if semantics == "lazy":
        rows = [(key, tick) for tick, keys in enumerate(feed, 1) for key in keys]
        wids = latest_started(windows, np.array([tick for _, tick in rows], dtype=np.int64)).tolist()
        started = {
            (key, int(windows.extent(wid)[1]) - 1) for (key, _), wid in zip(rows, wids, strict=True) if wid != NONE
        }
        ours = {each for each in ours if each[1:3] in started}
    assert ours == by_the_graph(windows, semantics, feed)
