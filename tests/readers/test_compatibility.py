"""Each cell of the page's table: a reader, a kind of table, and what comes of it."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.sink import Sink

from .claims import check
from .matrix import FEATURES, matrix_as_markdown, matrix_of_page
from .programs import ROOT
from .tables import MARKED, Rows, rows_of, schema_of

# Values that the layout admits, of every type, by column.
_SECONDS = 62_135_596_800
ANY: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i8": (pa.int8(), st.integers(-128, 127)),
    "i16": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "i32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "i64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "f32": (pa.float32(), st.floats(width=32)),
    "f64": (pa.float64(), st.floats()),
    "b": (pa.bool_(), st.booleans()),
    "s": (pa.string(), st.text()),
    "raw": (pa.binary(), st.binary(max_size=40)),
    "d": (pa.date32(), st.dates()),
    "zoned": (pa.timestamp("us", "UTC"), st.integers(-_SECONDS * 10**6, 253_402_300_799_999_999)),
    "local": (pa.timestamp("us"), st.integers(-_SECONDS * 10**6, 253_402_300_799_999_999)),
    "wide": (pa.decimal128(38, 10), st.decimals("-9e27", "9e27", places=10)),
    "money": (pa.decimal128(9, 2), st.decimals("-9999999.99", "9999999.99", places=2)),
    "one": (
        pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]),
        st.fixed_dictionaries(
            {
                "a": st.none() | st.integers(-9, 9),
                "b": st.none() | st.lists(st.none() | st.text(max_size=3), max_size=3),
            }
        ),
    ),
    "named": (
        pa.map_(pa.string(), pa.int64()),
        st.dictionaries(st.text(max_size=3), st.none() | st.integers(-9, 9), max_size=3).map(
            lambda pairs: list(pairs.items())
        ),
    ),
    "x.y": (pa.string(), st.text(max_size=3)),
}


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


# With Arrow's types: pandas' own turn whole numbers with nulls into floats, and know no time before 1677.
OF_ARROW = {"types_mapper": pd.ArrowDtype}


IN_PROCESS: dict[str, Callable[[Path], pa.Table]] = {
    "duckdb_arrow": _duckdb_arrow,
    "duckdb_scan": _duckdb_scan,
    "polars": _polars,
    "query_builder": lambda path: pa.table(
        QueryBuilder().register("rows", DeltaTable(str(path))).execute("select * from rows").read_all()
    ),
    "scan": lambda path: pa.table(DeltaTable(str(path)).scan()),
    "to_arrow": lambda path: DeltaTable(str(path)).to_pyarrow_table(),
    "pandas": lambda path: pa.Table.from_pandas(DeltaTable(str(path)).to_pandas(**OF_ARROW)),
    "pandas_scan": lambda path: pa.Table.from_pandas(pa.table(DeltaTable(str(path)).scan()).to_pandas(**OF_ARROW)),
    # Nothing but Parquet, and the list of files.
    "parquet": lambda path: pa.concat_tables(pq.ParquetFile(uri).read() for uri in DeltaTable(str(path)).file_uris()),
}


def test_page_lists_what_is_tested_here():
    page = (ROOT / "docs" / "readers.md").read_text(encoding="utf-8")
    assert matrix_of_page(page) == matrix_as_markdown(), (
        "docs/readers.md: put this table there:\n" + matrix_as_markdown()
    )


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("reader", IN_PROCESS)
def test_reader_in_python(tables, reader, feature):
    check(reader, feature, lambda: IN_PROCESS[reader](tables[feature]).to_pylist())


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("name", ["duckdb_delta", "daft", "datafusion"])
def test_other_engine(tables, others, engine, name, feature):
    check(name, feature, lambda: rows_from(engine(others, name, tables[feature])))


@pytest.mark.parametrize("reader", IN_PROCESS)
def test_names_with_spaces_beside_features_by_name(tmp_path, reader):
    """TIMESTAMP_NTZ makes the protocol name its features: who reads by Arrow's dataset says then what it refuses."""
    columns = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("at noon", pa.timestamp("us"))])
    sink = Sink(tmp_path, columns, {"key": "k", "eventTime": "t", "buckets": "1"})
    sink.batch(0, [sink.rows([(1, 1, 5)])])
    if reader in ("query_builder", "parquet", "scan", "duckdb_scan", "pandas_scan"):
        assert [row["at noon"].microsecond for row in IN_PROCESS[reader](sink.path).to_pylist()] == [5]
        return
    with pytest.raises(Exception, match="columnMapping"):
        IN_PROCESS[reader](sink.path)


@pytest.mark.long
@pytest.mark.parametrize("feature", FEATURES)
def test_clickhouse(tables, large, engine, feature):
    """Its text is bytes, its times have a zone, its numbers are its own: what is compared are values."""
    columns = schema_of(feature)

    def read() -> Rows:
        found = engine(large, "clickhouse", tables[feature])
        return rows_from(found if isinstance(found, str) else found.select(columns.names).cast(columns))

    check("clickhouse", feature, read)


@pytest.mark.long
@pytest.mark.parametrize(("name", "right"), [("clickhouse_count", False), ("clickhouse_full_count", True)])
def test_count_of_clickhouse(tables, large, engine, name, right):
    """It counts by the files' statistics, which know nothing of dead rows, unless a setting forbids that."""
    (counted,) = rows_from(engine(large, name, tables[MARKED]))
    assert (counted["rows"] == len(rows_of(MARKED))) == right


def rows_from(found: pa.Table | str) -> Rows:
    if isinstance(found, str):
        raise AssertionError(found)
    return found.to_pylist()


@pytest.mark.parametrize("feature", FEATURES)
def test_spark_sql(spark, tables, feature):
    check("spark", feature, lambda: spark.sql(f"SELECT * FROM delta.`{tables[feature]}`").toArrow().to_pylist())


def rows_of_any(count: st.SearchStrategy[int]) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    one = st.tuples(*(st.none() | values for _, values in ANY.values()))
    return count.flatmap(lambda many: st.lists(one, min_size=many, max_size=many))


@settings(max_examples=15)
@given(rows=rows_of_any(st.integers(1, 12)), split=st.integers(0, 12))
def test_every_value_of_every_type_comes_back(rows, split):
    """Bit by bit the same, NaN and -0.0 included, by everything that reads in this process."""
    columns = pa.schema([("k", pa.int64()), ("t", pa.int64()), *((name, kind) for name, (kind, _) in ANY.items())])
    with tempfile.TemporaryDirectory() as folder:
        sink = Sink(Path(folder), columns, {"key": "k", "eventTime": "t", "buckets": "2"})
        written = [(key, 1, *values) for key, values in enumerate(rows)]
        for number, part in enumerate((written[:split], written[split:])):
            sink.batch(number, [sink.rows(part, seq=number * 100)])
        by_column = zip(zip(*written, strict=True), columns, strict=True)
        wanted = pa.table([pa.array(column, field.type) for column, field in by_column], schema=columns)
        for reader, read in IN_PROCESS.items():
            assert _bits(read(sink.path), columns) == _bits(wanted, columns), reader


def _bits(table: pa.Table, columns: pa.Schema) -> list[list[Any]]:
    """Values by column in the order of keys, floats by their bits; one NaN is as good as another."""
    order = np.argsort(table.column("k").to_numpy())
    found: list[list[Any]] = []
    for field in columns:
        values = table.column(field.name).cast(field.type).to_pylist()
        if pa.types.is_floating(field.type):
            values = [
                value if value is None else "nan" if np.isnan(value) else np.float64(value).tobytes()
                for value in values
            ]
        found.append([values[at] for at in order])
    return found
