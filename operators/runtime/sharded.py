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
    """Rows of an operator in shards, or of several in one stage.

    Spark takes what a shard gives row by row, so that rows leave it in frames, and another Python worker makes rows of
    them. Steps that make a few large values of the rows, as the sink's do, run in the shard's own worker instead: see
    docs/decisions/0014.

    Attributes
    ----------
    rows : pyarrow.Schema
        Of the rows.
    packed : pyspark.sql.DataFrame
        Frames and controls for the first operator, by slot.
    slots : tuple of int
        What each shard is grouped by.
    first : ShardProcessor
    others : tuple of Next
        The operators behind it, in the same stage.
    """

    rows: pa.Schema
    packed: DataFrame
    slots: tuple[int, ...]
    first: ShardProcessor
    others: tuple[Next, ...] = ()

    def with_next(
        self,
        steps: Sequence[ArrowStep],
        pack: Callable[[int], ArrowStep],
        processor: ShardProcessor,
        rows: pa.Schema,
    ) -> InShards:
        """Return one more operator in the same stage: its shards have the same keys, so rows stay in their worker.

        Parameters
        ----------
        steps
            The steps between the two.
        pack
            Given a slot, frames for the shard from the rows after these steps.
        processor
            The operator.
        rows
            What it gives.
        """
        given = self.rows

        def frames(slot: int) -> ArrowStep:
            return chained((_as(given), *steps, pack(slot)))

        return dataclasses.replace(self, rows=rows, others=(*self.others, Next(frames, processor)))

    def df(self, steps: Sequence[ArrowStep], schema: StructType) -> DataFrame:
        """Return the rows after the steps, one by one."""
        return map_in_arrow(
            self._running(rows_to_frame, FRAME_DDL), chained((frames_to_rows(self.rows), *steps)), schema
        )

    def few(self, steps: Sequence[ArrowStep], schema: StructType) -> DataFrame:
        """Return the result of the steps on each shard's rows; the last step leaves only a few large values."""
        return self._running(chained((_as(self.rows), *steps)), schema)

    def _running(self, leaving: ArrowStep, leaving_as: StructType | str) -> DataFrame:
        shards = SparkShards(self.slots, self.first, self.others, leaving)
        return self.packed.groupBy("slot").transformWithState(shards, leaving_as, "append", "none")


def _as(schema: pa.Schema) -> ArrowStep:
    """Return a step that yields rows as the steps after an operator expect them."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from in_batches(pa.Table.from_batches([batch]), schema)

    return run
