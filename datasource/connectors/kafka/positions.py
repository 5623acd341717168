"""Positions of the `kafka` connector: the driver's steps from one to the next."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from ....conf.errors import FeedChangedError, OptionError
from ..contract import Advance, Limit, Position, Range
from .client import End, feed_name, feed_place, lost
from .options import EARLIEST, LATEST, KafkaOptions, Offsets

_log = logging.getLogger("upstream.kafka")

# How often topics and partitions are looked for; offsets are asked for each time.
_DISCOVERY_S = 2.0
# Instants at which a feed was seen to have grown and that still matter; beyond that many neighbours are put together,
# as the older one.
_MOST_SEEN = 64
_SHORT_S = 10.0


class ClusterView(Protocol):
    """The queries that :class:`Positions` needs, see :class:`~.client.Cluster`."""

    def topics(self) -> dict[str, tuple[str, list[int]]]:
        """Return the id and the partitions of each wanted topic."""
        ...

    def ends(self, feeds: Iterable[str]) -> dict[str, End]:
        """Return the offsets after the last messages, and the epochs of leaders."""
        ...

    def begins(self, feeds: Iterable[str]) -> dict[str, int]:
        """Return the offsets of the first messages."""
        ...

    def agreed(self, read: Mapping[str, tuple[int, int]]) -> dict[str, int]:
        """Return the offsets up to which feeds are what was read, by offset and epoch; gone feeds may be missing."""
        ...


def check_topics(options: KafkaOptions, topics: Mapping[str, tuple[str, list[int]]]) -> None:
    """Raise FeedChangedError if a wanted topic is not among `topics`, or if they have no wanted partition."""
    absent = [topic for topic in options.assign or options.subscribe if topic not in topics]
    if absent or not any(parts for _, parts in topics.values()):
        raise FeedChangedError(
            f"there is no topic {', '.join(map(repr, absent)) or options.subscribe_pattern}",
            expected="topics that exist at the first start of the query",
            hint="create it first, or correct subscribe, subscribePattern or assign",
        )


class Positions:
    """A planner of a batch's offsets.

    A position is JSON. ``at`` is the next offset of each feed, ``ids`` the identity of each topic. ``seen`` records
    what was seen of a feed beyond ``at``, and when. ``lost`` counts unread offsets that are gone
    (`failOnDataLoss=false`). ``epochs`` are the leaders' epochs as of ``at``, by which a truncated log that has grown
    again is detected; brokers before 2.1 count none.
    """

    def __init__(self, cluster: ClusterView, options: KafkaOptions, clock_s: Any = time.monotonic) -> None:
        self._cluster = cluster
        self._options = options
        self._clock_s = clock_s
        self._topics: dict[str, tuple[str, list[int]]] = {}
        self._looked_s: float | None = None
        self._frozen: dict[str, End] | None = None
        self._ends: dict[str, int] = {}
        # Of a feed whose log was found to be the one that was read: the offset, the epoch it was read by, and the
        # present one.
        self._agreed: dict[str, tuple[int, int, int]] = {}
        self._deposed_since_s: dict[str, float] = {}
        self._seen: dict[str, list[list[int]]] = {}
        self._short_since_s: dict[str, float] = {}
        self._short_ends: dict[str, int] = {}
        self._said: set[str] = set()

    def freeze(self) -> None:
        self._frozen = self._cluster.ends(self._feeds(again=True))

    def backlog(self, position: Position | None) -> int | None:
        """Return how many messages wait beyond a position, as of the last look; None before the first look."""
        if position is None or not self._ends:
            return None
        at: Mapping[str, int] = position["at"]
        return sum(max(0, self._until(feed, end) - at.get(feed, end)) for feed, end in self._ends.items())

    def advance(self, position: Position | None, now_us: int, limit: Limit) -> Advance:
        """Return the step from a position, at most `limit.rows` offsets; raise FeedChangedError without topics."""
        feeds = self._feeds(again=position is None)
        if position is not None and not position["at"].keys() <= set(feeds):
            feeds = self._feeds(again=True)
        if position is None:
            check_topics(self._options, self._topics)
        found = self._cluster.ends(feeds) if self._frozen is None else dict(self._frozen)
        ends = {feed: end.offset for feed, end in found.items()}
        epochs = {feed: end.epoch for feed, end in found.items() if end.epoch is not None}
        state = self._continued(position, feeds, ends, epochs)
        at, gone = state["at"], state["gone"]
        self._ends = ends
        self._look(position, at, ends, now_us)
        waiting = {feed: self._until(feed, ends[feed]) - at[feed] for feed in at if feed in ends}
        waiting = {feed: count for feed, count in waiting.items() if count > 0}
        if self._frozen is None or waiting:
            state["lost"] += self._skip_lost(at, waiting)
        takes = shared(waiting, limit.rows)
        ranges = [
            self._range(feed, at[feed], at[feed] + take, epochs.get(feed)) for feed, take in takes.items() if take
        ]
        # A range without messages, so that where the feed was cut off is journaled before more is written.
        ranges += [self._nothing(feed, at[feed], now_us) for feed in state["cut"] if not takes.get(feed)]
        reached = {**at, **{feed: at[feed] + take for feed, take in takes.items()}}
        ended = gone | {
            feed for feed, to in reached.items() if (last := self._ends_at(feed)) is not None and to >= last
        }
        seen = {
            feed: [look for look in looks if look[0] > reached[feed]]
            for feed, looks in self._seen.items()
            if looks and looks[-1][0] > reached.get(feed, 0)
        }
        after = {"at": reached, "ids": state["ids"], "seen": seen, "lost": state["lost"]}
        if state["epochs"]:
            after["epochs"] = state["epochs"]
        left = {feed: self._seen_us(feed, reached[feed]) for feed, count in waiting.items() if takes[feed] < count}
        return Advance(after, ranges, frozenset(ended), left)

    def _feeds(self, *, again: bool = False) -> list[str]:
        now = self._clock_s()
        if again or self._looked_s is None or now - self._looked_s > _DISCOVERY_S:
            self._topics, self._looked_s = self._cluster.topics(), now
        return [feed_name(topic, part) for topic, (_, parts) in sorted(self._topics.items()) for part in parts]

    def _continued(
        self, position: Position | None, feeds: list[str], ends: dict[str, int], epochs: dict[str, int]
    ) -> dict[str, Any]:
        """Return where to read each feed from (nothing beyond a truncation yet), and the feeds gone or truncated."""
        ids = {topic: ident for topic, (ident, _) in self._topics.items()}
        if position is None:
            starts = self._starts(feeds, ends)
            return {"at": starts, "ids": ids, "lost": 0, "gone": set(), "cut": [], "epochs": epochs}
        at = dict(position["at"])
        gone = {feed for feed in at if feed not in feeds}
        for feed in sorted(gone):
            self._loss(feed, "is not there any more: its topic was deleted, or is not subscribed to any longer")
        still = at.keys() & set(feeds)
        again = {feed for feed in still if ids[feed_place(feed)[0]] != position["ids"].get(feed_place(feed)[0])}
        for feed in sorted(again):
            self._loss(feed, f"was deleted and made again, and was read to offset {at[feed]} of what it was before")
            self._seen[feed] = []
        missing, cut = 0, list[str]()
        cut_off = self._cut_off(position, still - again, ends, epochs)
        for feed in sorted(still - again):
            if feed in cut_off or self._short(feed, at[feed], ends):
                end = cut_off[feed] if feed in cut_off else self._short_ends[feed]
                self._loss(feed, f"was cut off at offset {end}, and was read to offset {at[feed]}")
                # It is the same log: all before its end has been read.
                missing += at[feed] - end
                at[feed] = end
                self._seen[feed] = []
                cut.append(feed)
        fresh = again | (set(feeds) - at.keys())
        if fresh:
            at.update(self._cluster.begins(fresh))
        lost_now = int(position["lost"]) + missing
        known = {feed: epoch for feed, epoch in position.get("epochs", {}).items() if feed not in again}
        return {
            "at": at,
            "ids": {**position["ids"], **ids},
            "lost": lost_now,
            "gone": gone,
            "cut": cut,
            "epochs": {**known, **epochs},
        }

    def _cut_off(
        self, position: Position, feeds: Iterable[str], ends: dict[str, int], epochs: dict[str, int]
    ) -> dict[str, int]:
        """Return where feeds' logs were truncated before what was read; only a change of leaders does that."""
        known: Mapping[str, int] = position.get("epochs", {})
        doubted: dict[str, tuple[int, int]] = {}
        for feed in sorted(epochs.keys() & known.keys() & set(feeds)):
            at, before, now = position["at"][feed], known[feed], epochs[feed]
            if now < before:
                self._await_leader(feed, before, now)
                ends[feed], epochs[feed] = min(ends[feed], at), before
                continue
            self._deposed_since_s.pop(feed, None)
            if now > before and self._agreed.get(feed) != (at, before, now):
                doubted[feed] = at, before
        found: dict[str, int] = {}
        for feed, agreed in (self._cluster.agreed(doubted) if doubted else {}).items():
            if agreed < doubted[feed][0]:
                # The end may have been seen before the cut. The next look covers the part beyond it.
                found[feed] = ends[feed] = agreed
                if self._frozen is not None:
                    self._frozen[feed] = End(agreed, epochs[feed])
            else:
                self._agreed[feed] = (*doubted[feed], epochs[feed])
        return found

    def _await_leader(self, feed: str, before: int, now: int) -> None:
        """Tolerate a leader of an older epoch for a while, because a deposed leader may still answer; then raise."""
        since_s = self._deposed_since_s.setdefault(feed, self._clock_s())
        if self._frozen is None and self._clock_s() - since_s <= _SHORT_S:
            return
        topic, partition = feed_place(feed)
        raise FeedChangedError(
            f"partition {partition} of topic {topic!r} has a leader of epoch {now}, and was read from one of epoch "
            f"{before}",
            expected="rising leader epochs",
            hint="restart the query once all brokers are in touch again; if the cluster was restored from a backup, "
            "start with a new checkpoint",
        )

    def _short(self, feed: str, at: int, ends: Mapping[str, int]) -> bool:
        """Return whether a feed's end has been before `at` for some time: a starting broker first sees less."""
        if ends.get(feed, at) >= at:
            self._short_since_s.pop(feed, None)
            self._short_ends.pop(feed, None)
            return False
        # What is written after it was cut off is new, from the least end on that was seen.
        self._short_ends[feed] = min(ends[feed], self._short_ends.get(feed, at))
        return self._clock_s() - self._short_since_s.setdefault(feed, self._clock_s()) > _SHORT_S

    def _starts(self, feeds: list[str], ends: dict[str, int]) -> dict[str, int]:
        begins = self._cluster.begins(feeds)
        starts: dict[str, int] = {}
        for feed in feeds:
            wanted = _offset_of(self._options.starting_offsets, feed, EARLIEST)
            # A partition of which the broker says no offset has just been made.
            first, end = begins.get(feed, 0), ends.get(feed, begins.get(feed, 0))
            starts[feed] = {EARLIEST: first, LATEST: end}.get(wanted, wanted)
            if wanted > end or 0 <= wanted < first:
                raise OptionError(
                    f"startingOffsets names offset {wanted} of {feed}, which holds {first} to {end}",
                    hint="name an offset that is there, or -2 for the earliest",
                )
        return starts

    def _ends_at(self, feed: str) -> int | None:
        """Return the last offset to read at all; None without one."""
        if self._options.ending_offsets == "latest":
            return None
        wanted = _offset_of(self._options.ending_offsets, feed, LATEST)
        return None if wanted == LATEST else wanted

    def _until(self, feed: str, end: int) -> int:
        most = self._ends_at(feed)
        return end if most is None else min(end, most)

    def _look(self, position: Position | None, at: Mapping[str, int], ends: Mapping[str, int], now_us: int) -> None:
        """Record when feeds were seen to have grown, which counts as their messages' arrival."""
        journaled: Mapping[str, list[list[int]]] = {} if position is None else position["seen"]
        for feed, end in ends.items():
            looks = self._seen.setdefault(feed, [list(look) for look in journaled.get(feed, [])])
            looks[:] = [look for look in looks if look[0] > at.get(feed, 0)]
            if end > (looks[-1][0] if looks else at.get(feed, 0)):
                looks.append([end, now_us])
            if len(looks) > _MOST_SEEN:
                # The rows of both are said to have come when the first of them did: staleness is never made smaller.
                looks[:] = [
                    [later[0], earlier[1]] for earlier, later in zip(looks[::2], looks[1::2], strict=False)
                ] + looks[len(looks) // 2 * 2 :]

    @staticmethod
    def _nothing(feed: str, at: int, now_us: int) -> Range:
        topic, partition = feed_place(feed)
        return Range(feed, {"topic": topic, "partition": partition, "from": at, "to": at}, 0, now_us)

    def _seen_us(self, feed: str, offset: int) -> int:
        return next(arrival for end, arrival in self._seen[feed] if end > offset)

    def _range(self, feed: str, low: int, high: int, epoch: int | None) -> Range:
        topic, partition = feed_place(feed)
        arrivals: list[list[int]] = []
        for end, arrival in self._seen[feed]:
            arrivals.append([min(end, high), arrival])
            if end >= high:
                break
        place: dict[str, Any] = {"topic": topic, "partition": partition, "from": low, "to": high}
        if len(arrivals) > 1:
            place["arrivals"] = arrivals
        if epoch is not None:
            place["epoch"] = epoch
        return Range(feed, place, high - low, arrivals[0][1] if len(arrivals) == 1 else None)

    def _skip_lost(self, at: dict[str, int], waiting: dict[str, int]) -> int:
        """Skip to the first present message; return how many offsets are gone."""
        gone = 0
        for feed, first in self._cluster.begins(waiting).items():
            if first > at[feed]:
                self._loss(feed, f"begins at offset {first}: the messages from {at[feed]} on are past their retention")
                # Of what is beyond a limit of ours (endingOffsets, freeze) nothing is missed.
                to = min(first, at[feed] + waiting[feed])
                gone += to - at[feed]
                waiting[feed] -= to - at[feed]
                at[feed] = to
        return gone

    def _loss(self, feed: str, what: str) -> None:
        error = lost(*feed_place(feed), what)
        if self._options.fail_on_data_loss:
            raise error
        if error.problem not in self._said:  # not with each look
            self._said.add(error.problem)
            _log.warning("failOnDataLoss=false: %s", error.problem)


def shared(waiting: Mapping[str, int], most: int | None) -> dict[str, int]:
    """Share `most` offsets by what waits in each feed, so that all catch up together; each gets one if possible."""
    total = sum(waiting.values())
    if most is None or total <= most:
        return dict(waiting)
    # One for each first, so that none waits for ever behind large ones.
    least = int(most >= len(waiting))
    rest, room = total - least * len(waiting), most - least * len(waiting)
    takes = {feed: least + (count - least) * room // rest for feed, count in waiting.items()}
    left = most - sum(takes.values())
    for feed in sorted(waiting, key=lambda each: (takes[each] - waiting[each], each)):
        if not left:
            break
        takes[feed] += 1
        left -= 1
    return takes


def _offset_of(offsets: Offsets, feed: str, otherwise: int) -> int:
    if isinstance(offsets, str):
        return EARLIEST if offsets == "earliest" else LATEST
    topic, partition = feed_place(feed)
    return offsets.get(topic, {}).get(str(partition), otherwise)
