"""Batches under Spark: ``df.write``, ``write_batch``, and update-mode aggregates through ``foreachBatch``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from kit.tables import read_by_key
from pyspark.errors import PySparkException, StreamingQueryException

from upstream import write_batch
from upstream.conf.errors import OptionError, SchemaError, TableError
from upstream.sink.figures.summary import read_summaries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


DDL = "k STRING, t BIGINT, n BIGINT"


def test_df_write_upserts(spark, tmp_path):
    path = str(tmp_path / "table")
    first = spark.createDataFrame([(f"k{n % 50}", n, n) for n in range(500)], DDL).repartition(3)
    writer = first.write.format("upstream").option("key", "k").option("eventTime", "t").option("buckets", 4)
    writer.mode("append").save(path)
    assert read_by_key(path, "k", "t", "n") == {f"k{n % 50}": (n, n) for n in range(450, 500)}
    # The key, the time and the number of buckets are the table's.
    write_batch(spark.createDataFrame([("k0", 3, -1), ("k1", 900, -1), ("new", 1, 1)], DDL), path)
    assert read_by_key(path, "k", "t", "n")["k0"] == (450, 450)
    assert read_by_key(path, "k", "t", "n")["k1"] == (900, -1)
    assert read_by_key(path, "k", "t", "n")["new"] == (1, 1)
    assert [summary.stray_buckets for _, summary in read_summaries(path)] == [4, 0]
    with pytest.raises(PySparkException, match="the mode is overwrite"):
        first.write.format("upstream").option("key", "k").mode("overwrite").save(path)


def test_what_is_wrong_is_reported_before_anything_runs(spark, tmp_path):
    df = spark.createDataFrame([("a", 1, 1)], DDL)
    with pytest.raises(OptionError, match="has no update key"):
        write_batch(df, tmp_path / "table")
    with pytest.raises(SchemaError, match="'nokey' is not among the columns"):
        write_batch(df, tmp_path / "table", key="nokey")
    with pytest.raises(OptionError, match="the DataFrame is a stream"):
        write_batch(spark.readStream.format("rate").load(), tmp_path / "table", key="value")
    write_batch(df, tmp_path / "parts", key="k", event_time="t", null_means="unchanged")
    with pytest.raises(TableError, match="has nullMeans unchanged, this query has unset"):
        write_batch(df, tmp_path / "parts", null_means="null")


def test_update_mode_aggregates(spark, tmp_path):
    feed, path = tmp_path / "feed", tmp_path / "counts"

    def add(number: int, keys: str) -> None:
        rows = spark.createDataFrame([(key, number, 1) for key in keys], DDL)
        rows.coalesce(1).write.mode("append").parquet(str(feed))

    queries: list[str] = []

    def upsert(batch: DataFrame, batch_id: int) -> None:
        # By its number, by itself, or by Spark's plain writer: the same name.
        if batch_id == 0:
            write_batch(batch, path, key="k", buckets=4, batchId=batch_id)
        elif batch_id == 1:
            write_batch(batch, path)
        else:
            writer = batch.write.format("upstream").options(queryId=queries[0], batchId=batch_id, key="k", buckets=4)
            writer.mode("append").save(str(path))

    def run() -> None:
        rows = spark.readStream.schema(DDL).parquet(str(feed))
        counts = rows.groupBy("k").agg({"t": "max", "n": "sum"}).toDF("k", "t", "n")
        writer = counts.writeStream.outputMode("update").foreachBatch(upsert)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        queries.append(str(query.id))
        query.awaitTermination()

    add(0, "aab")
    run()
    assert read_by_key(path, "k", "t", "n") == {"a": (0, 2), "b": (0, 1)}
    add(1, "bbc")
    run()
    assert read_by_key(path, "k", "t", "n") == {"a": (0, 2), "b": (1, 3), "c": (1, 1)}
    add(2, "a")
    run()
    assert read_by_key(path, "k", "t", "n") == {"a": (2, 3), "b": (1, 3), "c": (1, 1)}
    assert {summary.query_id for _, summary in read_summaries(str(path))} == set(queries)
    assert [summary.batch_id for _, summary in read_summaries(str(path))] == [0, 1, 2]


def test_several_writes_of_one_batch_wherever_it_dies(spark, tmp_path):
    """Inserts, then deletions, into one table; each exactly once, also where every row is kept."""
    feed, path, history = tmp_path / "feed", tmp_path / "table", tmp_path / "history"
    checkpoint = tmp_path / "checkpoint"
    dies = {"after": ""}

    def step(name: str) -> None:
        if dies["after"] == name:
            raise RuntimeError("dies " + name)

    def apply(batch: DataFrame, batch_id: int) -> None:
        del batch_id
        live, gone = batch.where("n > 0"), batch.where("n <= 0")
        write_batch(live, path, key="k", event_time="t", buckets=2)
        write_batch(live, history, history="all", event_time="t")
        step("between")
        write_batch(gone, path, key="k", event_time="t", delete_when="n <= 0")
        write_batch(gone, history, history="all", event_time="t")
        step("at the end")

    def run() -> None:
        rows = spark.readStream.schema(DDL).parquet(str(feed))
        writer = rows.writeStream.foreachBatch(apply).option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    def add(*rows: tuple[str, int, int]) -> None:
        spark.createDataFrame(list(rows), DDL).coalesce(1).write.mode("append").parquet(str(feed))

    def kept() -> list[tuple[str, int, int]]:
        return sorted((row["k"], row["t"], row["n"]) for row in DeltaTable(str(history)).to_pyarrow_table().to_pylist())

    add(("a", 1, 5), ("b", 1, 5))
    for dies["after"] in ("between", "at the end"):
        with pytest.raises(StreamingQueryException, match="dies " + dies["after"]):
            run()
    dies["after"] = ""
    run()
    assert read_by_key(path, "k", "t", "n") == {"a": (1, 5), "b": (1, 5)}
    assert kept() == [("a", 1, 5), ("b", 1, 5)]
    add(("a", 2, 0), ("b", 2, 7), ("c", 2, 1))
    run()
    assert read_by_key(path, "k", "t", "n") == {"b": (2, 7), "c": (2, 1)}
    assert kept() == [("a", 1, 5), ("a", 2, 0), ("b", 1, 5), ("b", 2, 7), ("c", 2, 1)]
