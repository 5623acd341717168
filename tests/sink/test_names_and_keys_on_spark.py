"""Names that plain Delta refuses and keys in structs, from a feed to a table that Spark reads, looks after and merges
into.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kit.queries import write_to_end

import upstream
from upstream.conf.errors import SchemaError, TableError
from upstream.sink.admin.check import check_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def feed_of(folder: Path, *rows: tuple[int, int, str]) -> Path:
    folder.mkdir()
    lines = [{"the place": {"id": key, "x": at}, "at": at, "a,b": text} for key, at, text in rows]
    (folder / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.mark.long
def test_from_a_feed_to_a_table_and_back(spark: SparkSession, tmp_path: Path) -> None:
    """Coalesced by a field, written by it, optimized and read by Spark, and written to again."""
    key, path = "`the place`.id", str(tmp_path / "table")
    feed = feed_of(tmp_path / "feed", (1, 1, "a"), (2, 1, "b"), (1, 3, "c"), (1, 2, "late"))
    updates = upstream.latest(spark, str(feed), key=key, event_time="at", timeFormat="epoch_s", progress="ordered")
    write_to_end(updates, path, tmp_path / "checkpoint", key=key, event_time="at", buckets=2)

    def seen() -> list[tuple[int, str]]:
        found = spark.sql(f"SELECT `the place`.id, `a,b` FROM delta.`{path}` ORDER BY 1")
        return [tuple(row) for row in found.collect()]

    assert seen() == [(1, "c"), (2, "b")]
    spark.sql(f"OPTIMIZE delta.`{path}`")
    ddl = "`the place` STRUCT<id: BIGINT, x: BIGINT>, at BIGINT, `a,b` STRING, `new one` INT, gone BOOLEAN"
    rows = [((2, 9), 9, "b2", 7, False), ((3, 9), 9, "d", 8, False), ((1, 9), 9, "", 0, True)]
    # The key and the time are the table's own.
    upstream.write_batch(spark.createDataFrame(rows, ddl), path, deleteWhen="gone", mergeSchema=True)
    assert seen() == [(2, "b2"), (3, "d")]
    assert check_table(path).healthy
    spark.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN `a,b` TO `c d`")
    renamed = spark.createDataFrame(
        [((2, 9), 10, "b3", 7)], "`the place` STRUCT<id: BIGINT, x: BIGINT>, at BIGINT, `c d` STRING, `new one` INT"
    )
    with pytest.raises(TableError, match=r"c d is a,b there.*RENAME COLUMN"):
        upstream.write_batch(renamed, path)
    spark.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN `c d` TO `a,b`")
    assert check_table(path).healthy, "and so is the table when they are called as they were"


def test_a_stream_whose_key_is_a_field(spark: SparkSession, tmp_path: Path) -> None:
    """Steps on each row take it, whole and where the rows are read; what divides rows by the key asks for a column."""
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
    for absent in ("`the place`.no", "THE PLACE", "at.x"):
        with pytest.raises(SchemaError, match="the stream has no column"):
            upstream.UpdateStream(stream.df, key=absent, event_time="at")


def test_a_mapped_table_of_somebody_else(spark: SparkSession, tmp_path: Path) -> None:
    """Its files call its columns as nobody else does; Spark's MERGE knows how."""
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
