"""Readers that this environment has: each gives the rows of a table as Python values, in Arrow's form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder


def _duckdb_arrow(path: Path) -> pa.Table:
    rows = DeltaTable(str(path)).to_pyarrow_dataset()  # noqa: F841 DuckDB finds it by its name
    return duckdb.sql("select * from rows").to_arrow_table()


def _duckdb_scan(path: Path) -> pa.Table:
    rows = DeltaTable(str(path)).scan()  # noqa: F841
    return duckdb.sql("select * from rows").to_arrow_table()


def _polars(path: Path) -> pa.Table:
    scanned = pl.scan_delta(str(path)).collect()
    assert scanned.equals(pl.read_delta(str(path)), null_equal=True)
    return scanned.to_arrow()


def _query_builder(path: Path) -> pa.Table:
    return pa.table(QueryBuilder().register("rows", DeltaTable(str(path))).execute("select * from rows").read_all())


def _pandas(path: Path) -> pa.Table:
    # With Arrow's types: pandas' own turn whole numbers with nulls into floats, and know no time before 1677.
    frame = DeltaTable(str(path)).to_pandas(types_mapper=pd.ArrowDtype)
    return pa.Table.from_pandas(frame)


def _pandas_scan(path: Path) -> pa.Table:
    frame = pa.table(DeltaTable(str(path)).scan()).to_pandas(types_mapper=pd.ArrowDtype)
    return pa.Table.from_pandas(frame)


def _parquet(path: Path) -> pa.Table:
    """Nothing but Parquet, and the list of files that `file_uris` gives."""
    table = DeltaTable(str(path))
    files = [pq.ParquetFile(uri).read() for uri in table.file_uris()]
    return pa.concat_tables(files)


IN_PROCESS: dict[str, Callable[[Path], pa.Table]] = {
    "duckdb_arrow": _duckdb_arrow,
    "duckdb_scan": _duckdb_scan,
    "polars": _polars,
    "query_builder": _query_builder,
    "scan": lambda path: pa.table(DeltaTable(str(path)).scan()),
    "to_arrow": lambda path: DeltaTable(str(path)).to_pyarrow_table(),
    "pandas": _pandas,
    "pandas_scan": _pandas_scan,
    "parquet": _parquet,
}


def rows_by(reader: str, path: Path) -> list[dict[str, Any]]:
    return IN_PROCESS[reader](path).to_pylist()
