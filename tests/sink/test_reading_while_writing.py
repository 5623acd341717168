"""Readers in a loop while commits and maintenance go on: no error, no key missing, none twice, nothing torn, nothing
that goes back.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from kit.concurrent_readers import Read, attack, check, maintain_often

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def by_polars(path: str) -> pa.Table:
    return pl.scan_delta(path).select("k", "t").collect().to_arrow()


def by_duckdb(path: str) -> pa.Table:
    rows = DeltaTable(path).to_pyarrow_dataset()
    connection = duckdb.connect()
    connection.register("latest", rows)
    return connection.sql("select k, t from latest").to_arrow_table()


def by_deltalake(path: str) -> pa.Table:
    found = QueryBuilder().register("latest", DeltaTable(path)).execute("select k, t from latest").read_all()
    return pa.table(found)


def by_spark(spark: SparkSession) -> Read:
    return lambda path: spark.read.format("delta").load(path).select("k", "t").toArrow()


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    maintain_often(monkeypatch)


READERS = {"polars": by_polars, "duckdb": by_duckdb, "deltalake": by_deltalake}


@pytest.mark.slow
def test_readers_while_commits_and_maintenance_go_on(make_sink: Any, often: None) -> None:
    sink = make_sink(retentionVersions="100")
    check(sink, attack(sink, READERS, batches=140, seconds=0))


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(2400)
def test_four_readers_for_ten_minutes(spark: SparkSession, make_sink: Any, often: None, tmp_path: Path) -> None:
    sink = make_sink(retentionVersions="100")
    readers = attack(sink, {**READERS, "spark": by_spark(spark)}, batches=220, seconds=600)
    print({reader.name: reader.reads for reader in readers}, "reads,", sink.version(), "versions")
    check(sink, readers)
