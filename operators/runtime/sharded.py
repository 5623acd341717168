"""Sharded operators whose consumer is not chosen yet."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from ...core.pushdown.source_steps import ArrowStep
from .arrow_steps import chained, map_in_arrow
from .pack import FRAME_DDL, frames_to_rows, in_batches, rows_to_frame
from .shard_processor import Next, ShardProcessor, SparkShards

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = ["InShards"]


@dataclasses.dataclass(frozen=True)
class InShards:
    """The rows of an operator in shards, or of several operators in one stage.

    Spark takes a shard's output row by row, so rows leave it in frames, which another Python worker unpacks. Steps with
    a few large results, such as the sink's, run in the shard's own worker instead: see docs/decisions/0004.
    """

    rows: pa.Schema  # the schema of the output
    packed: DataFrame  # frames and controls for the first operator, by slot
    slots: tuple[int, ...]
    first: ShardProcessor
    others: tuple[Next, ...] = ()  # the following operators of the same stage

    def with_next(
        self,
        steps: Sequence[ArrowStep],
        pack: Callable[[int], ArrowStep],
        processor: ShardProcessor,
        rows: pa.Schema,
    ) -> InShards:
        """Add an operator to the same stage. Its shards have the same keys, so rows stay in their worker.

        `steps` run between the two operators. `pack` returns the step from the rows after them to frames for a slot.
        `rows` is the schema of the new operator's output.
        """
        given = self.rows

        def frames(slot: int) -> ArrowStep:
            return chained((_as(given), *steps, pack(slot)))

        return dataclasses.replace(self, rows=rows, others=(*self.others, Next(frames, processor)))

    def df(self, steps: Sequence[ArrowStep], schema: StructType) -> DataFrame:
        return map_in_arrow(
            self._running(rows_to_frame, FRAME_DDL), chained((frames_to_rows(self.rows), *steps)), schema
        )

    def few(self, steps: Sequence[ArrowStep], schema: StructType) -> DataFrame:
        """Run the steps in the shards' own workers; the last step must leave only a few large values."""
        return self._running(chained((_as(self.rows), *steps)), schema)

    def _running(self, leaving: ArrowStep, leaving_as: StructType | str) -> DataFrame:
        shards = SparkShards(self.slots, self.first, self.others, leaving)
        return self.packed.groupBy("slot").transformWithState(shards, leaving_as, "append", "none")


def _as(schema: pa.Schema) -> ArrowStep:
    """Return a step that casts rows to the schema that the steps after an operator expect."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from in_batches(pa.Table.from_batches([batch]), schema)

    return run
