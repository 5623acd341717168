"""The source of commands, which starts a batch if the registry changed, results wait, or a query is behind."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Iterable, Mapping
from typing import Any

from ..conf.units import length_text, parse_duration_us
from ..core.feedback.checkpoint_layout import query_queue_folder, stage_folder
from ..core.feedback.control import (
    AUTO,
    CONTROL,
    JOB,
    NO_LIMIT,
    ControlReader,
    ControlRecord,
    QueueBudget,
    setting_in,
    taken_with,
)
from ..core.feedback.reports import QueueReport, ServiceReport, StageReport, read_reports
from ..operators.queue.tick_planner import QueuePlanner
from ..operators.runtime.ticks import TickPlanner, TickSource
from ..storage.folder import folder_at
from .journal import Journal
from .messages import PAUSED, QUEUES, TICK, offset_of
from .registry import RegisteredQuery, RegistryTexts
from .reports import HostReport, QueryReport, Reports

# With a cost c and a weight w, a query that is served every T seconds adds w·T/2 to the weighted staleness and takes
# c/T of the time. The least sum has T proportional to √(c/w). The sum is flat around it: with (c/w)^(2/3) it is 1 %
# greater for weights of 1 and 4, and a weight of 4 makes results 0.4 times as stale instead of half. The fixed time
# of a batch adds equally to all queries and would hide a part of the smaller difference; so the power is 2/3.
#
# Serving the queries with the greatest w·a^(3/2)/c needs no plan ahead, where a is the age of the oldest row behind
# results that wait. A query is served when that reaches some λ, so its age is then (λ·c/w)^(2/3).
_POWER = 1.5
_LEAST_SHARE = 0.05
_PROBABLY = 0.5
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A query whose results the next batch may emit."""

    number: int  # the incarnation
    weight: float
    age_s: float  # age of the oldest row that its table lacks
    cost_s: float  # seconds by which its results make a batch longer
    likely: float = 1.0  # probability of results in a batch, from 0 to 1
    urgent: bool = False  # served at any cost

    @property
    def expected_s(self) -> float:
        return self.cost_s * self.likely

    @property
    def gain(self) -> float:
        """The value of serving it, per second."""
        return self.weight * max(self.age_s, 0.0) ** _POWER / max(self.cost_s, _ROUNDING)


def chosen(candidates: Iterable[Candidate], seconds: float) -> frozenset[int]:
    """Return the urgent queries, and by gain all others that fit into `seconds`: the first always, to have its turn."""
    every = list(candidates)
    urgent = [each for each in every if each.urgent]
    served = {each.number for each in urgent}
    spent = sum(each.expected_s for each in urgent)
    others = sorted((each for each in every if not each.urgent), key=lambda each: (-each.gain, each.number))
    first = next((each.number for each in others if each.likely >= _PROBABLY), None)
    for each in others:
        if each.number == first or spent + each.expected_s <= seconds + _ROUNDING:
            served.add(each.number)
            spent += each.expected_s
    return frozenset(served)


def seconds_for_results(duration_s: float, fixed_s: float) -> float:
    """Return a batch's seconds for results: at least a twentieth of the others, or hardly any would be emitted."""
    return max(duration_s - fixed_s, fixed_s * _LEAST_SHARE)


def next_served(
    weights: Mapping[int, float], report: HostReport, duration_s: float, now_us: int
) -> frozenset[int] | None:
    """Return the queries that the next batch serves; None for all.

    `weights` has the active queries by incarnation, and `duration_s` is a batch's target duration. A query that has not
    begun is always served, so its table begins with its rows.
    """
    known = [each.cost_s for number in weights if (each := report.queries.get(number)) and each.cost_s is not None]
    guess = sum(known) / len(known) if known else 0.0
    candidates = [
        _candidate(number, weight, report.queries.get(number), guess, report.batch_s, now_us)
        for number, weight in weights.items()
    ]
    served = chosen(candidates, seconds_for_results(duration_s, report.fixed_s))
    return None if len(served) == len(candidates) else served


