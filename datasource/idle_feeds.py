"""What to do about feeds that are silent: the user's rule, applied to a batch that is being planned.

Whatever is decided goes into the batch's end offset as punctuation, so that a replay promises the same.
"""

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
    """Return when each feed was last heard of: had rows, had rows that a limit left for later, or was first known.

    Parameters
    ----------
    before
        The result after the batch before.
    feeds
        All known feeds.
    step
        What has come since.
    now_us
        The clock.
    """
    heard = {feed: before.get(feed, now_us) for feed in feeds}
    return heard | dict.fromkeys({part.feed for part in step.ranges} | step.waiting.keys(), now_us)


def advance(progress: Mapping[str, Progress], silent: Collection[str], away: Collection[str]) -> None:
    """Let idle feeds follow the others: promise for them the least bound that the live ones have reached.

    Parameters
    ----------
    progress
        The progress of each feed.
    silent : collection of str
        Feeds that have been silent for so long that they are idle.
    away : collection of str
        Feeds that are not read any more, or that have not begun. They follow the others under any rule, to the end.

    Notes
    -----
    A silent feed follows one that has ended as far as that has come, not to its end: what it sends next is not late.
    """
    # A feed that has not shown a row is not known downstream, and holds nobody back.
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
    """The user's rule.

    Attributes
    ----------
    after_us : int or None
        How long a feed has been silent for the others to go on without it; None to wait.
    on_demand : OnDemandWatermark
        How on-demand timestamps are computed.
    downstream : DownstreamReports or None
        What operators hold; None unless the rule is to act on demand.
    stopped : bool
        Whether the clock alone releases nothing any more.
    """

    after_us: int | None = None
    on_demand: OnDemandWatermark = dataclasses.field(default_factory=OnDemandWatermark)
    downstream: DownstreamReports | None = None
    stopped: bool = False

    def silent(self, heard: Mapping[str, int], ended: Collection[str], now_us: int) -> frozenset[str]:
        """Return the feeds that have been silent for so long that the others go on without them.

        Parameters
        ----------
        heard, ended, now_us
            See :meth:`apply`.
        """
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

        It may if an operator waits for more than these feeds have promised. It may too if a feed that has ended waits
        for silent ones: no rows of its own are going to bring the next batch.

        Parameters
        ----------
        progress
            The :meth:`Progress.snapshot` of each feed.
        heard, ended, now_us
            See :meth:`apply`.
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
        """Release nothing by the clock alone from now on.

        A run that ends once it has read what is there (`Trigger.AvailableNow`) waits for no clock.
        """
        self.stopped, self.downstream = True, None

    def apply(
        self,
        progress: Mapping[str, Progress],
        heard: Mapping[str, int],
        away: Collection[str],
        ended: Collection[str],
        now_us: int,
    ) -> None:
        """Promise for silent feeds under the rule.

        Parameters
        ----------
        progress
            The progress of each feed, after the batch's own rows. The promises go into it.
        heard
            See :func:`heard_now`.
        away
            Feeds that are not read any more, or that have not begun.
        ended
            Feeds that send nothing more. Until they are closed, they are silent for those that have not begun.
        now_us
            The clock of the batch.
        """
        if self.downstream is not None:
            open_feeds = {feed: each for feed, each in progress.items() if each.bound != AFTER_ALL and feed not in away}
            if any(heard[feed] < now_us for feed in open_feeds):
                bounds = [each.bound for each in open_feeds.values() if each.bound is not None]
                needs = self.downstream.needs(now_us, bounds)
                self.on_demand.enable(open_feeds, heard, needs, now_us)
        advance(progress, self.silent(heard, ended, now_us), away)
