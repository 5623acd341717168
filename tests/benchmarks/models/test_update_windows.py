"""Windows under update semantics: the report's traces and marks, and what must hold for every run."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from the_benchmarks.models.every_window import EveryWindow
from the_benchmarks.models.pages import WindowPages
from the_benchmarks.models.transitions import KeyState, KeyTransitionGraph

from upstream.conf.errors import MalformedRowError, OptionError
from upstream.operators.windows.kinds import SlidingWindows

ENQ, WAIT, READY, IDLE, DONE = KeyState

shapes = st.builds(SlidingWindows, st.integers(1, 9), st.integers(1, 9), st.integers(-5, 5))
semantics = st.sampled_from(["lazy", "eager"])
policies = st.sampled_from(["in-place", "fifo"])
# In each tick one key's row, or none's: the ticks without leave gaps in windows.
feeds = st.lists(st.sampled_from([None, 0, 0, 1, 2]), min_size=1, max_size=50)


def drive(graph, feed, *, low_watermark=True, drain=60):
    """(tick, what was served) of each tick; after the feed the operator has time to end what it can."""
    for tick, key in enumerate([*feed, *[None] * drain], start=1):
        if key is not None:
            graph.arrive(tick, key, tick)
        if low_watermark:
            graph.progress(tick + 1, tick)
        yield tick, graph.serve(tick)


def rows_of(feed, key, low, high):
    """The ticks of a key's rows."""
    return [tick for tick, each in enumerate(feed, start=1) if each == key and low <= tick <= high]


def starters(windows, feed, key):
    """Window-ids with a row in their first SLIDE, and the tick of the first one, read row by row."""
    found = {}
    lows, highs = (ends.tolist() for ends in windows.extent(np.arange(-10, 100)))
    ticks = rows_of(feed, key, 1, len(feed))
    for w, low, high in zip(range(-10, 100), lows, highs, strict=True):
        first = next((tick for tick in ticks if low <= tick < min(high, low + windows.slide)), None)
        if first is not None:
            found[w] = first
    return found


# --- Figure 12: ω = 3, δ = 1, C_t = 2, a row in each tick

# States, since when the key waits, the end of the window that is committed, what is put out; from a tick to another.
TRACES = {
    "lazy": [
        # No window has closed: the rows wait for their window, and the key is no update.
        (1, 2, {ENQ}, None, None, []),
        # The row of tick 3 closes the window 1 to 3. The operator is free, so it commits at once.
        (3, 3, {READY}, None, 3, []),
        # The window 2 to 4 closes at 4: an update (I), for which the key waits while its window is processed. Windows
        # that close at 5 to 8 (U) replace it, and the key has waited since 4.
        (4, 8, {WAIT, READY}, 4, None, []),
        # Three rows of two ticks each after 3 the result is out; the latest fully arrived window is that of 7 to 9,
        # which closed just now.
        (9, 9, {READY}, None, 9, [(1, 3)]),
        (10, 14, {WAIT, READY}, 10, None, []),
    ],
    "eager": [
        # The first row starts the window 1 to 3, to which the operator commits at once.
        (1, 1, {READY}, None, 3, []),
        # "The key starts waiting in the queue when a new window starts at time 2"; later starters overwrite it.
        (2, 6, {WAIT, READY}, 2, None, []),
        # "… the output for window 1, given at time 7": rows 1, 2, 3 took two ticks each. The latest started window is
        # 7 to 9.
        (7, 7, {READY}, None, 9, [(1, 3)]),
        (8, 12, {WAIT, READY}, 8, None, []),
        (13, 13, {READY}, None, 15, [(7, 9)]),
    ],
}


@pytest.mark.parametrize("which", TRACES)
def test_trace_of_figure_12(which):
    graph = KeyTransitionGraph(SlidingWindows(3, 1), which, cost=2)
    ticks = drive(graph, [0] * 14, drain=0)
    for first, last, *expected in TRACES[which]:
        for tick in range(first, last + 1):
            now, served = next(ticks)
            out = [(result.start, result.end) for result in served.results]
            committed = served.commit.end if served.commit else None
            assert [now, graph.states(0), graph.waits_since(0), committed, out] == [tick, *expected]


# --- Table 1


# --- the graph


def serve_until_idle(graph, tick):
    order = []
    for now in range(tick, tick + 60):
        order += [result.key for result in graph.serve(now).results]
    return order


@pytest.mark.parametrize("which", ["lazy", "eager"])
@pytest.mark.parametrize(("policy", "order"), [("in-place", [0, 1, 2]), ("fifo", [0, 2, 1])])
def test_a_superseded_key_keeps_its_place_or_goes_to_the_tail(which, policy, order):
    graph = KeyTransitionGraph(SlidingWindows(1, 1), which, cost=5, policy=policy)
    graph.arrive(1, 0, 1)
    graph.serve(1)
    for time, key in ((2, 1), (2, 2), (3, 1)):
        graph.arrive(time, key, time)
    assert graph.waits_since(1) == 2
    assert serve_until_idle(graph, 4) == order


# --- for every run


