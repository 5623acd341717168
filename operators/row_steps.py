"""Filters and projections on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..conf.column_names import quoted
from ..core.rows.system_column import SYSTEM
from ..plan.row_steps import Choice, Filter, RowStep

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["on_spark"]

_PASSES = "__upstream_passes"


def on_spark(step: RowStep, df: DataFrame, fixed: Sequence[str]) -> DataFrame:
    """Return the rows after a step. The columns `fixed` are always kept: the key, the time, the system column."""
    return _filtered(step, df, fixed) if isinstance(step, Filter) else _chosen(step, df, fixed)


def _filtered(step: Filter, df: DataFrame, fixed: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as F

    condition = step.condition
    chosen = F.expr(condition) if isinstance(condition, str) else condition
    marks = [F.coalesce(F.col(f"{SYSTEM}.{mark}"), F.lit(False)) for mark in ("punctuation", "deleted")]
    passes = marks[0] | marks[1] | F.coalesce(chosen, F.lit(False))
    if step.on_leave == "keep":
        return df.where(passes)
    stays, marked = F.col(_PASSES), F.col(SYSTEM).withField("deleted", F.lit(True))

    def leaving(name: str) -> Column:
        """Return the column, null in tombstones: computations that the condition guards must not see their values."""
        column = F.col(quoted(name))
        if name in fixed and name != SYSTEM:
            return column
        return F.when(stays, column).otherwise(marked if name == SYSTEM else F.lit(None)).alias(name)

    # The condition becomes a column first, so that it is computed once, even if it is costly or random.
    return df.withColumn(_PASSES, passes).select(*[leaving(name) for name in df.columns])


def _chosen(step: Choice, df: DataFrame, fixed: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as F

    def column(given: str | Column) -> Column:
        if not isinstance(given, str):
            return given
        return F.col(quoted(given)) if given in df.columns else F.expr(given)

    kept = [F.col(quoted(name)) for name in fixed if name != SYSTEM]
    own = [column(each) for each in step.columns if not (isinstance(each, str) and each in fixed)]
    return df.select(*kept, *own, F.col(SYSTEM))
