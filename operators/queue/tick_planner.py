"""The plan of a queue's next batch, from the shards' reports."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...conf.units import parse_duration_us
from ...core.feedback.checkpoint_layout import queue_of
from ...core.feedback.control import (
    AUTO,
    CONTROL,
    SAMPLE,
    ControlReader,
    ControlRecord,
    QueueBudget,
    setting_in,
)
from ...core.feedback.reports import QueueReport, ServiceReport, read_reports
from ...storage.folder import folder_at
from ..runtime.ticks import TickSource
from .queue import ALL, LAST, Control

# What a batch of Spark costs at least, as a first guess.
_FIXED_S = 0.5


@dataclasses.dataclass(frozen=True)
class BatchCost:
    """An estimate of a batch's seconds, ``fixed + per_row * rows``, from decayed sums over the batches."""

    batches: float = 0.0
    fixed_s: float = 0.0  # seconds that do not depend on the rows
    rows: float = 0.0
    rows_s: float = 0.0  # seconds in which rows were flowing

    def seen(self, rows: int, seconds: float, rows_s: float | None = None, keep: float = 0.8) -> BatchCost:
        """Return the estimate after one more batch, which took `seconds` from its plan to the next batch's.

        In `rows_s` of them rows were flowing; None for all but the guessed least cost of a batch. `keep` is the factor
        of older batches. They are forgotten after a batch of more than twice or less than half of the predicted
        seconds.
        """
        if rows <= 0 or seconds <= 0:
            return self
        flowing = max(seconds - _FIXED_S, seconds / 2) if rows_s is None else min(max(rows_s, 0.0), seconds)
        if self.batches and not 0.5 < seconds / max(self.foretell(rows), 1e-9) < 2:
            keep = 0.0
        return BatchCost(
            keep * self.batches + 1,
            keep * self.fixed_s + seconds - flowing,
            keep * self.rows + rows,
            keep * self.rows_s + flowing,
        )

    @property
    def per_row(self) -> float:
        """Seconds for each further row; 0 if nothing is known."""
        return self.rows_s / self.rows if self.rows else 0.0

    @property
    def fixed(self) -> float:
        """Seconds of a batch without a row."""
        return self.fixed_s / self.batches if self.batches else 0.0

    def foretell(self, rows: int) -> float:
        """Predict the seconds that a batch of so many rows takes."""
        return self.fixed + self.per_row * rows

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def auto_budget(cost: BatchCost, last: int, pending: int, duration_s: float | None) -> int:
    """Return the next batch's budget in rows: at least 1, and from half to twice the last one.

    `duration_s` is the intended duration of a batch; None for the one with the least staleness. With n keys waiting,
    fixed cost f and c per row, a key is served every n/b batches of f + c·b seconds. Its result is visible when the
    batch ends, and then as old as the batch. So the mean staleness is ≈ (f + c·b) · (1 + n/(2b)), least at b =
    √(n·f/(2c)).
    """
    if not cost.batches:
        return last
    per_row = max(cost.per_row, 1e-9)
    if duration_s is None:
        wanted = min(math.sqrt(max(pending, 1) * cost.fixed / per_row / 2), max(pending, 1))
    else:
        wanted = (duration_s - cost.fixed) / per_row
        if wanted < 1:  # the fixed cost alone takes longer: as many rows as double it, or nothing would ever get done
            wanted = cost.fixed / per_row
    return max(1, round(min(max(wanted, last / 2), last * 2)))


