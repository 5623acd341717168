"""Idle feeds: the user's rule, applied to a batch while it is planned."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from ..core.feedback.on_demand_watermark import DownstreamReports, OnDemandWatermark
from ..core.watermark.bounds import AFTER_ALL
from ..core.watermark.policies import Progress
from .connectors.contract import Advance

__all__ = ["IdleRule", "advance", "heard_now"]


def heard_now(before: Mapping[str, int], feeds: Collection[str], step: Advance, now_us: int) -> dict[str, int]:
    """Return when each feed last had rows, had rows beyond a limit, or was first known; `before` is the last result."""
    heard = {feed: before.get(feed, now_us) for feed in feeds}
    return heard | dict.fromkeys({part.feed for part in step.ranges} | step.waiting.keys(), now_us)


def advance(progress: Mapping[str, Progress], silent: Collection[str], away: Collection[str]) -> None:
    """Advance the low-watermark of silent feeds to the least that live feeds have reached.

    Feeds that are `away` (no longer read, or not begun) follow under any rule, to the end. A silent feed follows an
    ended one only as far as that has come, so that its next rows are not late.
    """
    # A feed without rows so far is unknown downstream, and holds no other feed back.
    live = [each for feed, each in progress.items() if feed not in {*silent, *away} and each.bound is not None]
    shown = [each.reached for each in live if each.reached is not None]
    if shown:
        for feed in set(silent).difference(away):
            if progress[feed].bound is not None:
                progress[feed].promise(min(shown))
    # Those that are away follow idle feeds as well, which others wait for in their turn.
    bounds = [each.bound for feed, each in progress.items() if feed not in away and each.bound is not None]
    for feed in away:
        if bounds and progress[feed].bound is not None:
            progress[feed].promise(min(bounds))


@dataclasses.dataclass
class IdleRule:
    """The user's rule for idle feeds."""

    after_us: int | None = None  # time after which the others resume without a silent feed; None to wait
    on_demand: OnDemandWatermark = dataclasses.field(default_factory=OnDemandWatermark)
    downstream: DownstreamReports | None = None  # rows that operators hold; None unless the rule acts on demand
    stopped: bool = False  # the clock alone releases nothing

    def silent(self, heard: Mapping[str, int], ended: Collection[str], now_us: int) -> frozenset[str]:
        """Return the feeds that have been silent for so long that the others resume without them."""
        if self.after_us is None:
            return frozenset()
        return frozenset(feed for feed, at in heard.items() if now_us - at >= self.after_us and feed not in ended)

    def asked(
        self,
        progress: Mapping[str, Mapping[str, Any]],
        heard: Mapping[str, int],
        ended: Collection[str],
        now_us: int,
    ) -> bool:
        """Return whether the rule may release something although no feed has rows.

        It may if an operator waits for more than the feeds have promised, or if an ended feed waits for silent ones: no
        rows of its own bring the next batch. `progress` has the :meth:`Progress.snapshot` of each feed.
        """
        if self.stopped:
            return False
        if ended and self.silent(heard, ended, now_us):
            return True
        if self.downstream is None:
            return False
        bounds = [state["bound"] for state in progress.values() if state["bound"] not in (None, AFTER_ALL)]
        return bool(bounds) and any(need > min(bounds) for need in self.downstream.needs(now_us, bounds))

    def stop(self) -> None:
        """Release nothing by the clock alone from now on: a run with `Trigger.AvailableNow` waits for no clock."""
        self.stopped, self.downstream = True, None

    def apply(
        self,
        progress: Mapping[str, Progress],
        heard: Mapping[str, int],
        away: Collection[str],
        ended: Collection[str],
        now_us: int,
    ) -> None:
        """Advance silent feeds in `progress`, as of after the batch's rows, under the rule.

        The batch's end offset has the result as punctuation, so that a replay repeats it.
        """
        if self.downstream is not None:
            open_feeds = {feed: each for feed, each in progress.items() if each.bound != AFTER_ALL and feed not in away}
            if any(heard[feed] < now_us for feed in open_feeds):
                bounds = [each.bound for each in open_feeds.values() if each.bound is not None]
                needs = self.downstream.needs(now_us, bounds)
                self.on_demand.enable(open_feeds, heard, needs, now_us)
        advance(progress, self.silent(heard, ended, now_us), away)
