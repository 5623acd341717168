"""Ticks: a source that starts a batch while rows wait in an operator's shards, and sends each shard a message.

The offset holds everything that the messages consist of, so a replayed batch repeats them. While nothing is due, the
offset does not change and Spark starts no batch.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, get_args

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from ...conf.errors import OptionError
from ...conf.options import count_argument
from ...conf.session import register_data_source
from ...conf.units import now_us
from ...core.feedback.reports import OperatorReport, read_reports
from .pack import PACKED_DDL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


class TickPlanner(Protocol):
    """A decision when a tick is due, and with which message for each shard."""

    def initial(self) -> dict[str, Any]: ...

    def plan(self, start: dict[str, Any], now_us: int) -> dict[str, Any]:
        """Return the offset of the next tick; `start` if none is due."""
        ...

    def messages(self, offset: Mapping[str, Any]) -> list[tuple[int, str]]:
        """Return the messages of an offset's tick: a shard's slot, and a text."""
        ...


class TickSource(DataSource):
    """A format for an operator that needs ticks. Operators create it; users do not."""

    @abstractmethod
    def planner(self) -> TickPlanner:
        """Return the planner that the options describe."""

    def slots(self) -> tuple[int, ...]:
        return tuple(int(slot) for slot in self.options["slots"].split(","))

    def schema(self) -> StructType | str:
        return PACKED_DDL

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        del schema
        return TickReader(self.planner())


class TickReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark's adapter for a planner."""

    def __init__(self, planner: TickPlanner) -> None:
        self._planner = planner

    def initialOffset(self) -> dict[str, Any]:
        return self._planner.initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        del limit
        return self._planner.plan(start, now_us())

    def prepareForTriggerAvailableNow(self) -> None:
        """Release waiting rows as with any trigger. A planner that waits for the clock stops."""
        stop = getattr(self._planner, "stop", None)
        if stop is not None:
            stop()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        del start
        return [_Tick(end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        messages = self._planner.messages(cast("_Tick", partition).offset)
        slots = pa.array([slot for slot, _ in messages], pa.int32())
        text = pa.array([words for _, words in messages], pa.string())
        yield pa.RecordBatch.from_arrays(
            [slots, pa.nulls(len(messages), pa.binary()), text], ["slot", "frame", "control"]
        )


class _Tick(InputPartition):
    def __init__(self, offset: dict[str, Any]) -> None:
        super().__init__(0)
        self.offset = offset


Flush = Literal["eager", "slow"]
"""The release of rows that the low-watermark has passed: all of them at once, or some in each batch."""


@dataclasses.dataclass(frozen=True)
class FlushPlanner:
    """A planner whose tick is due while a shard reports rows to release."""

    slots: tuple[int, ...]
    reports: Callable[[], Sequence[OperatorReport]]  # the last report of each shard

    def initial(self) -> dict[str, Any]:
        return {"tick": 0, "slots": []}

    def plan(self, start: dict[str, Any], now_us: int) -> dict[str, Any]:
        """Return the offset of the next tick, with the slots of its shards."""
        del now_us
        due = [self.slots[report.shard] for report in self.reports() if report.due]
        return {"tick": start["tick"] + 1, "slots": due} if due else start

    def messages(self, offset: Mapping[str, Any]) -> list[tuple[int, str]]:
        return [(slot, "flush") for slot in offset["slots"]]


class FlushSource(TickSource):
    """The ``upstream_flush`` format. Operators create it; users do not."""

    @classmethod
    def name(cls) -> str:
        return "upstream_flush"

    def planner(self) -> FlushPlanner:
        folder = self.options["feedback"]
        return FlushPlanner(self.slots(), lambda: read_reports(folder, OperatorReport))


def with_ticks(
    packed: DataFrame, source: type[TickSource], folder: str, slots: Sequence[int], options: Mapping[str, str]
) -> DataFrame:
    """Add the messages of a source of ticks, which plans them by the shards' reports in `folder`, to the frames."""
    session = packed.sparkSession
    register_data_source(session)
    session.dataSource.register(source)
    given = {**options, "feedback": folder, "slots": ",".join(map(str, slots))}
    return packed.union(session.readStream.format(source.name()).options(**given).load())


def flush_rows_each(flush: str, rows: int | None, shards: int, among: object = Flush) -> int | None:
    """Return the rows that a shard may release in a batch, None for all; refuse unfit `flush`, `rows` and `shards`."""
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