def allot(budget: int | None, places: Sequence[Sequence[Sequence[int]]], shares: int) -> list[int | None]:
    """Divide a budget among shards so that the globally oldest places are served first.

    `places` has some ``[place, rows that wait up to it]`` for each shard, increasing. The result is exact at these
    places. Budget that no waiting row needs is divided evenly, for rows that arrive with the batch.
    """
    if budget is None:
        return [None] * shares
    marks = sorted((place, shard, count) for shard, each in enumerate(places) for place, count in each)
    given = [0] * shares
    total = 0
    for _, shard, count in marks:
        more = min(count - given[shard], budget - total)
        given[shard] += more
        total += more
        if total == budget:
            return list(given)
    spare = budget - total
    return [each + spare // shares + (number < spare % shares) for number, each in enumerate(given)]


def _rule_of_shard(rule: QueueBudget, shards: int) -> Mapping[str, int | str]:
    """Return the rule of a shard in batches without a tick; see :class:`Control`."""
    if rule.planned:
        return {}
    return {"budget": ALL if rule.rows is None else LAST if rule.auto else max(1, -(-rule.rows // shards))}


@dataclasses.dataclass
class QueuePlanner:
    """The planner of ticks."""

    slots: tuple[int, ...]  # the value by which each shard is grouped
    reports: Callable[[], list[QueueReport]]  # returns the last report of each shard
    served: Callable[[], list[ServiceReport]]  # returns the last reports of the tasks after the queue
    budget: int | None  # rows per batch, or the first one if `auto`; None for no limit
    auto: bool = False  # find the budget
    duration_s: float | None = None  # intended duration of a batch, for `auto`
    cost: str = AUTO  # the time of a row, pinned
    number: int = 0  # among the queues of the query
    reader: ControlReader | None = None

    @property
    def shards(self) -> int:
        return len(self.slots)

    @classmethod
    def of(cls, slots: tuple[int, ...], options: Mapping[str, str]) -> QueuePlanner:
        folder = options["feedback"]
        budget, duration = options.get("budget"), options.get("duration")
        mine = queue_of(folder)
        return cls(
            slots,
            lambda: read_reports(folder, QueueReport),
            lambda: read_reports(folder, ServiceReport),
            None if budget is None else int(budget),
            options.get("auto") == "true",
            None if duration is None else float(duration),
            options.get("cost", AUTO),
            0 if mine is None else mine[1],
            None if mine is None else ControlReader(folder_at(mine[0])),
        )

    def initial(self) -> dict[str, Any]:
        """Return the offset before the first tick."""
        return {
            "tick": 0,
            "now_us": 0,
            "budget": self.budget,
            **self._in_force(None),
            "queue": self.number,
            "cost": BatchCost().to_json(),
            "shares": [],
            "drop": 0.0,
        }

    def _rule(self, record: ControlRecord | None) -> QueueBudget:
        given = QueueBudget(self.budget, self.auto, self.duration_s)
        setting = setting_in(record, "budget")
        return given if setting is None else QueueBudget.parse(setting).instead_of(given)

    def _in_force(self, record: ControlRecord | None) -> dict[str, Any]:
        """Return the settings of a batch under the names of the attributes, for people."""
        return {
            "asked": self._rule(record).text,
            "assumed": setting_in(record, "cost") or self.cost,
            "sampled": setting_in(record, "sampleRate") or AUTO,
        }

    def _kept(self, record: ControlRecord) -> dict[str, Any]:
        """Return the settings of a shard in batches without a tick."""
        cost, rate = setting_in(record, "cost"), setting_in(record, "sampleRate")
        more: dict[str, Any] = {} if rate in (None, AUTO) else {"drop": 1 - float(rate)}
        if cost is not None:
            # A row costs a shard more by the factor `shards`, since all shards share the machine.
            more["cost_s"] = None if cost == AUTO else parse_duration_us(cost) / 1e6 * self.shards
        return {**_rule_of_shard(self._rule(record), self.shards), **more}

    def plan(self, start: dict[str, Any], now_us: int) -> dict[str, Any]:
        """Return the offset of the next tick; `start` if no row waits that may be served now, and no setting is new."""
        control: ControlRecord | None = start.get(CONTROL)
        if self.reader is not None:
            control = self.reader.record(f"queue/{self.number}", control, now_us)
        reports = self.reports()
        waiting = sum(report.waiting for report in reports)
        ready = [report.ready_at_us for report in reports if report.ready_at_us is not None]
        # A clock that jumps back stands still for the queue.
        now_us = max(now_us, start["now_us"], *(report.now_us for report in reports), 0)
        rule = self._rule(control)
        same = control == start.get(CONTROL) and rule.text == start["asked"]
        if same and (waiting == 0 or min(ready, default=0) > now_us):
            return start
        cost = BatchCost(**start["cost"])
        latest = max((report.now_us for report in reports), default=0)
        mine = [report for report in reports if report.now_us == latest]
        # Only a batch that this planner began, and that left rows waiting, lasted from its tick until now.
        if latest == start["now_us"]:
            applied = sum(report.applied for report in mine)
            cost = cost.seen(applied, (now_us - start["now_us"]) / 1e6, self._flowing(start["now_us"], now_us))
        budget = rule.rows
        if rule.auto and budget is not None:
            # Keys whose rows were shed are stale, too, though nothing of them waits.
            stale = max(waiting, sum(report.used for report in reports))
            budget = auto_budget(cost, start["budget"] or budget, stale, rule.duration_s)
        places: list[list[list[int]]] = [[] for _ in range(self.shards)]
        for report in reports:
            places[report.shard] = report.places
        arrived = sum(report.arrived for report in mine)
        rate = setting_in(control, "sampleRate")
        return {
            "tick": start["tick"] + 1,
            "now_us": now_us,
            "budget": budget,
            **self._in_force(control),
            "queue": self.number,
            **({} if control is None else {CONTROL: control, "kept": self._kept(control)}),
            "cost": cost.to_json(),
            "shares": allot(budget, places, self.shards),
            "drop": _drop(budget, waiting, arrived) if rate is None or rate == AUTO else 1 - float(rate),
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
        sample = setting_in(offset.get(CONTROL), SAMPLE)
        more = None if cost is None else cost * self.shards, offset["drop"], offset.get("kept"), sample
        return [Control(offset["now_us"], share, *more) for share in offset["shares"]]


class QueueTicks(TickSource):
    """The ``upstream_ticks`` format, for the fluent stream only."""

    @classmethod
    def name(cls) -> str:
        return "upstream_ticks"

    def planner(self) -> QueuePlanner:
        return QueuePlanner.of(self.slots(), self.options)


def _drop(budget: int | None, waiting: int, arrived: int) -> float:
    """Return the share of arrivals to shed, so that after this batch no more rows wait than the next one can take."""
    if budget is None or not arrived:
        return 0.0
    room = max(budget - max(waiting - budget, 0), 0)
    return max(0.0, 1.0 - room / arrived)