def _candidate(
    number: int, weight: float, report: QueryReport | None, guess: float, batch_s: float, now_us: int
) -> Candidate:
    if report is None or not report.begun:
        return Candidate(number, weight, 0.0, guess, likely=0.0, urgent=True)
    cost_s = guess if report.cost_s is None else report.cost_s
    if report.waiting_since_us is None:
        # Its rows came during the last batch.
        return Candidate(number, weight, batch_s, cost_s, report.likely)
    return Candidate(number, weight, (now_us - report.waiting_since_us) / 1e6, cost_s)


CHECKPOINT = "checkpoint"
"""Option: the query's checkpoint. The option ``slots`` also exists."""
BATCH_S = "batchSeconds"
"""Option: the target duration of a batch. Without it, each batch emits all results."""

_EVERY_S = 1.0
"""Interval at which changes in an object store, and the stages' reports, are read. While no rows come, Spark calls a
source many times a second.
"""


class CommandSource(TickSource):
    """The ``upstream_query_commands`` format, used only by the host of the queries.

    Its offset is a batch's whole command. While nothing is due, the offset does not change and Spark starts no batch.
    """

    @classmethod
    def name(cls) -> str:
        return "upstream_query_commands"

    def planner(self) -> TickPlanner:
        batch_s = self.options.get(BATCH_S)
        return CommandPlanner(self.options[CHECKPOINT], self.slots(), None if batch_s is None else float(batch_s))


