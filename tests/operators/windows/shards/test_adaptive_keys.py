"""AdaptWID's choice between rows and partial aggregates: Cond. 6.9, its thresholds, and what it is told."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.core.rows.exact_integers import LOWEST
from upstream.operators.windows.shards.adaptive_keys import (
    BACK,
    GroupModes,
    Properties,
    dense_groups,
    eager_memory,
    lazy_memory,
)

KEY = pa.schema([("key", pa.int64())])

sizes = st.floats(1, 1000)
streams = st.builds(Properties, aggr=sizes, tup=sizes, wed=st.floats(1, 200))
volumes = st.lists(st.floats(0, 500), min_size=1, max_size=20)


@given(streams, volumes, st.booleans())
def test_what_takes_less_is_chosen_away_from_the_threshold(stream, vol, was):
    rows, partial = lazy_memory(np.array(vol), stream), eager_memory(np.array(vol), stream)
    dense = dense_groups(np.full(len(vol), was), np.array(vol), stream)
    assert dense[rows > partial].all()
    assert not dense[rows < BACK * partial].any()
    between = (rows <= partial) & (rows >= BACK * partial)
    assert (dense[between] == was).all()


@given(sizes, sizes, st.floats(1, 200), st.floats(1, 100), st.floats(0, 1))
def test_with_a_row_in_each_pane_it_is_the_condition_of_the_thesis(aggr, tup, wed, vol, behind):
    """``winVol > aggr·wed/(tup·pane) + vol_B·offset``, half of the rows being those of a feed B that is behind."""
    panes = int(behind * wed)
    stream = Properties(aggr, tup, wed, {"a": 0, "b": -panes}, {"a": 5.0, "b": 5.0})
    win_vol, threshold = vol * wed, aggr * wed / tup + vol / 2 * panes
    if abs(win_vol / threshold - 1) > 1e-9:
        assert dense_groups(np.array([False]), np.array([vol]), stream)[0] == (win_vol > threshold)


@given(streams, st.lists(st.floats(0.75, 1.3), min_size=1, max_size=50))
def test_a_group_at_the_threshold_does_not_flap(stream, around):
    threshold = max(stream.aggr / stream.tup, 0.0)
    dense, switches = np.array([False]), 0
    for factor in around:
        was, dense = dense, dense_groups(dense, np.array([threshold * factor]), stream)
        switches += int(dense[0] != was[0])
    assert switches <= 1


def test_a_group_of_fewer_rows_than_panes_has_a_partial_aggregate_for_each_at_most():
    vol = np.array([0.01, 0.5, 1.0])
    none = np.zeros(3, dtype=np.bool_)
    assert dense_groups(none, vol, Properties(aggr=20, tup=30, wed=10)).all()
    assert not dense_groups(none, vol, Properties(aggr=30, tup=20, wed=10)).any()


batches = st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(-40, 40)), max_size=30), max_size=5)


def modes_of(found, stream, first=LOWEST):
    """After some batches of (key, pane), in periods of 4 panes; the state goes through its table each time."""
    modes = GroupModes.none(4, KEY)
    for rows in found:
        keys = pa.table({"key": pa.array([key for key, _ in rows], pa.int64())})
        panes = np.array([pane for _, pane in rows], dtype=np.int64)
        modes = GroupModes(4, modes.table).observed(keys, panes, first, stream)
    return modes


@given(batches, st.one_of(st.just(LOWEST), st.integers(-40, 40)))
def test_rows_are_counted_by_their_own_time(found, first):
    modes = modes_of(found, Properties(1e9, 10, 4), first)
    least = -100 if first == LOWEST else first // 4 - 1
    expected: Counter[tuple[int, int]] = Counter()
    for batch in found:
        expected.update((key, pane // 4) for key, pane in batch if pane // 4 >= least)
        expected = Counter({each: n for each, n in expected.items() if n > 1})
    key, period, rows, _ = (column.to_pylist() for column in modes.table.columns)
    assert {(k, p): n for k, p, n in zip(key, period, rows, strict=True)} == expected
    assert len(key) == len(expected)


def test_groups_switch_both_ways_and_are_forgotten():
    stream = Properties(aggr=30, tup=10, wed=4)
    asked = pa.table({"key": pa.array([1, 2, 3], pa.int64())})
    modes = modes_of([[(1, pane % 4) for pane in range(30)] + [(2, 1)]], stream)
    assert modes.is_dense(asked).tolist() == [True, False, False]
    later = [(2, 8 + pane % 4) for pane in range(30)] + [(1, 9)]
    keys, panes = zip(*later, strict=True)
    modes = modes.observed(pa.table({"key": pa.array(keys, pa.int64())}), np.array(panes), 8, stream)
    assert modes.is_dense(asked).tolist() == [False, True, False]
    modes = modes.observed(asked.slice(0, 0), np.empty(0, dtype=np.int64), 100, stream)
    assert modes.table.num_rows == 0
    assert not modes.is_dense(asked).any()


def test_the_offset_is_the_mean_over_rows_of_how_far_their_feed_is_behind():
    stream = Properties(1, 1, 10)
    for feed, pane, rows in (("main1", 20, 4000), ("main2", 20, 4000), ("control", 14, 2000)):
        stream = stream.heard(pa.array([feed] * rows), np.full(rows, pane))
    assert stream.offset == pytest.approx(6 * 0.2)
    assert Properties(**stream.to_json()) == stream
    more = stream.heard(pa.array(["main1"]), np.array([1000]))
    assert more.offset <= stream.wed, "however far ahead one feed is"
    assert stream.heard(pa.array(["main1"]), np.array([20]), frozenset({"control"})).offset == 0


def test_how_long_windows_stay_is_measured_when_one_closes():
    stream = Properties(1, 1, 10).heard(pa.array(["a", "a"]), np.array([5, 27]))
    assert stream.closed(LOWEST, 10).wed == 10
    assert stream.closed(11, 10).wed == 17
    assert stream.closed(25, 10).wed == 10


def test_sizes_follow_what_is_measured():
    stream = Properties(0, 0, 1).sized(50, 10)
    assert (stream.aggr, stream.tup) == (50, 10)
    stream = stream.sized(100, 10)
    assert 50 < stream.aggr < 100
    assert stream.tup == 10
