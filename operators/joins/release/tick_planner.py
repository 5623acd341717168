"""The choice of the way to the order of time, from batch to batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....core.feedback.reports import JoinReport, read_reports
from ...runtime.ticks import TickSource
from .choice import ReleasePlan, choose, load_of


@dataclasses.dataclass
class MeasuredCost:
    """The cost of comparing two rows: c of §4.1."""

    seconds: float = 0.0  # of all batches, each of which counts half as much as the next
    comparisons: float = 0.0  # likewise
    batch_id: int = -1  # the last batch that counts

    def see(self, reports: Sequence[JoinReport]) -> None:
        """Count the last batch, once."""
        last = max((each.batch_id for each in reports), default=-1)
        mine = [each for each in reports if each.batch_id == last and each.comparisons]
        if last <= self.batch_id or not mine:
            return
        self.batch_id = last
        self.seconds = self.seconds / 2 + sum(each.spent_s for each in mine)
        self.comparisons = self.comparisons / 2 + sum(each.comparisons for each in mine)

    @property
    def each_s(self) -> float | None:
        """Seconds to compare two rows; None before any were compared."""
        return self.seconds / self.comparisons if self.comparisons else None


@dataclasses.dataclass
class ReleasePlanner:
    """The planner that starts a batch when another mode is worth it.

    The choice is in the offset of an input of its own, so a rerun of a batch makes the same one.
    """

    slots: tuple[int, ...]  # Spark's grouping number of each shard
    reports: Callable[[], list[JoinReport]]  # the last report of each shard
    choice: ReleasePlan
    # of this run: after a restart, the cost of the last choice counts until a batch is measured
    measured: MeasuredCost = dataclasses.field(default_factory=MeasuredCost)

    @classmethod
    def of(cls, slots: tuple[int, ...], options: Mapping[str, str]) -> ReleasePlanner:
        folder, cost = options["feedback"], options.get("cost")
        plan = ReleasePlan(
            "adaptive", None if cost is None else float(cost), float(options["alpha"]), float(options["window"])
        )
        return cls(slots, lambda: read_reports(folder, JoinReport), plan)

    def initial(self) -> dict[str, Any]:
        """Return the offset before the first choice: rows are ordered, as in §6."""
        return {"tick": 0, "now_us": 0, "mode": self.choice.first, "cost": None, "load": 0.0}

    def plan(self, start: dict[str, Any], now_us: int) -> dict[str, Any]:
        """Return the offset of another choice; `start` if it stays as it is."""
        reports = self.reports()
        self.measured.see(reports)
        plan = self.choice
        cost = plan.cost_s
        if cost is None:
            cost = self.measured.each_s
        if cost is None:
            cost = start["cost"]
        if cost is None or plan.window_s is None:
            return start
        load = load_of(cost, plan.window_s, [(each.rates[0], each.rates[1]) for each in reports if each.rates])
        mode = choose(load, plan.alpha)
        if mode == start["mode"]:
            return start
        now_us = max(now_us, start["now_us"])
        return {"tick": start["tick"] + 1, "now_us": now_us, "mode": mode, "cost": cost, "load": load}

    def messages(self, offset: Mapping[str, Any]) -> list[tuple[int, str]]:
        """Return the choice for each shard; nothing for the offset before the first one."""
        return [(slot, offset["mode"]) for slot in self.slots] if offset["tick"] else []


class ReleaseTicks(TickSource):
    """The ``upstream_release`` format; made by the fluent stream, not by users."""

    @classmethod
    def name(cls) -> str:
        return "upstream_release"

    def planner(self) -> ReleasePlanner:
        return ReleasePlanner.of(self.slots(), self.options)
