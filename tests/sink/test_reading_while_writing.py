"""Readers in a loop while commits and maintenance go on see whole batches, and nothing that goes back."""

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from kit.concurrent_readers import attack, check, maintain_often


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


READERS = {"polars": by_polars, "duckdb": by_duckdb, "deltalake": by_deltalake}


@pytest.mark.slow
def test_readers_while_commits_and_maintenance_go_on(make_sink, monkeypatch):
    maintain_often(monkeypatch)
    sink = make_sink(retentionVersions="100")
    check(sink, attack(sink, READERS, batches=140, seconds=0))
