"""Budgets of streams: how many rows a batch gives to readers of every row, from what earlier batches took."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

from ..conf.units import parse_duration_us
from ..core.feedback.control import NO_LIMIT
from ..core.feedback.lanes import LANE_FIGURES, StreamLanes, read_lanes, write_lanes
from ..core.feedback.reports import LeftOutFigures
from ..operators.queue.tick_planner import BatchCost
from ..storage.folder import TableFolder
from .command_source import seconds_for_results
from .host_plan import HostPlan
from .reports import HostTimes, part_reports

_LOG = logging.getLogger("upstream.queries")
_TOGETHER_S, _EVERY_ROW_S = 0.5, 0.1
"""Without a target, a batch with both kinds of readers lasts so long, and those of every row get so much at least. Were
it a share of the batch, then newest rows that take half of the time would come faster than they are read.
"""
_LEAST = 20_000
_NOTICED = 1.1
_INTERVAL_S = 1.0
"""The interval at which the reports of the stages are read: with thousands of queries they are long."""


class LaneBudgets:
    """The report of budgets to the sources' planners, below the checkpoint.

    It decides when rows are read and never which, so a lost or an old one does no harm. Budgets are in spans of ranges,
    at least the number of their rows.
    """

    def __init__(self, checkpoint: TableFolder) -> None:
        self._checkpoint = checkpoint
        self._lanes, more = read_lanes(checkpoint)
        self._cost = BatchCost(**more.get("cost", {}))
        self._seen: dict[str, int] = {}
        self._learned = float("-inf")
        self._left_out = LeftOutFigures("the report of the streams' budgets", checkpoint, _LOG)

    def take(self, batch: int, offsets: Iterable[object], plan: HostPlan, times: HostTimes) -> dict[int, int]:
        """Add a batch with the end offsets of its sources.

        Return the queries that lag, by incarnation, with the oldest arrival of the rows that they lack.
        """
        found = [each for each in offsets if isinstance(each, dict)]
        mine = {each[LANE_FIGURES]["stream"]: each for each in found if LANE_FIGURES in each}
        figures = {name: each[LANE_FIGURES] for name, each in mine.items()}
        # A source without new input has the offset of the batch before.
        ran = {name: figures[name] for name, each in mine.items() if self._seen.get(name) != each["batch"]}
        self._seen |= {name: each["batch"] for name, each in mine.items()}
        duration = next((each["batchDuration"] for each in found if "batchDuration" in each), NO_LIMIT)
        duration_s = None if duration == NO_LIMIT else parse_duration_us(duration) / 1e6
        lanes = {name: StreamLanes(*plan.readers(name)) for name in mine}
        budgets = self._budgets(batch, lanes, ran, plan, times, duration_s)
        now = {name: dataclasses.replace(each, budget=budgets.get(name)) for name, each in lanes.items()}
        if now.keys() != self._lanes.keys() or any(_differs(self._lanes[name], each) for name, each in now.items()):
            self._lanes = now
            self._left_out.attempt(lambda: write_lanes(self._checkpoint, now, {"cost": self._cost.to_json()}))
        return _lagging(plan, {name: each["since_us"] for name, each in figures.items() if each["owed"]})

    def _budgets(
        self, batch: int, lanes: Mapping[str, StreamLanes], ran: Mapping[str, Any], plan: HostPlan, times: HostTimes,
        duration_s: float | None,
    ) -> dict[str, int | None]:  # fmt: skip
        limited = [name for name, each in lanes.items() if each.every and (duration_s is not None or each.newest)]
        budgets = {name: self._lanes[name].budget if name in self._lanes else None for name in limited}
        used = {name: ran[name]["every"] for name in limited if name in ran and ran[name]["every"]}
        every, known = sum(used.values()), sum(budget or 0 for budget in budgets.values())
        full = any(ran[name]["owed"] or each >= (budgets[name] or 0) for name, each in used.items())
        long = times.committed_s > _NOTICED * (_TOGETHER_S if duration_s is None else duration_s)
        if not every or not (full or long or every >= known / 2):
            return budgets
        rows_s = None
        if any(each.newest and each.every for each in lanes.values()):
            newest = sum(each["newest"] for name, each in ran.items() if lanes[name].newest)
            rows_s = self._every_s(batch, plan, times, every / (every + newest))
            if rows_s is None:
                return budgets
        self._cost = self._cost.seen(every, times.committed_s, rows_s)
        # Less than half by far: a lag begins at twice the budget, so that batches of one size also get shorter.
        rows = min(max(self._seconds(duration_s) / max(self._cost.per_row, 1e-9), every / 4), every * 2)
        return {**budgets, **{name: max(_LEAST, round(rows * each / every)) for name, each in used.items()}}

    def _seconds(self, duration_s: float | None) -> float:
        """Return the seconds of a batch for readers of every row."""
        fixed_s = self._cost.fixed
        if duration_s is not None:
            return seconds_for_results(duration_s, fixed_s)
        return max(_TOGETHER_S - fixed_s, _EVERY_ROW_S)

    def _every_s(self, batch: int, plan: HostPlan, times: HostTimes, share: float) -> float | None:
        """Return the seconds that readers of every row took of a batch; None if too few shards have reported.

        `share` is theirs of the rows that were read.
        """
        now = time.monotonic()
        if now - self._learned < _INTERVAL_S:
            return None
        self._learned = now
        reports = [report for stage in part_reports(self._checkpoint) for report in stage]
        mine = [report for report in reports if report.batch == batch]
        if len(mine) * 2 < len(reports):
            return None
        parts = [part for report in mine for at, part in report.parts() if at == batch]
        clocks = {number: query.domain.clock for number, query in plan.queries.items()}
        waits = sum(part.spent_s for part in parts if any(clocks.get(each) == "event" for each in part.queries))
        spent_s, whole_s = sum(report.spent_s for report in mine), sum(part.spent_s for part in parts)
        running_s = (times.merged_s - times.started_s) * times.tasks
        evaluating_s = spent_s * (waits / whole_s if whole_s else share)
        return (evaluating_s + max(running_s - spent_s, 0.0) * share) / times.tasks


def _differs(before: StreamLanes, now: StreamLanes) -> bool:
    if before.budget is None or now.budget is None:
        return before != now
    low, high = sorted((before.budget, now.budget))
    return (before.newest, before.every) != (now.newest, now.every) or high > low * _NOTICED


def _lagging(plan: HostPlan, since: Mapping[str, int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for number, query in plan.queries.items():
        routes = (route for fragment in query.fragments for route in fragment.routes if not route.newest)
        ages = [since[route.stream.name] for route in routes if route.stream.name in since]
        if ages:
            found[number] = min(ages)
    return found
