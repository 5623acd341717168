"""What to do about feeds that are silent: the user's rule, applied to a batch that is being planned.

Whatever is decided goes into the batch's end offset as punctuation, so that a replay promises the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from ..core.feedback.on_demand_watermark import DownstreamReports, OnDemandWatermark
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


def advance(
    progress: Mapping[str, Progress],
    heard: Mapping[str, int],
    ended: Collection[str],
    away: Collection[str],
    after_us: int | None,
    now_us: int,
) -> None:
    """Let idle feeds follow the others: promise for them the least bound that the live ones have reached.

    Parameters
    ----------
    progress, heard
        The progress of each feed, and when it was last heard of.
    ended : collection of str
        Feeds that send nothing more.
    away : collection of str
        Feeds that are not read any more, or that have not begun. They follow the others under any rule, to the end.
    after_us : int or None
        The silence after which a feed is idle; None if none ever is.
    now_us : int
        The clock.

    Notes
    -----
    A silent feed follows one that has ended as far as that has come, not to its end: what it sends next is not late.
    """
    silent: set[str] = set()
    if after_us is not None:
        silent = {feed for feed in progress if now_us - heard[feed] >= after_us and feed not in ended}
    # A feed that has not shown a row is not known downstream, and holds nobody back.
    live = [each for feed, each in progress.items() if feed not in silent | set(away) and each.bound is not None]
    shown = [each.reached for each in live if each.reached is not None]
    if shown:
        for feed in silent.difference(away):
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
    """

    after_us: int | None = None
    on_demand: OnDemandWatermark = dataclasses.field(default_factory=OnDemandWatermark)
    downstream: DownstreamReports | None = None

    def asked(self, progress: Mapping[str, Mapping[str, Any]], ended: Collection[str], now_us: int) -> bool:
        """Return whether an operator waits for more than these feeds have promised.

        If so, the planner may make a batch although no feed has rows.

        Parameters
        ----------
        progress
            The :meth:`Progress.snapshot` of each feed.
        ended, now_us
            See :meth:`apply`.
        """
        if self.downstream is None:
            return False
        bounds = [state["bound"] for feed, state in progress.items() if feed not in ended]
        least = min((bound for bound in bounds if bound is not None), default=None)
        return least is not None and any(need > least for need in self.downstream.needs(now_us, bounds))

    def stop(self) -> None:
        """Promise nothing on demand from now on.

        A run that ends once it has read what is there (`Trigger.AvailableNow`) waits for no clock.
        """
        self.downstream = None

    def apply(
        self,
        progress: Mapping[str, Progress],
        heard: Mapping[str, int],
        ended: Collection[str],
        away: Collection[str],
        now_us: int,
    ) -> bool:
        """Promise for silent feeds under the rule; return whether an on-demand timestamp releases held rows.

        Parameters
        ----------
        progress
            The progress of each feed, after the batch's own rows. The promises go into it.
        heard
            See :func:`heard_now`.
        ended
            Feeds that send nothing more.
        away
            Feeds that are not read any more, or that have not begun.
        now_us
            The clock of the batch.
        """
        released = False
        live = {feed: each for feed, each in progress.items() if feed not in ended and feed not in away}
        if self.downstream is not None and any(heard[feed] < now_us for feed in live):
            needs = self.downstream.needs(now_us, [each.bound for each in live.values()])
            released = self.on_demand.enable(live, heard, needs, now_us)
        advance(progress, heard, ended, away, self.after_us, now_us)
        return released
