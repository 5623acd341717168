"""Filters in Spark SQL that Arrow can apply to the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ...core.pushdown.conditions import Condition, arrow_condition
from ...core.pushdown.source_steps import ArrowStep
from ...core.rows.collations import collations_of
from ...core.rows.system_column import passing_mask
from ...plan.row_steps import Filter

if TYPE_CHECKING:
    from ...plan.nodes import Transform

__all__ = ["arrow_step", "filtered"]


def arrow_step(node: Transform) -> ArrowStep | None:
    """Return the Arrow step with exactly Spark's result; None if that is uncertain."""
    asked = node.step
    if not isinstance(asked, Filter) or asked.on_leave != "keep" or not isinstance(asked.condition, str):
        return None
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    (before,) = node.inputs
    collated = collations_of(before.schema.jsonValue()["fields"])
    compared = StructType([field for field in before.schema if field.name not in collated])
    condition = arrow_condition(asked.condition, to_arrow_schema(compared, timezone="UTC"))
    return None if condition is None else filtered(condition)


def filtered(condition: Condition) -> ArrowStep:
    """Return a step that keeps rows whose condition is true, and all punctuation and tombstones."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            kept = batch.filter(pc.or_(passing_mask(batch), pc.fill_null(condition(batch), False)))
            if kept.num_rows:
                yield kept

    return run
