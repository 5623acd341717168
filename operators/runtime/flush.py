"""Batches for rows that the low-watermark has released but that exceeded the last batch's limit."""

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
"""The release of rows that the low-watermark has passed: all of them at once, or some in each batch."""

_REPORTS: Mapping[str, type[ReorderReport | WindowReport]] = {"reorder": ReorderReport, "windows": WindowReport}


@dataclasses.dataclass(frozen=True)
class FlushPlanner:
    """A planner whose tick is due while a shard reports rows to release."""

    folder: str  # where the shards report
    slots: tuple[int, ...]
    operator: str = "reorder"  # whose reports they are: reorder or windows

    def initial(self) -> dict[str, Any]:
        return {"tick": 0, "slots": []}

    def plan(self, start: dict[str, Any], now_us: int) -> dict[str, Any]:
        """Return the offset of the next tick, with the slots of its shards."""
        del now_us
        reports = read_reports(self.folder, _REPORTS[self.operator])
        due = [self.slots[report.shard] for report in reports if report.due]
        return {"tick": start["tick"] + 1, "slots": due} if due else start

    def messages(self, offset: Mapping[str, Any]) -> list[tuple[int, str]]:
        return [(slot, "flush") for slot in offset["slots"]]


class FlushSource(TickSource):
    """The ``upstream_flush`` format. Operators create it; users do not."""

    @classmethod
    def name(cls) -> str:
        return "upstream_flush"

    def planner(self) -> FlushPlanner:
        return FlushPlanner(self.options["folder"], self.slots(), self.options.get("operator", "reorder"))


def with_flush_ticks(packed: DataFrame, folder: str, slots: tuple[int, ...], operator: str) -> DataFrame:
    """Add ticks to the frames while a shard of the operator has rows to release."""
    session = packed.sparkSession
    register_data_source(session)
    session.dataSource.register(FlushSource)
    options = {"folder": folder, "slots": ",".join(map(str, slots)), "operator": operator}
    return packed.union(session.readStream.format("upstream_flush").options(**options).load())


def flush_rows_each(flush: str, rows: int | None, shards: int, among: object = Flush) -> int | None:
    """Return how many rows each shard may release in a batch; None for all.

    `among` is the literal type of valid values of `flush`. Raise OptionError if `flush` and `rows` do not fit together,
    or if there are more shards than rows.
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
