"""The source of commands, which starts a batch if the registry changed, results wait, or a query is behind."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ...core.feedback.checkpoint_layout import stage_folder
from ...core.feedback.report_files import read_reports
from ...core.feedback.stage_reports import StageReport
from ...operators.runtime.ticks import TickPlanner, TickSource
from ...storage.folder import folder_at
from ..registry.journal import Journal
from ..registry.state import State
from .commands import TICK, offset_of
from .reports import HostReport, Reports
from .serving import next_served

__all__ = ["BATCH_S", "CHECKPOINT", "CommandPlanner", "CommandSource"]

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

    `batch_s` is the target duration of a batch in seconds; None for no limit.
    """

    def __init__(self, checkpoint: str, slots: tuple[int, ...], batch_s: float | None = None) -> None:
        self._checkpoint = checkpoint
        self._slots = slots
        self._journal = Journal(checkpoint)
        self._asked = float("-inf")
        self._known = 0
        self._fixed = False
        self._batch_s = batch_s
        self._reports = Reports(folder_at(checkpoint))
        self._state = State()
        self._idle: HostReport | None = None
        self._stages = [folder_at(stage_folder(checkpoint, number)) for number in range(2)]
        self._behind = False
        self._looked = float("-inf")

    def initial(self) -> dict[str, Any]:
        """Return the offset before the first batch; its version -1 means no registry, not even an empty one."""
        return offset_of(self._checkpoint, -1)

    def plan(self, start: dict[str, Any], now_us: int) -> dict[str, Any]:
        """Return the offset of the next command; `start` if none is due."""
        version = max(self._version(), start["version"])
        if self._batch_s is None:
            # Results of an earlier run may still wait.
            ticks, served = start["served"] is not None, None
        else:
            ticks, served = self._served(start, version, self._batch_s, now_us)
        ticks = ticks or self._is_behind()
        if not ticks and version == start["version"]:
            return start
        return {**start, **offset_of(self._checkpoint, version, start["tick"] + ticks, served)}

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
        weights = self._weights(version)
        served = next_served(weights, report, batch_s, now_us)
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

    def _weights(self, version: int) -> dict[int, float]:
        if self._state.version != version:
            state = self._state if self._state.version < version else State()
            self._state = state.after(self._journal.read(range(state.version + 1, version + 1)))
        return {each.id: each.weight for each in self._state.entries.values() if each.active}

    def _version(self) -> int:
        now = time.monotonic()
        # A disk is read each time, because processAllAvailable has to see all earlier changes.
        if not self._fixed and (self._journal.is_local or now - self._asked >= _EVERY_S):
            self._known, self._asked = self._journal.version(), now
        return self._known
