"""From position to position over a simulated broker: every offset once, whatever the limits, restarts and losses."""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.journal import through_json

from upstream.conf.errors import FeedChangedError
from upstream.datasource.connectors.contract import Limit
from upstream.datasource.connectors.kafka.client import End
from upstream.datasource.connectors.kafka.options import KafkaOptions
from upstream.datasource.connectors.kafka.positions import Positions, shared


class Made:
    """A cluster with one topic."""

    def __init__(self) -> None:
        self.first: list[int] = [0]
        self.end: list[int] = [0]
        self.ident = 1
        self.asked = 0
        # Of each partition, the epoch and the first offset of each leader.
        self.leaders: list[list[tuple[int, int]]] | None = None

    def topics(self) -> dict[str, tuple[str, list[int]]]:
        return {"t": (str(self.ident), list(range(len(self.end))))}

    def ends(self, feeds: Iterable[str]) -> dict[str, End]:
        parts = {feed: int(feed[2:]) for feed in feeds if int(feed[2:]) < len(self.end)}
        return {feed: End(self.end[part], self.epoch(part)) for feed, part in parts.items()}

    def epoch(self, part: int) -> int | None:
        return None if self.leaders is None else self.leaders[part][-1][0]

    def agreed(self, read: Mapping[str, tuple[int, int]]) -> dict[str, int]:
        assert self.leaders is not None, "who counts no epochs is not asked for them"
        self.asked += 1
        return {
            feed: min([at, *(first for each, first in self.leaders[int(feed[2:])] if each > epoch)])
            for feed, (at, epoch) in read.items()
        }

    def begins(self, feeds: Iterable[str]) -> dict[str, int]:
        return {feed: self.first[int(feed[2:])] for feed in feeds if int(feed[2:]) < len(self.first)}


OPTIONS = KafkaOptions(servers="none", subscribe=("t",), fail_on_data_loss=False)
STEP = st.one_of(
    st.tuples(st.just("grow"), st.integers(0, 3), st.integers(1, 20)),
    st.tuples(st.just("retain"), st.integers(0, 3), st.integers(1, 15)),
    st.tuples(st.just("partition"), st.just(0), st.just(0)),
    st.tuples(st.just("take"), st.one_of(st.none(), st.integers(1, 12)), st.booleans()),
)


@settings(max_examples=200)
@given(st.lists(STEP, max_size=40))
def test_each_offset_is_taken_once_or_counted_as_lost(steps):
    cluster, position = Made(), None
    seconds = itertools.count(0, 5)
    planner = Positions(cluster, OPTIONS, lambda: next(seconds))
    taken: dict[str, list[int]] = {}
    grown_at: dict[tuple[str, int], int] = {}  # the look at which an offset was first seen
    now = 0
    for kind, one, other in [*steps, ("take", None, True), ("take", None, False)]:
        if kind == "partition":
            cluster.first.append(0)
            cluster.end.append(0)
        elif kind == "grow":
            cluster.end[one % len(cluster.end)] += other
        elif kind == "retain":
            at = one % len(cluster.end)
            cluster.first[at] = min(cluster.first[at] + other, cluster.end[at])
        else:
            now += 1
            if other:  # another process, from the journal
                planner = Positions(cluster, OPTIONS, lambda: next(seconds))
                if position is None:
                    grown_at = {}
            step = planner.advance(position, now, Limit(rows=one))
            for part_number, end in enumerate(cluster.end):
                for offset in range(end):
                    grown_at.setdefault((f"t/{part_number}", offset), now)
            assert one is None or sum(part.span for part in step.ranges) <= one
            assert len({part.feed for part in step.ranges}) == len(step.ranges), "one task is to read all of a feed"
            for part in step.ranges:
                low, high = part.place["from"], part.place["to"]
                assert part.span == high - low
                taken.setdefault(part.feed, []).extend(range(low, high))
                arrivals = part.place.get("arrivals") or [[high, part.arrival_us]]
                assert arrivals[-1][0] == high
                # Never later than it was seen first; a restart may have forgotten looks that no batch has recorded.
                ends = np.array([end for end, _ in arrivals])
                for offset in range(low, high):
                    arrival = arrivals[int(np.searchsorted(ends, offset, side="right"))][1]
                    assert arrival <= now
                    assert arrival >= grown_at[part.feed, offset]
            if step.ranges:  # the only steps that are journaled
                position = through_json(step.position)
    if position is not None:
        for part_number, end in enumerate(cluster.end):
            offsets = taken.get(f"t/{part_number}", [])
            assert offsets == sorted(set(offsets)), "an offset was taken twice, or out of order"
            missing = set(range(end)) - set(offsets)
            assert not missing or max(missing) < max(cluster.first), "an offset that is there was passed over"
        passed = sum(position["at"].values()) - sum(map(len, taken.values()))
        # The first run may begin beyond what has gone before it; nothing of that is lost.
        assert position["lost"] <= passed


