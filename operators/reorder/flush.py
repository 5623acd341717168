"""Batches for rows that the low-watermark has released, and that had no room in the batch before."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ...core.feedback.reorder_reports import ReorderReport
from ...core.feedback.report_files import read_reports
from ..runtime.ticks import TickSource

__all__ = ["FlushPlanner", "FlushSource"]


@dataclasses.dataclass(frozen=True)
class FlushPlanner:
    """A tick is due while a shard reports that rows are.

    Attributes
    ----------
    folder : str
        Where the shards report.
    slots : tuple of int
        What each of them is grouped by.
    """

    folder: str
    slots: tuple[int, ...]

    def initial(self) -> dict[str, Any]:
        """Return the offset before the first tick."""
        return {"tick": 0, "slots": []}

    def plan(self, start: dict[str, Any], now_us: int) -> dict[str, Any]:
        """Return the offset of the next tick, with the shards it is for."""
        del now_us
        due = [self.slots[report.shard] for report in read_reports(self.folder, ReorderReport) if report.due]
        return {"tick": start["tick"] + 1, "slots": due} if due else start

    def messages(self, offset: Mapping[str, Any]) -> list[tuple[int, str]]:
        """Return a message for each shard that has rows to release."""
        return [(slot, "flush") for slot in offset["slots"]]


class FlushSource(TickSource):
    """The ``upstream_flush`` format; made by the fluent stream, not by users."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "upstream_flush"

    def planner(self) -> FlushPlanner:
        """See :class:`TickSource`."""
        return FlushPlanner(self.options["folder"], self.slots())
