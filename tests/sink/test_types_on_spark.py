"""What Spark makes of the table: its maintenance, its readers, and its change data feed."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from kit.invalid_text import not_utf_8

from upstream.sink.admin.check import check_table
from upstream.sink.maintenance.runner import TableMaintenance
from upstream.sink.merge import engines as engine_module
from upstream.sink.spec.maintenance_rules import MaintenanceRules
from upstream.storage.folder import TableFolder

UTC = dt.timezone.utc
INSTANT = pa.timestamp("us", "UTC")
FORM = "spark.sql.parquet.outputTimestampType"
FIRST = dt.datetime(2500, 1, 1, tzinfo=UTC)


def test_files_that_spark_puts_together(spark, make_sink, monkeypatch):
    monkeypatch.setattr(engine_module, "_WORTH_KEEPING", 1)
    sink = make_sink(pa.schema([("k", INSTANT), ("t", INSTANT), ("v", pa.string())]), buckets="1")

    def rows(keys: range, version: int) -> pa.RecordBatch:
        later = dt.timedelta(seconds=version)
        values = [(FIRST + dt.timedelta(seconds=key), FIRST + later, str(version)) for key in keys]
        return sink.rows(values, seq=1000 * version)

    sink.batch(0, [rows(range(100), 0)])
    sink.batch(1, [rows(range(100, 200), 1)])
    assert len(sink.live_files()) == 2
    spark.conf.set(FORM, "INT96")
    try:
        spark.sql(f"OPTIMIZE delta.`{sink.path}`").collect()
    finally:
        spark.conf.unset(FORM)
    (path,) = sink.live_files()
    assert "int96" in str(pq.ParquetFile(sink.path / path).schema)
    summary = sink.batch(2, [rows(range(50, 250), 2)])
    assert (summary.keys, summary.applied, sink.table().num_rows) == (250, 200, 250)
    assert [values[-1] for _, values in sorted(sink.latest().items())] == ["0"] * 50 + ["2"] * 200
    assert check_table(str(sink.path)).healthy
    assert spark.read.format("delta").load(str(sink.path)).count() == 250


def test_text_that_is_not_utf_8(spark, make_sink):
    sink = make_sink(buckets="1")
    sink.batch(0, [not_utf_8(sink.rows([(1, 0, "a"), (2, 0, "b"), (3, 0, "c")]), "v", at=[1])])
    sink.batch(1, [not_utf_8(sink.rows([(3, 1, "d")], seq=5), "v")])
    table = spark.read.format("delta").load(str(sink.path))
    assert sorted(tuple(row) for row in table.selectExpr("k", "hex(v)").collect()) == [(1, "61"), (2, "FF"), (3, "FF")]
    assert table.where("v = cast(X'FF' AS STRING)").count() == 2


@pytest.mark.parametrize("old", ["v", "a name"])
def test_columns_that_raise_the_protocol(spark, make_sink, old):
    columns = pa.schema([("k", pa.int64()), ("t", pa.int64()), (old, pa.string())])
    before = make_sink(columns)
    before.batch(0, [before.rows([(1, 0, "a")])])
    inner = pa.struct([("l", pa.list_(pa.timestamp("us")))])
    after = make_sink(columns.append(pa.field("n", inner)), query_id="query-2", schemaEvolution="add")
    at = dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
    after.batch(0, [after.rows([(2, 0, "b", {"l": [at]})])])
    found = spark.read.format("delta").load(str(after.path)).selectExpr("k", "n.l").collect()
    assert sorted(tuple(row) for row in found) == [(1, None), (2, [at])]


def maintained(sink: Any, versions: int) -> None:
    rules = MaintenanceRules(versions=versions)
    TableMaintenance(TableFolder(str(sink.path)), DeltaTable(str(sink.path)), rules).run(whole=True)


def some(sink: Any, batches: range) -> None:
    for number in batches:
        rows = [(key, number, f"v{number}") for key in {number % 12, number * 5 % 12}]
        gone = (number % 7 + 20, number, None)
        sink.batch(number, [sink.rows([*rows, gone], seq=number * 10, deleted=[*[False] * len(rows), True])])


def test_deltas_change_data_feed_is_right_and_reports_more_than_has_changed(spark, make_sink):
    """Where a user enables it: a rewritten bucket is all deleted and inserted, which comes to the same."""
    sink = make_sink(buckets="2", maintenance="off")
    sink.batch(0, [sink.rows([(key, 0, "v0") for key in range(27)])])
    start = sink.version()
    before = sink.latest()
    DeltaTable(str(sink.path)).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    some(sink, range(1, 7))
    maintained(sink, versions=1000)
    some(sink, range(7, 9))
    changes = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", start + 1)
    rows = changes.load(str(sink.path)).collect()
    state = dict(before)
    for row in sorted(rows, key=lambda row: (row["_commit_version"], row["_change_type"])):  # deletions come first
        if row["_change_type"] == "delete":
            assert state.pop(row["k"]) == (row["t"], row["v"])
        else:
            assert state.setdefault(row["k"], (row["t"], row["v"])) == (row["t"], row["v"])
    assert {row["_change_type"] for row in rows} == {"insert", "delete"}
    assert state == sink.latest()
    applied = 3 * 8
    assert len(rows) > 4 * applied, "unchanged rows of a bucket are in it"
    # Beyond what is kept it refuses, as well.
    maintained(sink, versions=2)
    some(sink, range(9, 11))
    maintained(sink, versions=2)
    with pytest.raises(Exception, match=r"DELTA_VERSION_NOT_FOUND|DELTA_LOG_FILE_NOT_FOUND|DELTA_.*"):
        changes.load(str(sink.path)).collect()
