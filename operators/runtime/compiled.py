"""A compiled plan step: rows as a DataFrame or in shards, and pending Python steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, cast

from ...conf.column_names import quoted
from ...core.pushdown.at_source import at_source
from ...core.pushdown.source_steps import ArrowStep
from .arrow_steps import chained, choosing, map_in_arrow
from .pack import PACKED_DDL
from .sharded import InShards

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = ["Compiled"]


@dataclasses.dataclass(frozen=True)
class Compiled:
    """Rows on Spark, as a base and the steps that one Python worker will run on it."""

    base: DataFrame | InShards
    schema: StructType  # of the rows after the steps
    steps: tuple[ArrowStep, ...] = ()

    @cached_property
    def df(self) -> DataFrame:
        """The rows as a DataFrame. It is always the same one, so that Spark finds its columns in later DataFrames."""
        if isinstance(self.base, InShards):
            return self.base.df(self.steps, self.schema)
        return map_in_arrow(self.base, chained(self.steps), self.schema) if self.steps else self.base

    def then(self, step: ArrowStep, schema: StructType) -> Compiled:
        return Compiled(self.base, schema, (*self.steps, step))

    def packed(self, step: ArrowStep, columns: Sequence[str] | None = None) -> DataFrame:
        """Return the frames that a step packs for the next operator's shards, from some columns or all (None).

        If the rows are in Arrow already, they stay in their Python worker.
        """
        from pyspark.sql.types import StructType

        if isinstance(self.base, InShards) or self.steps:
            own = step if columns is None else chained((choosing(columns), step))
            packed = self.in_arrow(own, cast("StructType", StructType.fromDDL(PACKED_DDL)))
            assert packed is not None
            return packed
        df = self.base if columns is None else self.base.select(*[quoted(name) for name in columns])
        return map_in_arrow(df, step, PACKED_DDL)

    def in_arrow(self, step: ArrowStep, schema: StructType) -> DataFrame | None:
        """Return a step's result if the rows before it are in Arrow; None if Spark holds them in its own form."""
        if isinstance(self.base, InShards):
            return self.base.few((*self.steps, step), schema)
        if self.steps:
            return map_in_arrow(self.base, chained((*self.steps, step)), schema)
        return at_source(self.base, step, schema)