@given(
    st.dictionaries(st.text("abc", min_size=1), st.integers(1, 1000), min_size=1),
    st.one_of(st.none(), st.integers(1, 2000)),
)
def test_shares_are_all_there_is_and_no_more_than_waits(waiting, most):
    takes = shared(waiting, most)
    assert sum(takes.values()) == (sum(waiting.values()) if most is None else min(most, sum(waiting.values())))
    assert all(0 <= take <= waiting[feed] for feed, take in takes.items())
    if most is not None and most >= len(waiting):
        assert all(takes.values()), "a feed waits for nothing"


def test_looks_are_put_together_as_the_older_one_when_there_are_many():
    cluster = Made()
    planner = Positions(cluster, OPTIONS, lambda: 0.0)
    position = planner.advance(None, 0, Limit()).position
    for now in range(1, 500):
        cluster.end[0] += 1
        planner.advance(position, now, Limit(rows=1))
    (part,) = planner.advance(position, 500, Limit()).ranges
    looks = part.place["arrivals"]
    assert len(looks) <= 65
    assert looks[-1][0] == 499
    ends = np.array([end for end, _ in looks])
    for offset in range(499):
        assert looks[int(np.searchsorted(ends, offset, side="right"))][1] <= offset + 1


def spans(step):
    """From where to where a step reads the one partition."""
    return [(part.place["from"], part.place["to"]) for part in step.ranges]


def cut_off(options):
    """A partition of which 100 messages were read and which ends at 50 now, as the planner has seen for long enough."""
    cluster, seconds = Made(), [0.0]
    planner = Positions(cluster, options, lambda: seconds[0])
    cluster.end[0] = 100
    position = through_json(planner.advance(None, 1, Limit()).position)
    cluster.end[0] = 50
    assert not planner.advance(position, 2, Limit()).ranges, "a broker that comes up does not see its own end at once"
    seconds[0] = 11.0
    return cluster, planner, position


@pytest.mark.parametrize("more", [3, 0])
def test_a_log_that_was_cut_off_is_read_on_from_its_end_and_what_is_gone_is_counted(more):
    cluster, planner, position = cut_off(OPTIONS)
    cluster.end[0] += more  # written before anybody looked again
    step = planner.advance(position, 3, Limit())
    assert spans(step) == [(50, 50 + more)]
    assert [part.span for part in step.ranges] == [more]
    assert (step.position["at"], step.position["lost"]) == ({"t/0": 50 + more}, 50)
    # Where it was cut off is journaled before more is written.
    cluster.end[0] = 60
    again = Positions(cluster, OPTIONS, lambda: 11.0).advance(through_json(step.position), 4, Limit())
    assert spans(again) == [(50 + more, 60)]
    assert [part.arrival_us for part in again.ranges] == [4]
    assert again.position["lost"] == 50


def test_a_log_that_was_cut_off_stops_the_query_unless_an_option_allows_it():
    _, planner, position = cut_off(KafkaOptions(servers="none", subscribe=("t",)))
    with pytest.raises(FeedChangedError, match=r"offset 50, .* offset 100"):
        planner.advance(position, 3, Limit())


