"""The plan of a queue's next batch, from the shards' reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from ...core.feedback.queue_reports import QueueReport, Served
from ...core.feedback.report_files import read_reports
from ..runtime.ticks import TickSource
from .budget import BatchCost, allot, auto_budget
from .control import Control

__all__ = ["Planner", "QueueTicks"]


@dataclasses.dataclass
class Planner:
    """The planner of ticks."""

    slots: tuple[int, ...]  # the value by which each shard is grouped
    reports: Callable[[], list[QueueReport]]  # returns the last report of each shard
    served: Callable[[], list[Served]]  # returns the last reports of the tasks after the queue
    budget: int | None  # rows per batch, or the first one if `auto`; None for no limit
    auto: bool = False  # find the budget
    duration_s: float | None = None  # intended duration of a batch, for `auto`
    cost_s: float | None = None  # seconds per row, pinned

    @property
    def shards(self) -> int:
        return len(self.slots)

    @classmethod
    def of(cls, slots: tuple[int, ...], options: Mapping[str, str]) -> Planner:
        folder = options["feedback"]
        budget, duration, cost = options.get("budget"), options.get("duration"), options.get("cost")
        return cls(
            slots,
            lambda: read_reports(folder, QueueReport),
            lambda: read_reports(folder, Served),
            None if budget is None else int(budget),
            options.get("auto") == "true",
            None if duration is None else float(duration),
            None if cost is None else float(cost),
        )

    def initial(self) -> dict[str, Any]:
        """Return the offset before the first tick."""
        return {"tick": 0, "now_us": 0, "budget": self.budget, "cost": BatchCost().to_json(), "shares": [], "drop": 0.0}

    def plan(self, start: dict[str, Any], now_us: int) -> dict[str, Any]:
        """Return the offset of the next tick; `start` if no row waits that may be served now."""
        reports = self.reports()
        waiting = sum(report.waiting for report in reports)
        ready = [report.ready_at_us for report in reports if report.ready_at_us is not None]
        # A clock that jumps back stands still for the queue.
        now_us = max(now_us, start["now_us"], *(report.now_us for report in reports), 0)
        if waiting == 0 or min(ready, default=0) > now_us:
            return start
        cost = BatchCost(**start["cost"])
        latest = max(report.now_us for report in reports)
        mine = [report for report in reports if report.now_us == latest]
        # Only a batch that this planner began, and that left rows waiting, lasted from its tick until now.
        if latest == start["now_us"]:
            delivered = sum(report.delivered for report in mine)
            cost = cost.seen(delivered, (now_us - start["now_us"]) / 1e6, self._flowing(start["now_us"], now_us))
        budget = self.budget
        if self.auto and budget is not None:
            # Keys whose rows were shed are stale, too, though nothing of them waits.
            stale = max(waiting, sum(report.used for report in reports))
            budget = auto_budget(cost, start["budget"] or budget, stale, self.duration_s)
        places: list[list[list[int]]] = [[] for _ in range(self.shards)]
        for report in reports:
            places[report.shard] = report.places
        arrived = sum(report.arrived for report in mine)
        return {
            "tick": start["tick"] + 1,
            "now_us": now_us,
            "budget": budget,
            "cost": cost.to_json(),
            "shares": allot(budget, places, self.shards),
            "drop": _drop(budget, waiting, arrived),
        }

    def _flowing(self, began_us: int, now_us: int) -> float | None:
        """Return the seconds of the last batch in which its rows passed through the steps after the queue."""
        seen = [each for each in self.served() if each.rows and began_us <= each.began_us <= now_us]
        if not seen:
            return None
        return (max(each.ended_us for each in seen) - min(each.began_us for each in seen)) / 1e6

    def messages(self, offset: Mapping[str, Any]) -> list[tuple[int, str]]:
        """Return the controls of a tick, each with its shard's slot; none for the offset before the first tick."""
        controls = self.controls(offset)
        return [(slot, control.to_json()) for slot, control in zip(self.slots, controls, strict=False)]

    def controls(self, offset: Mapping[str, Any]) -> list[Control]:
        """Return a tick's control for each shard.

        A row costs a shard more by the factor `shards`, since all shards share the machine.
        """
        cost = BatchCost(**offset["cost"]).per_row or None
        cost = self.cost_s if self.cost_s is not None else cost
        per_shard = None if cost is None else cost * self.shards
        return [Control(offset["now_us"], share, per_shard, offset["drop"]) for share in offset["shares"]]


class QueueTicks(TickSource):
    """The ``upstream_ticks`` format, for the fluent stream only."""

    @classmethod
    def name(cls) -> str:
        return "upstream_ticks"

    def planner(self) -> Planner:
        return Planner.of(self.slots(), self.options)


def _drop(budget: int | None, waiting: int, arrived: int) -> float:
    """Return the share of arrivals to shed, so that after this batch no more rows wait than the next one can take."""
    if budget is None or not arrived:
        return 0.0
    room = max(budget - max(waiting - budget, 0), 0)
    return max(0.0, 1.0 - room / arrived)
