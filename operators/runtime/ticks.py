"""Ticks: a source that starts a batch while rows wait in an operator's shards, and sends each shard a message.

The offset holds everything that the messages consist of, so a replayed batch repeats them. While nothing is due, the
offset does not change and Spark starts no batch.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from ...conf.clock import now_us
from .pack import PACKED_DDL

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["TickPlanner", "TickReader", "TickSource"]


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
