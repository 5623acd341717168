"""What a query can be told of names, keys and updates, from a feed to a table that Spark reads and merges into."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kit.queries import write_to_end
from kit.tables import read_letters
from pyspark.sql import functions as F

import upstream
from upstream import Watermark
from upstream.api.stream import UpdateStream
from upstream.conf.errors import OptionError, SchemaError, TableError
from upstream.sink.figures.summary import read_summaries
from upstream.sink.write_batch import write_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def feed_of(folder: Path, *rows: tuple[int, int, str]) -> Path:
    folder.mkdir()
    lines = [{"the place": {"id": key, "x": at}, "at": at, "a,b": text} for key, at, text in rows]
    (folder / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_a_stream_whose_key_is_a_field(spark, tmp_path):
    feed = feed_of(tmp_path / "feed", (1, 1, "a"), (2, 1, "b"), (1, 3, "c"), (2, 9, "no"))
    stream = upstream.read(
        spark, feed, key="`the place`.ID", event_time="at", timeFormat="epoch_s", watermark=upstream.Watermark.ordered()
    )
    assert stream.key == ("`the place`.`id`",)
    assert "key `the place`.`id`, event time at" in stream.explain()
    chosen = stream.where("`a,b` <> 'no'").select("at", "upper(`a,b`) AS text")
    assert chosen.schema.names == ["the place", "at", "text", "_upstream"]
    write_to_end(chosen, str(tmp_path / "table"), tmp_path / "checkpoint")
    found = spark.read.format("delta").load(str(tmp_path / "table")).select("`the place`.id", "text").collect()
    assert sorted(tuple(row) for row in found) == [(1, "C"), (2, "B")]
    for word, step in (
        ("window", lambda: stream.window("1 hour")),
        ("queue", stream.queue),
        ("ordered", stream.ordered),
        ("union", lambda: stream.union(stream)),
        ("distinct", lambda: stream.distinct("at")),
    ):
        with pytest.raises(SchemaError, match=rf"^{word} of a stream whose key has `the place`.`id`, a field.*select="):
            step()
    other_case = upstream.UpdateStream(stream.df, key="THE PLACE", event_time="AT")
    assert (other_case.key, other_case.event_time) == (("the place",), "at")
    for absent in ("`the place`.no", "THE  PLACE", "at.x"):
        with pytest.raises(SchemaError, match="the stream has no column"):
            upstream.UpdateStream(stream.df, key=absent, event_time="at")


def test_a_mapped_table_of_somebody_else(spark, tmp_path):
    path = str(tmp_path / "table")
    ddl = "`the place` STRUCT<id: BIGINT, x: BIGINT>, at BIGINT, `a,b` STRING"
    spark.sql(f"CREATE TABLE delta.`{path}` ({ddl}) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")

    def write(*rows: tuple[tuple[int, int], int, str]) -> None:
        frame = spark.createDataFrame(list(rows), ddl)
        upstream.write_batch(frame, path, key="`the place`.ID", event_time="at", engine="merge")

    write(((1, 0), 5, "a"), ((2, 0), 5, "c"))
    write(((1, 1), 6, "b"), ((1, 2), 4, "late"), ((2, 2), 4, "late"))
    found = spark.sql(f"SELECT `the place`.id, at, `a,b` FROM delta.`{path}` ORDER BY 1").collect()
    assert [tuple(row) for row in found] == [(1, 6, "b"), (2, 5, "c")]
    with pytest.raises(SchemaError, match=r"key column 'the place.no' is not among the columns the place, at, a,b"):
        upstream.write_batch(spark.createDataFrame([((1, 0), 5, "a")], ddl), path, key="the place.no", engine="merge")
    with pytest.raises(TableError, match=r"was not made by this sink.*engine=merge"):
        upstream.write_batch(spark.createDataFrame([((1, 0), 5, "a")], ddl), path, key="the place.id", event_time="at")


def test_documents_that_each_have_some_of_the_values(spark, tmp_path):
    folder = tmp_path / "feed"
    folder.mkdir()
    documents = [
        {"e": "trade", "E": 10, "data": {"s": "A", "p": 1.5, "q": None}, "place": {"x": 1, "at": 7}},
        {"e": "quote", "E": 12, "data": {"s": "A", "p": None, "q": 9}, "place": {"x": 2, "at": 5}},
        {"e": "trade", "E": 11, "data": {"s": "A", "p": 2.5, "q": 3}, "place": None},
        {"e": "trade", "E": 11, "data": {"s": "B", "p": 0.5, "q": None}, "place": None},
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(each) + "\n" for each in documents))

    def stream(**more: Any) -> UpdateStream:
        select = "data.s AS symbol, E AS t, e AS kind, data.p AS price, data.q AS size, place.x, place.at"
        return upstream.read(spark, folder, key="symbol", event_time="t", time_format="epoch_s", select=select, **more)

    partly = {"null_means": "unchanged: price, size", "column_groups": "x by at"}
    table = tmp_path / "table"
    with pytest.raises(SchemaError, match=r"nullMeans and columnGroups would miss values here: the source coalesces"):
        stream(coalesce=True).write(table, checkpoint=tmp_path / "checkpoint", **partly)
    with pytest.raises(SchemaError, match=r"would miss values here: queue"):
        stream().queue().write(table, checkpoint=tmp_path / "checkpoint", **partly)
    with pytest.raises(OptionError, match="engine=merge has no option columnGroups, nullMeans"):
        stream().write(table, checkpoint=tmp_path / "checkpoint", engine="merge", **partly)
    write_to_end(stream(), table, tmp_path / "checkpoint", **partly)
    names = ("symbol", "t", "kind", "price", "size", "x", "at")
    wanted = [("A", 12, "quote", 2.5, 9, 1, 7), ("B", 11, "trade", 0.5, None, None, None)]
    assert rows(spark, table, *names) == wanted
    late = spark.createDataFrame([("B", 3, None, None, 4, 6, 1)], stream().df.schema[:7])
    write_batch(late, str(table))  # as the table was made
    assert rows(spark, table, *names)[1] == ("B", 11, "trade", 0.5, 4, 6, 1)


DDL = "k STRING, t BIGINT, op STRING, n INT"


@pytest.fixture
def feed(spark, tmp_path):
    folder = tmp_path / "feed"
    folder.mkdir()

    def put(*rows: tuple[str, int, str, int], name: str) -> DataFrame:
        columns = zip(*rows, strict=True)
        types = [pa.string(), pa.int64(), pa.string(), pa.int32()]
        arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
        pq.write_table(pa.table(arrays, ["k", "t", "op", "n"]), folder / f"{name}.parquet")
        return spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(folder))

    return put


def run(df: Any, folder: Path, name: str, **more: Any) -> None:
    options = {"key": "k", "event_time": "t", "buckets": 2, **more}
    write_to_end(df, folder / name, folder / f"{name}_checkpoint", **options)


def rows(spark: SparkSession, place: Path, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, spark.read.format("delta").load(str(place)).select(*columns).collect()))


def test_deletions_by_a_condition_and_columns_that_come_later(spark, feed, tmp_path):
    df = feed(("a", 1, "I", 1), ("b", 1, "I", 2), ("c", 1, "I", 3), name="0")
    run(df, tmp_path, "table", delete_when="op = 'D'")
    df = feed(("a", 5, "D", 0), ("b", 0, "D", 0), ("c", 2, "U", 4), name="1")
    run(df, tmp_path, "table", delete_when=F.col("op") == "D")
    df = feed(("a", 4, "U", 9), ("c", 1, "U", 0), name="2")
    wider = df.withColumn("n", F.col("n").cast("long") + 2**40).withColumn("word", F.lit("new"))
    run(wider, tmp_path, "table", delete_when="op = 'D'", schema_evolution="add")
    assert rows(spark, tmp_path / "table", "k", "t", "op", "n") == [("b", 1, "I", 2), ("c", 2, "U", 4)]
    summaries = [each for _, each in read_summaries(str(tmp_path / "table"))]
    assert [(each.deleted, each.older) for each in summaries] == [(0, 0), (1, 1), (0, 2)]
    # In a batch, by a column, which the table does not get; the columns that it lacks are null.
    last = spark.createDataFrame([("b", 9, True), ("d", 9, False)], "k STRING, t BIGINT, gone BOOLEAN")
    write_batch(last, str(tmp_path / "table"), delete_when="gone", schema_evolution="add")
    assert rows(spark, tmp_path / "table", "k", "n", "word") == [("c", 4, None), ("d", None, None)]
    assert spark.read.format("delta").load(str(tmp_path / "table")).schema["n"].dataType.simpleString() == "bigint"


def test_late_and_conflicting_rows_of_a_fluent_stream(spark, feed, tmp_path):
    df = feed(("a", 10, "U", 1), ("a", 10, "U", 2), ("b", 30, "U", 3), name="0")
    feed(("a", 12, "U", 4), ("c", 29, "U", 5), ("b", 30, "U", 3), ("b", 30, "D", 6), name="1")
    stream = UpdateStream.from_dataframe(
        df,
        key="k",
        event_time="t",
        watermark=Watermark.ordered().guarded(confirmations=1),  # so few rows would not confirm the first of them
        time_format="epoch_s",
        dead_letters=tmp_path / "dead",
    )
    run(stream, tmp_path, "table", key=None, event_time=None, delete_when="op = 'D'", deadLetterRows="late,conflicts")
    assert rows(spark, tmp_path / "table", "k", "t", "n") == [("a", 12, 4), ("c", 29, 5)]
    summaries = [each for _, each in read_summaries(str(tmp_path / "table")) if each.rows]
    assert [(each.conflicts, each.late) for each in summaries] == [(1, 0), (2, 2)]
    late = read_letters(tmp_path / "dead", "late")
    assert sorted((row["k"], row["t"], row["origin"]) for row in late) == [("a", 12, "rows"), ("c", 29, "rows")]
    lost = read_letters(tmp_path / "dead", "conflict")
    assert sorted((row["k"], row["n"], row["_upstream_deleted"]) for row in lost) == [
        ("a", 1, False),
        ("b", 3, False),
        ("b", 3, False),
    ]
