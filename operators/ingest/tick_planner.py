"""On-demand timestamps for the silent feeds of a DataFrame, from a source that holds the clock."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...core.feedback.on_demand_watermark import DownstreamReports, OnDemandWatermark, reports_below
from ...core.feedback.reports import FeedReport, read_feed_reports
from ...core.watermark.bounds import AFTER_ALL
from ...core.watermark.policies import FeedProgress, Policy
from ...storage.folder import folder_at
from ..runtime.ticks import TickSource


@dataclasses.dataclass
class SilentFeedPlanner:
    """The planner that starts a batch when promises of silent feeds would release something.

    Spark's own sources cannot produce a timestamp on demand. So a source beside them records the clock and the promises
    in its offset, and the input's shards take its messages as punctuation.
    """

    slots: tuple[int, ...]  # Spark's grouping number of each shard of the input
    reports: Callable[[], Sequence[FeedReport]]  # the last report on each feed
    downstream: DownstreamReports
    policy: Policy
    on_demand: OnDemandWatermark
    stopped: bool = False  # the run ends once it has read the available rows, and waits for no clock

    @classmethod
    def of(cls, slots: tuple[int, ...], options: Mapping[str, str]) -> SilentFeedPlanner:
        folder = options["feedback"]
        return cls(
            slots,
            lambda: read_feed_reports(folder),
            DownstreamReports(reports_below(folder_at(options["checkpoint"]))),
            Policy(**json.loads(options["policy"])),
            OnDemandWatermark(**json.loads(options["ondemand"])),
        )

    def initial(self) -> dict[str, Any]:
        return {"tick": 0, "now_us": 0, "promises": {}}

    def stop(self) -> None:
        """Promise nothing from now on."""
        self.stopped = True

    def plan(self, start: dict[str, Any], now_us: int) -> dict[str, Any]:
        """Return the offset with further promises; `start` if they would release nothing."""
        if self.stopped:
            return start
        reports = self.reports()
        now_us = max(now_us, start["now_us"])
        live = {each.feed: each for each in reports if each.progress is not None and each.bound != AFTER_ALL}
        progress = {feed: FeedProgress(self.policy, dict(each.progress or {})) for feed, each in live.items()}
        bounds = {feed: each.bound for feed, each in progress.items()}
        needs = self.downstream.needs(now_us, list(bounds.values()))
        heard = {feed: each.arrival_us for feed, each in live.items()}
        if not self.on_demand.enable(progress, heard, needs, now_us):
            return start
        promises = {feed: each.bound for feed, each in progress.items() if each.bound != bounds[feed]}
        return {"tick": start["tick"] + 1, "now_us": now_us, "promises": promises}

    def messages(self, offset: Mapping[str, Any]) -> list[tuple[int, str]]:
        """Return each shard's message with all promises; a shard takes those of its own feeds."""
        message = json.dumps({"promises": offset["promises"], "now_us": offset["now_us"]})
        return [(slot, message) for slot in self.slots] if offset["tick"] else []


class SilentFeedTicks(TickSource):
    """The ``upstream_silent_feeds`` format; made by the fluent stream, not by users."""

    @classmethod
    def name(cls) -> str:
        return "upstream_silent_feeds"

    def planner(self) -> SilentFeedPlanner:
        return SilentFeedPlanner.of(self.slots(), self.options)


def silent_feed_options(folder: str, policy: Policy, on_demand: OnDemandWatermark) -> dict[str, str]:
    """Return the options for :meth:`SilentFeedPlanner.of`; `folder` must be below the query's checkpoint."""
    return {
        "checkpoint": folder.rsplit("/upstream-feeds/", 1)[0],
        "policy": json.dumps(dataclasses.asdict(policy)),
        "ondemand": json.dumps(dataclasses.asdict(on_demand)),
    }
