"""Tables with deletion vectors and Spark: what one writes the other reads, and Spark changes them between batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from upstream.conf.errors import TableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES = ("vectors",)

Model = dict[int, tuple[int, str]]
KEYS = 3000


def as_spark_reads(spark: SparkSession, sink: Any) -> Model:
    rows = spark.read.format("delta").load(str(sink.path)).select("k", "t", "v").collect()
    assert len(rows) == len({row.k for row in rows})
    return {row.k: (row.t, row.v) for row in rows}


def update(sink: Any, model: Model, batch_id: int, keys: Any) -> Any:
    keys = [int(key) for key in keys]
    for key in keys:
        model[key] = (batch_id, f"{key} in {batch_id}")
    return sink.batch(batch_id, [sink.rows([(key, *model[key]) for key in keys], seq=batch_id * 10_000)])


CHANGES = ["DELETE FROM {} WHERE k = 1", "OPTIMIZE {}", "REORG TABLE {} APPLY (PURGE)", "VACUUM {} RETAIN 0 HOURS"]


@pytest.mark.parametrize("statement", CHANGES)
def test_spark_changes_the_table_during_a_batch(spark, make_sink, statement):
    """Other rows: the batch is refused. The same ones, in other files or not: it goes on with these."""
    sink, model = make_sink(buckets="1"), {}
    update(sink, model, 0, range(KEYS))
    update(sink, model, 1, range(10))
    rows = sink.rows([(key, 5, "mine") for key in range(5)], seq=50_000)
    results = sink.tasks([rows])
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    spark.sql(statement.format(f"delta.`{sink.path}`"))
    spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    before = as_spark_reads(spark, sink)
    if statement.startswith("VACUUM"):  # without a retention it takes what no commit names yet, too
        results = sink.tasks([rows])
    if statement.startswith("DELETE"):
        with pytest.raises(TableError, match="changed by another writer"):
            sink.commit(results, 2)
        assert as_spark_reads(spark, sink) == before
    else:
        assert before == model
        assert sink.commit(results, 2).keys == KEYS
    sink.batch(2, [rows])
    assert as_spark_reads(spark, sink) == before | dict.fromkeys(range(5), (5, "mine")) == sink.latest()
