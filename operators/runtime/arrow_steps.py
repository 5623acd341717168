"""Steps on Arrow batches, chained in one Python worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.compute as pc

from ...conf.column_names import quoted
from ...conf.errors import SchemaError
from ...core.pushdown.at_source import at_source
from ...core.pushdown.source_steps import ArrowStep
from ...core.rows.system_column import SYSTEM, passing_mask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = ["chained", "choosing", "map_in_arrow", "mapped"]


def chained(steps: Sequence[ArrowStep]) -> ArrowStep:
    """Return one step that runs all steps in their order."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for step in steps:
            batches = step(batches)
        return batches

    return run


def choosing(columns: Sequence[str]) -> ArrowStep:
    """Return a step that keeps some columns."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (batch.select(list(columns)) for batch in batches)

    return run


def map_in_arrow(df: DataFrame, step: ArrowStep, schema: StructType | str) -> DataFrame:
    """Run a step as ``df.mapInArrow(step, schema)`` does, with any column names, in the source's reader if possible.

    Spark parses names as expressions and does not find ``id.orig_h``; with such names, the row passes as one struct.
    """
    from pyspark.sql.types import StructType

    given = cast("StructType", StructType.fromDDL(schema)) if isinstance(schema, str) else schema
    moved = at_source(df, step, given)
    if moved is not None:
        return moved
    if not any("." in name or "`" in name for name in df.columns):
        return df.mapInArrow(step, schema)
    from pyspark.sql import functions as F

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return step(pa.RecordBatch.from_struct_array(batch.column(0)) for batch in batches)

    whole = F.struct(*[F.col(quoted(name)) for name in df.columns]).alias("row")
    return df.select(whole).mapInArrow(run, schema)


def mapped(
    function: Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table], schema: pa.Schema, new: list[str], most: int
) -> ArrowStep:
    """Return a step that computes the columns `new` by a function of at most `most` rows at once.

    The function sees neither punctuation nor tombstones.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for start in range(0, batch.num_rows, most):
                part = batch.slice(start, most)
                mark = passing_mask(part)
                rows = part.filter(pc.invert(mark))
                if rows.num_rows:
                    given = rows.drop_columns([SYSTEM])
                    result = function(given)
                    if result.num_rows != rows.num_rows or set(result.schema.names) != set(new):
                        raise SchemaError(
                            f"the mapped function returned {result.num_rows} rows of {', '.join(result.schema.names)} "
                            f"for {rows.num_rows}",
                            expected=f"as many rows, with {', '.join(new)}",
                        )
                    columns = {name: rows.column(name) for name in schema.names if name not in new}
                    columns |= {name: result.column(name) for name in new}
                    table = pa.table({name: columns[name] for name in schema.names}).cast(schema)
                    yield from table.to_batches()
                if rows.num_rows < part.num_rows:
                    marks = part.filter(mark)
                    filled = {
                        name: pa.nulls(marks.num_rows, schema.field(name).type) if name in new else marks.column(name)
                        for name in schema.names
                    }
                    yield from pa.table(filled).cast(schema).to_batches()

    return run
