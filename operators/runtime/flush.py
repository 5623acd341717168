"""Batches for rows that the low-watermark has released, and that had no room in the batch before."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

from ...conf.arguments import count_argument
from ...conf.errors import OptionError
from ...conf.session import register_data_source
from ...core.feedback.reorder_reports import ReorderReport
from ...core.feedback.report_files import read_reports
from ...core.feedback.window_reports import WindowReport
from .ticks import TickSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Flush", "FlushPlanner", "FlushSource", "flush_rows_each", "with_flush_ticks"]

Flush = Literal["eager", "slow"]
"""How rows are let go that the low-watermark has passed: all of them at once, or some in each batch."""

_REPORTS: Mapping[str, type[ReorderReport | WindowReport]] = {"reorder": ReorderReport, "windows": WindowReport}


@dataclasses.dataclass(frozen=True)
class FlushPlanner:
    """A tick is due while a shard reports that rows are.

    Attributes
    ----------
    folder : str
        Where the shards report.
    slots : tuple of int
        What each of them is grouped by.
    operator : str
        Whose reports they are: ``reorder`` or ``windows``.
    """

    folder: str
    slots: tuple[int, ...]
    operator: str = "reorder"

    def initial(self) -> dict[str, Any]:
        """Return the offset before the first tick."""
        return {"tick": 0, "slots": []}

    def plan(self, start: dict[str, Any], now_us: int) -> dict[str, Any]:
        """Return the offset of the next tick, with the shards it is for."""
        del now_us
        reports = read_reports(self.folder, _REPORTS[self.operator])
        due = [self.slots[report.shard] for report in reports if report.due]
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
        return FlushPlanner(self.options["folder"], self.slots(), self.options.get("operator", "reorder"))


def with_flush_ticks(packed: DataFrame, folder: str, slots: tuple[int, ...], operator: str) -> DataFrame:
    """Return frames, and ticks while a shard of the operator has rows to release.

    Parameters
    ----------
    packed
        The frames.
    folder, slots, operator
        As for :class:`FlushPlanner`.
    """
    session = packed.sparkSession
    register_data_source(session)
    session.dataSource.register(FlushSource)
    options = {"folder": folder, "slots": ",".join(map(str, slots)), "operator": operator}
    return packed.union(session.readStream.format("upstream_flush").options(**options).load())


def flush_rows_each(flush: str, rows: int | None, shards: int, among: object = Flush) -> int | None:
    """Return how many rows each shard may release in a batch; None for all.

    Parameters
    ----------
    flush, rows, shards
        As the user gave them.
    among
        The literal type of which `flush` is a value.

    Raises
    ------
    OptionError
        The two do not go together, or there are more shards than rows.
    """
    count_argument("shards", shards)
    if flush not in get_args(among):
        more = ", or 'lazy', each as its key's next rows come" if "lazy" in get_args(among) else ""
        raise OptionError(
            f"flush={flush!r}", expected=f"'eager', all that may go at once, or 'slow', flush_rows in a batch{more}"
        )
    if (flush == "slow") != (rows is not None):
        raise OptionError(
            f"flush={flush!r} with flush_rows={rows}",
            expected="flush='slow' and how many rows a batch releases, or neither",
        )
    if rows is None:
        return None
    if count_argument("flush_rows", rows) < shards:
        raise OptionError(
            f"flush_rows={rows} for {shards} shards", expected="at least one row for each", hint="take fewer shards"
        )
    return rows // shards
