"""The shuffle of rows to the task of their bucket, as they are or in frames, which Spark does not convert."""

from __future__ import annotations

import dataclasses
import json
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ..conf.column_names import spark_name
from ..conf.options import internal_option
from ..core.rows.frames import by_bucket, frames_column, from_frame, some_at_once, split_punctuation, to_frame
from ..core.rows.key import Key
from ..core.rows.system_column import SYSTEM, system_field
from ..core.watermark.bounds import beginning

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from .spec.layout import Layout


ROWS_OPTION = "upstreamRows"
"""The schema of the rows in the frames; not for users."""


@dataclasses.dataclass(frozen=True)
class FrameStep:
    """A step that turns a task's rows into frames, with figures of the rows beside them.

    It pays off only if the rows are in Arrow before, in the source or in a Python step; see docs/decisions/0004.
    """

    key: Key  # the update key's columns
    time: str | None  # the event time's column
    buckets: int | None  # one frame for each bucket; None if each task has whole buckets already
    schema: pa.Schema  # the frames' schema

    @classmethod
    def of(cls, layout: Layout, rows: StructType, *, parted: bool) -> tuple[FrameStep, StructType]:
        """Return the framing for rows of a schema, and the frames' schema in Spark."""
        from pyspark.sql.pandas.types import to_arrow_schema
        from pyspark.sql.types import BinaryType, IntegerType, LongType, StructType

        schema = StructType().add("bucket", IntegerType()).add("frame", BinaryType())
        for name in ("rows", "updates", "oldest_arrival_us"):
            schema = schema.add(name, LongType())
        if layout.progress_time is not None:
            for name in ("bound_low", "bound_high"):
                schema = schema.add(name, rows[layout.progress_time].dataType)
        buckets = layout.buckets if parted else None
        return cls(layout.key, layout.progress_time, buckets, to_arrow_schema(schema, timezone="UTC")), schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in some_at_once(batches):
            parts = [(0, table)] if self.buckets is None else list(by_bucket(table, self.key, self.buckets))
            figures = {name: [value] + [None] * (len(parts) - 1) for name, value in self._figures(table).items()}
            columns: list[pa.Array] = [
                pa.array([bucket for bucket, _ in parts], pa.int32()),
                frames_column([to_frame(part.combine_chunks()) for _, part in parts]),
                *[pa.array(figures[field.name], field.type) for field in list(self.schema)[2:]],
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _figures(self, table: pa.Table) -> dict[str, Any]:
        """Return the figures from which Spark computes its observed metrics."""
        if SYSTEM not in table.column_names:
            figures = {"rows": table.num_rows, "updates": table.num_rows, "oldest_arrival_us": None}
            return figures | {"bound_low": None, "bound_high": None}
        rows, punctuation = split_punctuation(table)
        covered = pc.sum(pc.fill_null(system_field(rows, "covered"), 1), min_count=0).as_py()
        oldest = pc.min(pc.cast(system_field(rows, "first_arrival"), pa.int64())).as_py()
        figures = {"rows": rows.num_rows, "updates": covered, "oldest_arrival_us": oldest}
        if self.time is not None:
            bounds = punctuation.column(self.time)
            least_and_most = pc.min_max(bounds.filter(pc.not_equal(bounds, beginning(bounds.type))))
            figures |= {"bound_low": least_and_most["min"].as_py(), "bound_high": least_and_most["max"].as_py()}
        return figures


def observed(time: str | None) -> list[Column]:
    """Return Spark's metrics of a batch, from the figures beside its frames."""
    from pyspark.sql import functions as F

    # As text: each function of PySpark is a dozen calls of the JVM.
    metrics = ["sum(`rows`) AS `rows`", "sum(updates) AS updates", "min(oldest_arrival_us) AS oldest_arrival_us"]
    if time is not None:
        metrics += ["min(bound_low) AS bound_low", "max(bound_high) AS bound_high"]
    return [F.expr(each) for each in metrics]


def parse_rows(options: Mapping[str, str]) -> tuple[StructType | None, dict[str, str]]:
    """Return the schema of the rows, if the input is frames of them, and the other options."""
    from pyspark.sql.types import StructType

    meaning = "the sink is told what is in the frames that it gets"
    return internal_option(options, ROWS_OPTION, lambda value: StructType.fromJson(json.loads(value)), meaning)


def unframed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task's frames, many at once."""
    frames = (from_frame(frame.as_buffer()) for batch in batches for frame in batch.column("frame"))
    for table in some_at_once(batch for frame in frames for batch in frame.to_batches()):
        yield from table.combine_chunks().to_batches()


_PARTITIONS = "spark.sql.shuffle.partitions"
_FEWEST = 2
_MOST_CORES = 10_000
# Of clients of Spark Connect.
_CORES: weakref.WeakKeyDictionary[SparkSession, int] = weakref.WeakKeyDictionary()


def to_buckets(
    df: DataFrame, key: Sequence[str], buckets: int, partitions: int | None, bucket: Column | None = None
) -> DataFrame:
    """Return the rows, or frames with their bucket in `bucket`, with whole buckets in each task.

    By default there are as many tasks as cores, at most ``spark.sql.shuffle.partitions``; never more than
    buckets.
    """
    tasks = _tasks(df.sparkSession, buckets, partitions)
    return df.repartitionById(tasks, _bucket(key, df.columns, buckets) if bucket is None else bucket)


def _bucket(key: Sequence[str], columns: Sequence[str], buckets: int) -> Column:
    from pyspark.sql import functions as F

    return F.pmod(F.hash(*[F.col(spark_name(name, columns)) for name in key]), F.lit(buckets))


def _tasks(session: SparkSession, buckets: int, partitions: int | None) -> int:
    if partitions is None:
        partitions = int(str(session.conf.get(_PARTITIONS)))
        if min(buckets, partitions) > _FEWEST:  # a client of Spark Connect has to ask the server for its cores
            partitions = min(partitions, max(_cores(session), _FEWEST))
    return max(1, min(buckets, partitions))


def _cores(session: SparkSession) -> int:
    """Return the number of tasks that Spark runs at once by default."""
    context: Any = getattr(session, "_sc", None)
    if context is not None:
        return int(context.defaultParallelism)
    if session not in _CORES:
        from pyspark.sql import functions as F

        # As many partitions as there are cores, with rows in each of them.
        most = session.range(_MOST_CORES).select(F.spark_partition_id().alias("task")).agg(F.max("task")).head()
        _CORES[session] = 1 if most is None else int(most[0]) + 1
    return _CORES[session]
