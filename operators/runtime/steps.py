"""A compiled plan step: rows as a DataFrame or in shards, and pending Python steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.compute as pc

from ...conf.column_names import quoted
from ...conf.errors import SchemaError, calling
from ...core.feedback.lanes import every_row
from ...core.pushdown.at_source import at_source
from ...core.pushdown.source_steps import ArrowStep
from ...core.rows.system_column import SYSTEM, passing_mask
from ...core.rows.text import collations_of
from ...expressions.arrow import ArrowFunction
from ...plan.nodes import Filter
from .pack import FRAME_DDL, PACKED_DDL, frames_to_rows, in_batches, rows_to_frame
from .shard_processor import Next, ShardProcessor, SparkShards

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from ...plan.nodes import Transform


@dataclasses.dataclass(frozen=True)
class ChainedSteps:
    """One step that runs all steps in their order."""

    steps: Sequence[ArrowStep]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        batches = every_row(batches)
        for step in self.steps:
            batches = step(batches)
        return batches

    @property
    def stream(self) -> str:
        """The hosted stream whose rows the last step sends; empty for other steps."""
        return getattr(self.steps[-1], "stream", "")


def choosing(columns: Sequence[str]) -> ArrowStep:
    """Return a step that keeps some columns."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (batch.select(list(columns)) for batch in batches)

    return run


def map_in_arrow(df: DataFrame, step: ArrowStep, schema: StructType | str) -> DataFrame:
    """Run a step as ``df.mapInArrow(step, schema)`` does, with any column names, in the source's reader if possible."""
    # Spark parses names as expressions and does not find ``id.orig_h``; with such names, the row passes as one struct.
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
    called = getattr(function, "__qualname__", type(function).__name__)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for start in range(0, batch.num_rows, most):
                part = batch.slice(start, most)
                mark = passing_mask(part)
                rows = part.filter(pc.invert(mark))
                if rows.num_rows:
                    given = rows.drop_columns([SYSTEM])
                    with calling(f"the mapped function {called}"):
                        result = function(given)
                    if result.num_rows != rows.num_rows or set(result.schema.names) != set(new):
                        raise SchemaError(
                            f"the mapped function returned {result.num_rows} rows of {', '.join(result.schema.names)} "
                            f"for {rows.num_rows}",
                            expected=f"as many rows, with {', '.join(new)}",
                        )
                    for name in new:
                        try:
                            result.column(name).validate(full=True)
                        except pa.ArrowInvalid as error:
                            raise SchemaError(
                                f"the mapped function {called} returned a damaged column {name}: {error}",
                                expected="text in UTF-8, since no reader opens a table with other text",
                                hint='decode it in the function, for example with errors="replace"',
                            ) from error
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
            return ChainedSteps((_as(given), *steps, pack(slot)))

        return dataclasses.replace(self, rows=rows, others=(*self.others, Next(frames, processor)))

    def df(self, steps: Sequence[ArrowStep], schema: StructType) -> DataFrame:
        return map_in_arrow(self.frames(), ChainedSteps((frames_to_rows(self.rows), *steps)), schema)

    def frames(self) -> DataFrame:
        """Return one frame of rows for each shard."""
        return self._running(rows_to_frame, FRAME_DDL)

    def few(self, steps: Sequence[ArrowStep], schema: StructType) -> DataFrame:
        """Run the steps in the shards' own workers; the last step must leave only a few large values."""
        return self._running(ChainedSteps((_as(self.rows), *steps)), schema)

    def _running(self, leaving: ArrowStep, leaving_as: StructType | str) -> DataFrame:
        shards = SparkShards(self.slots, self.first, self.others, leaving)
        return self.packed.groupBy("slot").transformWithState(shards, leaving_as, "append", "none")


def _as(schema: pa.Schema) -> ArrowStep:
    """Return a step that casts rows to the schema that the steps after an operator expect."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from in_batches(pa.Table.from_batches([batch]), schema)

    return run


@dataclasses.dataclass(frozen=True)
class PhysicalStep:
    """Rows on Spark, as a base and the steps that one Python worker will run on it."""

    base: DataFrame | InShards
    schema: StructType  # of the rows after the steps
    steps: tuple[ArrowStep, ...] = ()

    @cached_property
    def df(self) -> DataFrame:
        """The rows as a DataFrame. It is always the same one, so that Spark finds its columns in later DataFrames."""
        if isinstance(self.base, InShards):
            return self.base.df(self.steps, self.schema)
        return map_in_arrow(self.base, ChainedSteps(self.steps), self.schema) if self.steps else self.base

    def then(self, step: ArrowStep, schema: StructType) -> PhysicalStep:
        return PhysicalStep(self.base, schema, (*self.steps, step))

    def packed(self, step: ArrowStep, columns: Sequence[str] | None = None) -> DataFrame:
        """Return the frames that a step packs for the next operator's shards, from some columns or all (None).

        If the rows are in Arrow already, they stay in their Python worker.
        """
        from pyspark.sql.types import StructType

        if isinstance(self.base, InShards) or self.steps:
            own = step if columns is None else ChainedSteps((choosing(columns), step))
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
            return map_in_arrow(self.base, ChainedSteps((*self.steps, step)), schema)
        return at_source(self.base, step, schema)


def arrow_step(node: Transform) -> ArrowStep | None:
    """Return the Arrow step with exactly Spark's result; None if that is uncertain."""
    asked = node.step
    if not isinstance(asked, Filter) or asked.on_leave != "keep" or not isinstance(asked.condition, str):
        return None
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    from ...expressions.bind import certain_condition

    (before,) = node.inputs
    collated = collations_of(before.schema.jsonValue()["fields"])
    compared = StructType([field for field in before.schema if field.name not in collated])
    condition = certain_condition(asked.condition, to_arrow_schema(compared, timezone="UTC"))
    return None if condition is None else filtered(condition)


def filtered(condition: ArrowFunction) -> ArrowStep:
    """Return a step that keeps rows whose condition is true, and all punctuation and tombstones."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            kept = batch.filter(pc.or_(passing_mask(batch), pc.fill_null(condition(batch), False)))
            if kept.num_rows:
                yield kept

    return run