def test_a_feed_ends_with_its_last_offset_and_not_before():
    cluster, position = Made(), None
    cluster.end = [2]
    planner = Positions(cluster, dataclasses.replace(OPTIONS, ending_offsets={"t": {"0": 3}}), lambda: 0)
    ended: list[frozenset[str]] = []
    for rows in (1, 2, 5):
        step = planner.advance(position, 1, Limit(rows=rows))
        position = step.position
        ended.append(step.ended)
        cluster.end = [len(ended) + 1]
    assert ended == [frozenset(), frozenset(), {"t/0"}]


def led(epoch, rows=None, clock=lambda: 0.0):
    """A partition of 100 messages of a leader of this epoch, of which so many have been read."""
    cluster = Made()
    cluster.leaders, cluster.end = [[(epoch, 0)]], [100]
    planner = Positions(cluster, OPTIONS, clock)
    return cluster, planner, through_json(planner.advance(None, 1, Limit(rows=rows)).position)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_log_that_was_cut_off_and_has_grown_again_is_read_from_the_cut(restarts):
    cluster, planner, position = led(0)
    assert cluster.asked == 0
    cluster.leaders, cluster.end = [[(0, 0), (1, 90)]], [150]
    strict = dataclasses.replace(OPTIONS, fail_on_data_loss=True)
    with pytest.raises(FeedChangedError, match=r"offset 90, .* offset 100"):
        Positions(cluster, strict, lambda: 0.0).advance(position, 2, Limit())
    cluster.asked = 0
    if restarts:
        planner = Positions(cluster, OPTIONS, lambda: 0.0)
    step = planner.advance(position, 2, Limit())
    assert spans(step) == [(90, 90)]
    assert [part.span for part in step.ranges] == [0]
    assert (step.position["at"], step.position["lost"], step.position["epochs"]) == ({"t/0": 90}, 10, {"t/0": 1})
    step = planner.advance(through_json(step.position), 3, Limit())
    assert spans(step) == [(90, 150)]
    assert [part.place["epoch"] for part in step.ranges] == [1]
    assert step.position["lost"] == 10
    assert cluster.asked == 1


def test_a_new_leader_of_the_same_log_is_looked_into_once():
    cluster, planner, position = led(0, rows=60)
    cluster.leaders = [[(0, 0), (4, 80)]]  # cut off beyond what was read
    for now in range(2, 5):
        step = planner.advance(position, now, Limit())
        assert spans(step) == [(60, 100)]
    assert (cluster.asked, step.position["lost"]) == (1, 0)


def test_a_position_without_epochs_goes_on_and_has_them_from_then_on():
    cluster, planner, position = led(3, rows=60)
    del position["epochs"]
    step = planner.advance(position, 2, Limit())
    assert (step.position["at"], step.position["epochs"], cluster.asked) == ({"t/0": 100}, {"t/0": 3}, 0)


def test_a_leader_that_does_not_know_its_successor_is_not_believed():
    seconds = [0.0]
    cluster, planner, position = led(3, clock=lambda: seconds[0])
    cluster.leaders, cluster.end = [[(2, 0)]], [120]
    assert not planner.advance(position, 2, Limit()).ranges
    cluster.leaders, cluster.end = [[(3, 0)]], [110]
    step = planner.advance(position, 3, Limit())
    assert spans(step) == [(100, 110)]
    cluster.leaders, cluster.end = [[(2, 0)]], [120]
    planner.advance(position, 4, Limit())
    seconds[0] = 11.0
    with pytest.raises(FeedChangedError, match=r"epoch 2, .* epoch 3"):
        planner.advance(position, 5, Limit())


def test_what_was_frozen_ends_where_it_was_cut_off():
    cluster, _, position = led(0)
    cluster.leaders, cluster.end = [[(0, 0), (1, 90)]], [150]
    again = Positions(cluster, OPTIONS, lambda: 0.0)
    again.freeze()
    step = again.advance(position, 2, Limit())
    assert step.position["at"] == {"t/0": 90}
    assert not again.advance(through_json(step.position), 3, Limit()).ranges
