"""Tables with deletion vectors and Spark: what one writes the other reads, and Spark's own maintenance and changes come
between batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from upstream.conf.errors import TableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES = ("vectors",)
pytestmark = pytest.mark.spark

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


@pytest.mark.long
def test_spark_reads_it_and_maintains_it(spark: SparkSession, make_sink: Any) -> None:
    sink, model, rng = make_sink(buckets="2"), {}, np.random.default_rng(5)
    table = f"delta.`{sink.path}`"
    update(sink, model, 0, range(KEYS))
    # A file of more rows than are folded for nothing stays, so that later ones mark it.
    update(sink, model, 1, rng.choice(KEYS, 20, replace=False))
    batch_id = 2
    for statement in [
        f"OPTIMIZE {table}",
        f"REORG TABLE {table} APPLY (PURGE)",
        f"DELETE FROM {table} WHERE k % 100 = 7",
        f"VACUUM {table} RETAIN 0 HOURS",
        f"ALTER TABLE {table} SET TBLPROPERTIES ('team' = 'ours')",
    ]:
        summary = update(sink, model, batch_id, rng.choice(KEYS, 30, replace=False))
        batch_id += 1
        assert summary.keys == len(model)
        assert sink.latest() == model
        with_setting = "spark.databricks.delta.retentionDurationCheck.enabled"
        spark.conf.set(with_setting, "false")
        spark.sql(statement)
        spark.conf.unset(with_setting)
        if statement.startswith("DELETE"):
            model = {key: row for key, row in model.items() if key % 100 != 7}
        assert sink.latest() == model
        # These two leave each row where it is; what Spark reads at the end tells.
        if not statement.startswith(("VACUUM", "ALTER")):
            assert as_spark_reads(spark, sink) == model
        path = str(sink.path)
        assert dict(zip(*pl.read_delta(path).select("k", "v").get_columns(), strict=True)) == {
            key: row[1] for key, row in model.items()
        }
    update(sink, model, batch_id, range(5))
    assert as_spark_reads(spark, sink) == model == sink.latest()


@pytest.mark.parametrize("statement", ["DELETE FROM {} WHERE k = 1", "OPTIMIZE {}"])
def test_spark_changes_the_table_during_a_batch(spark: SparkSession, make_sink: Any, statement: str) -> None:
    """Other rows: the batch is refused. The same ones in other files: it goes on with these."""
    sink, model = make_sink(buckets="1"), {}
    update(sink, model, 0, range(KEYS))
    update(sink, model, 1, range(10))
    results = sink.tasks([sink.rows([(key, 5, "mine") for key in range(5)], seq=50_000)])
    spark.sql(statement.format(f"delta.`{sink.path}`"))
    before = as_spark_reads(spark, sink)
    if statement.startswith("DELETE"):
        with pytest.raises(TableError, match="changed by another writer"):
            sink.commit(results, 2)
        assert as_spark_reads(spark, sink) == before
    else:
        assert sink.commit(results, 2) is not None
    sink.batch(2, [sink.rows([(key, 5, "mine") for key in range(5)], seq=50_000)])
    assert as_spark_reads(spark, sink) == before | dict.fromkeys(range(5), (5, "mine")) == sink.latest()
