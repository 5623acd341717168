"""The shuffle of rows to the task of their bucket, before the writer, which cannot make Spark shuffle."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...conf.column_names import spark_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


_PARTITIONS = "spark.sql.shuffle.partitions"
_LEAST = 16
# Now and then one bucket is rewritten as a whole: a second's work.
_KEYS_IN_BUCKET = 500_000
_TOO_MANY = 1_000_000
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


def buckets_for(keys: int | None) -> int:
    """Return the number of buckets for a new table of so many keys; 16 if the number is unknown."""
    return max(_LEAST, -(-(keys or 0) // _KEYS_IN_BUCKET))


def buckets_outgrown(rows: int, buckets: int) -> int | None:
    """Return the number of buckets that suits a table of so many rows better; None if it has enough."""
    return buckets_for(rows) if rows > buckets * _TOO_MANY else None


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
