"""An operator in shards, before it is known what takes its rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from ...core.pushdown.source_steps import ArrowStep
from .arrow_steps import chained, map_in_arrow
from .pack import FRAME_DDL, frames_to_rows, in_batches, rows_to_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = ["InShards"]


@dataclasses.dataclass(frozen=True)
class InShards:
    """Rows of an operator in shards.

    Spark takes what a shard gives row by row, so that rows leave it in frames, and another Python worker makes rows of them. Steps that
    make a few large values of the rows, as the sink's do, run in the shard's own worker instead: see docs/decisions/0014.

    Attributes
    ----------
    rows : pyarrow.Schema
        Of the rows.
    running : callable
        The operator as a DataFrame, given what becomes of each shard's rows, and the schema of that.
    """

    rows: pa.Schema
    running: Callable[[ArrowStep, StructType | str], DataFrame]

    def df(self, steps: Sequence[ArrowStep], schema: StructType) -> DataFrame:
        """The rows after the steps, as rows."""
        return map_in_arrow(
            self.running(rows_to_frame, FRAME_DDL), chained((frames_to_rows(self.rows), *steps)), schema
        )

    def few(self, steps: Sequence[ArrowStep], schema: StructType) -> DataFrame:
        """What the steps make of each shard's rows, of which the last leaves a few large values."""
        return self.running(chained((_as(self.rows), *steps)), schema)


def _as(schema: pa.Schema) -> ArrowStep:
    """Rows as the steps after an operator expect them."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from in_batches(pa.Table.from_batches([batch]), schema)

    return run
