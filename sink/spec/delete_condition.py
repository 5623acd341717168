"""The option ``deleteWhen``, as a column: the writer evaluates no SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.rows.system_column import SYSTEM

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["DELETED", "with_deletions"]

DELETED = f"{SYSTEM}_deleted"
"""The column that a condition becomes; it does not get into the table."""


def with_deletions(df: DataFrame, condition: str | Column) -> tuple[DataFrame, str]:
    """Return the rows with a column that marks deletions, and its name.

    `condition` is a column's name, an SQL condition, or a column expression. If it is null, the row deletes
    nothing.
    """
    from pyspark.sql import functions as F

    if isinstance(condition, str):
        named = [name for name in df.columns if name.lower() == condition.strip().strip("`").lower()]
        if named:
            return df, named[0]
        condition = F.expr(condition)
    return df.withColumn(DELETED, condition), DELETED