class CommandPlanner:
    """Plans commands from the registry's journal and the reports of waiting results.

    `batch_s` is the target duration of a batch in seconds, unless a control has another; None for no limit.
    """

    def __init__(self, checkpoint: str, slots: tuple[int, ...], batch_s: float | None = None) -> None:
        self._checkpoint = checkpoint
        self._slots = slots
        self._journal = Journal(checkpoint)
        self._asked = float("-inf")
        self._known = 0
        self._fixed = False
        self._batch_s = batch_s
        self._controls = ControlReader(folder_at(checkpoint))
        self._reports = Reports(folder_at(checkpoint))
        self._state = RegistryTexts()
        self._idle: HostReport | None = None
        self._stages = [folder_at(stage_folder(checkpoint, number)) for number in range(2)]
        self._behind = False
        self._looked = float("-inf")

    def initial(self) -> dict[str, Any]:
        """Return the offset before the first batch; its version -1 means no registry, not even an empty one."""
        return {**offset_of(self._checkpoint, -1), **_in_force(self._batch_s)}

    def plan(self, start: dict[str, Any], now_us: int) -> dict[str, Any]:
        """Return the offset of the next command; `start` if none is due."""
        version = max(self._version(), start["version"])
        control: ControlRecord | None = self._controls.record(JOB, start.get(CONTROL), now_us)
        batch_s = self._duration_s(control)
        if control != start.get(CONTROL):
            self._idle = None
        if batch_s is None:
            # Results of an earlier run may still wait.
            ticks, served = start["served"] is not None, None
        else:
            ticks, served = self._served(start, version, batch_s, now_us)
        ticks = ticks or self._is_behind()
        queues = start.get(QUEUES, {})
        if queues or version > start["version"]:
            queues = self._queues(queues, version, now_us)
        ticks = ticks or queues != start.get(QUEUES, {})
        if not ticks and version == start["version"] and control == start.get(CONTROL):
            return start
        offset = offset_of(self._checkpoint, version, start["tick"] + ticks, served)
        command = {**start, **offset, **_in_force(batch_s), **({} if control is None else {CONTROL: control})}
        command |= {QUEUES: queues} if queues or QUEUES in start else {}
        if version > start["version"]:
            command["taken"] = taken_with(start.get("taken", ()), version, folder_at(self._checkpoint), now_us)
        return command

    def _duration_s(self, control: ControlRecord | None) -> float | None:
        setting = setting_in(control, "batchDuration")
        if setting is None:
            return self._batch_s
        return None if setting == NO_LIMIT else parse_duration_us(setting) / 1e6

    def stop(self) -> None:
        """Fix the version: all later batches of this run use the current one."""
        self._known, self._fixed = self._journal.version(), True

    def messages(self, offset: Mapping[str, Any]) -> list[tuple[int, str]]:
        """Return a tick for each shard of the first stage, so that each runs in the batch."""
        del offset
        return [(slot, TICK) for slot in self._slots]

    def _served(
        self, start: dict[str, Any], version: int, batch_s: float, now_us: int
    ) -> tuple[bool, frozenset[int] | None]:
        """Return whether a batch is needed for waiting results, and the queries that it serves (None for all)."""
        report = self._reports.host()
        if report is self._idle and version == start["version"]:
            return False, None
        # A queue limits its query's results: they never wait.
        running = self._running(version)
        weights = {each.id: each.weight for each in running if each.active and not each.queue}
        served = next_served(weights, report, batch_s, now_us)
        served = None if served is None else served | {each.id for each in running if each.queue}
        waiting = (number for number, each in report.queries.items() if each.waiting_since_us is not None)
        # After a batch that emitted all results, the next one would emit all, too.
        ticks = any(number in weights for number in waiting) or (start["served"] is None and served is not None)
        self._idle = None if ticks else report
        return ticks, served

    def _is_behind(self) -> bool:
        """Return whether an evaluation lags behind its low-watermark, as in :class:`StageReport`."""
        now = time.monotonic()
        if self._fixed or self._behind or now - self._looked >= _EVERY_S:
            reports = (report for folder in self._stages for report in read_reports(folder, StageReport))
            self._behind, self._looked = any(report.behind for report in reports), now
        return self._behind

    def _queues(self, start: Mapping[str, Any], version: int, now_us: int) -> dict[str, Any]:
        """Return the offsets of the next ticks of the queues; as they are for those in which no row may be served.

        The tick that pauses a queue ends its last batch, so the pause does not count as the batch's duration.
        """
        planned: dict[str, Any] = {}
        for each in self._running(version):
            if not each.queue:
                continue
            rule = QueueBudget.parse(each.queue.get("budget", AUTO))
            folder = query_queue_folder(self._checkpoint, each.id)
            planner = QueuePlanner(
                self._slots, functools.partial(read_reports, folder, QueueReport),
                functools.partial(read_reports, folder, ServiceReport), *rule[:3],
            )  # fmt: skip
            before = start.get(str(each.id)) or planner.initial()
            if each.active:
                awake = {name: value for name, value in before.items() if name != PAUSED}
                planned[str(each.id)] = planner.plan(awake, now_us)
                continue
            rest = {"now_us": max(now_us, before["now_us"]), "shares": [0] * len(self._slots), PAUSED: True}
            planned[str(each.id)] = before if PAUSED in before else {**before, "tick": before["tick"] + 1, **rest}
        return planned

    def _running(self, version: int) -> list[RegisteredQuery]:
        if self._state.version != version:
            state = self._state if self._state.version < version else RegistryTexts()
            self._state = state.after(self._journal.read(range(state.version + 1, version + 1)))
        return [each for each in self._state.entries.values() if each.runs]

    def _version(self) -> int:
        now = time.monotonic()
        # A disk is read each time, because processAllAvailable has to see all earlier changes.
        if not self._fixed and (self._journal.is_local or now - self._asked >= _EVERY_S):
            self._known, self._asked = self._journal.version(), now
        return self._known


def _in_force(batch_s: float | None) -> dict[str, Any]:
    """Return the setting of a batch under the name of its attribute, for people."""
    return {"batchDuration": NO_LIMIT if batch_s is None else length_text(round(batch_s * 1e6))}