@given(shapes, semantics, policies, feeds, st.integers(1, 4))
def test_a_window_has_all_its_rows_and_no_other(windows, which, policy, feed, cost):
    graph = KeyTransitionGraph(windows, which, cost=cost, policy=policy)
    ends = {}
    for tick, served in drive(graph, feed):
        for result in served.results:
            low = result.end + 1 - windows.range
            assert (result.end + 1 - windows.origin) % windows.slide == 0
            assert list(result.rows) == rows_of(feed, result.key, low, result.end)
            assert tick > result.end or result.rows[-1] + cost <= tick
            ends.setdefault(result.key, []).append(result.end)
    for each in ends.values():
        assert (np.diff(each) > 0).all()


@given(shapes, semantics, policies, feeds, st.integers(1, 4))
def test_the_last_window_of_each_key_is_given(windows, which, policy, feed, cost):
    graph = KeyTransitionGraph(windows, which, cost=cost, policy=policy)
    last = {}
    for _, served in drive(graph, feed, drain=len(feed) * 4 + 20):
        last |= {result.key: result.end for result in served.results}
    for key in set(feed) - {None}:
        started = starters(windows, feed, key)
        wanted = int(windows.extent(max(started))[1]) - 1 if started else None
        assert last.get(key) == wanted
        assert not {WAIT, READY, IDLE} & graph.states(key)


@given(shapes, semantics, policies, feeds, st.integers(1, 4), st.booleans())
def test_window_buffers_are_bounded(windows, which, policy, feed, cost, low_watermark):
    """ω + δ - 1 (§7.2); the lazy dequeue buffer may keep what remains of a window that no row is shared with."""
    assume(windows.slide <= windows.range)
    graph = KeyTransitionGraph(windows, which, cost=cost, policy=policy)
    limit = windows.range + windows.slide - 1
    for _ in drive(graph, feed, low_watermark=low_watermark, drain=20):
        for key in set(feed) - {None}:
            if not graph.states(key):
                continue
            buffer = graph.buffer(key)
            assert len(buffer.enqueued) <= limit
            assert len(graph.held(key)) <= limit + (windows.range - 1 if which == "lazy" else 0)
            assert graph.held(key) == sorted({row.time for row in [*buffer.enqueued, *buffer.dequeued]})


@given(st.integers(1, 9), st.integers(1, 9), feeds, st.integers(1, 3), st.floats(0, 1), st.integers(0, 5))
def test_append_semantics_give_every_window_and_random_drop_some(size, slide, feed, cost, keep, seed):
    windows = SlidingWindows(size, slide)
    expected = {}
    for key in set(feed) - {None}:
        ends = [int(windows.extent(w)[1]) - 1 for w in sorted(starters(windows, feed, key))]
        expected[key] = [(end, rows_of(feed, key, end - size + 1, end)) for end in ends]
    every, dropping = EveryWindow(windows, cost=cost), EveryWindow(windows, keep=keep, seed=seed)
    for queue in (every, dropping):
        found = {key: [] for key in expected}
        for _, served in drive(queue, feed, drain=len(feed) * cost * size + 60):
            for result in served.results:
                found[result.key].append((result.end, list(result.rows)))
        if queue is every:
            assert found == expected
        assert all(each in expected[key] for key, results in found.items() for each in results)
        assert len(queue) == 0


def test_overlapping_windows_snowball():
    """One row in each tick, each in ten windows: append falls behind, update semantics do not."""
    windows = SlidingWindows(10, 1)
    late = []
    for model in (EveryWindow(windows), KeyTransitionGraph(windows, "eager")):
        out = [tick - result.end for tick, served in drive(model, [0] * 300, drain=0) for result in served.results]
        late.append(out[-1])
    assert late[0] > 200
    assert late[1] == 1


# --- pages


@given(shapes, semantics, feeds, st.integers(1, 5), st.integers(1, 4))
def test_pages_hold_what_the_buffers_do(windows, which, feed, block_rows, page_blocks):
    graph = KeyTransitionGraph(windows, which, cost=2)
    pages = WindowPages(block_rows, page_blocks)
    for _ in drive(graph, feed, drain=40):
        held = {key: graph.held(key) for key in range(3)}
        for key, rows in held.items():
            pages.hold(key, rows)
        rows = sum(len(each) for each in held.values())
        assert pages.rows == rows
        assert rows <= pages.allocated <= min(pages.paged, rows * block_rows)
    assert block_rows > 1 or pages.allocated == pages.rows


# --- what is refused


@pytest.mark.parametrize("make", [lambda windows: KeyTransitionGraph(windows, "lazy"), EveryWindow])
def test_rows_out_of_order_are_refused(make):
    model = make(SlidingWindows(3, 1))
    model.arrive(4, 0, 4)
    for time in (4, 3, 0):
        with pytest.raises(MalformedRowError, match="tick"):
            model.arrive(time, 0, 5)
    model.progress(9, 8)
    with pytest.raises(MalformedRowError, match="9"):
        model.arrive(8, 1, 9)


@pytest.mark.parametrize(
    "make",
    [
        lambda windows: KeyTransitionGraph(windows, "early"),
        lambda windows: KeyTransitionGraph(windows, "lazy", policy="append"),
        lambda windows: KeyTransitionGraph(windows, "lazy", cost=0),
        lambda windows: EveryWindow(windows, cost=0),
        lambda windows: EveryWindow(windows, keep=1.5),
        lambda _: WindowPages(0, 4),
    ],
)
def test_unknown_names_and_impossible_numbers_are_refused(make):
    with pytest.raises(OptionError):
        make(SlidingWindows(3, 1))
