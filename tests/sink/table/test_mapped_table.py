"""schemaEvolution=add: new columns, wider types, missing columns; all readers agree. All else is refused by name."""

import datetime as dt
import decimal
import json
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import SchemaError, TableError
from upstream.delta_format.latest_table import BUCKET, SEQ
from upstream.delta_format.scan import scan_table
from upstream.sink.spec.layout import Layout
from upstream.sink.spec.options import parse_sink_options
from upstream.sink.table.mapped_table import change_schema, widens

NARROW = pa.schema(
    [("k", pa.int64()), ("t", pa.int32()), ("n", pa.int32()), ("f", pa.float32()), ("d", pa.decimal128(5, 2))]
)
WIDE_KINDS = [pa.int64(), pa.int64(), pa.int64(), pa.float64(), pa.decimal128(12, 2), pa.string()]
WIDE = pa.schema(list(zip([*NARROW.names, "new"], WIDE_KINDS, strict=True)))
MERGE = {"schemaEvolution": "add"}


def everyone_reads(path: Path) -> list[tuple[Any, ...]]:
    """The rows, which four readers agree on."""
    names = [name for name in DeltaTable(str(path)).schema().to_arrow().names if name not in (SEQ, BUCKET)]
    dataset = DeltaTable(str(path)).to_pyarrow_dataset()  # noqa: F841 DuckDB finds it by its name
    chosen = ", ".join(names)
    query = QueryBuilder().register("t", DeltaTable(str(path))).execute(f"select {chosen} from t").read_all()
    found = [
        [tuple(row[name] for name in names) for row in DeltaTable(str(path)).to_pyarrow_table().to_pylist()],
        pl.read_delta(str(path)).select(names).rows(),
        duckdb.sql(f"select {chosen} from dataset").fetchall(),
        [tuple(row.values()) for row in pa.table(query).to_pylist()],
    ]
    rows = sorted(found[0], key=lambda row: row[0])
    for other in found[1:]:
        assert sorted(other, key=lambda row: row[0]) == rows
    return rows


def test_new_columns_and_wider_types(make_sink):
    narrow = make_sink(NARROW)
    narrow.batch(0, [narrow.rows([(1, 5, 7, 1.5, decimal.Decimal("1.25")), (2, 5, 8, 2.5, None)])])
    wide = make_sink(WIDE, query_id="query-2", **MERGE)
    wide.batch(0, [wide.rows([(2, 2**40, 2**41, 1e300, decimal.Decimal("1234567890.25"), "x")])])
    assert everyone_reads(wide.path) == [
        (1, 5, 7, 1.5, decimal.Decimal("1.25"), None),
        (2, 2**40, 2**41, 1e300, decimal.Decimal("1234567890.25"), "x"),
    ]
    # A bucket with an old file, whose rows are kept, is rewritten in the new types.
    wide.batch(1, [wide.rows([(1, 4, 0, 0.0, None, "older"), (1, 6, 9, 0.5, None, "y")], seq=10)])
    assert everyone_reads(wide.path)[0] == (1, 6, 9, 0.5, None, "y")
    with pytest.raises(SchemaError, match="n is long in the table and integer in the query"):
        make_sink(NARROW).writer()


def test_a_query_with_less_writes_nulls_and_narrower_values(make_sink):
    wide = make_sink(WIDE)
    wide.batch(0, [wide.rows([(1, 1, 2**41, 1e300, None, "x"), (2, 1, 1, 1.0, None, "y")])])
    version = wide.version()
    narrow = make_sink(NARROW, query_id="query-2", **MERGE)
    narrow.batch(0, [narrow.rows([(2, 5, 8, 2.5, decimal.Decimal("1.25"))])])
    assert wide.version() == version + 1  # nothing to change
    assert everyone_reads(wide.path) == [(1, 1, 2**41, 1e300, None, "x"), (2, 5, 8, 2.5, decimal.Decimal("1.25"), None)]


def test_the_table_keeps_what_it_has_of_its_own(make_sink):
    narrow = make_sink(NARROW)
    narrow.batch(0, [narrow.rows([(1, 5, 7, 1.5, None)])])
    DeltaTable(str(narrow.path)).alter.set_table_description("ours")
    DeltaTable(str(narrow.path)).alter.set_column_metadata("n", {"comment": "how many"})
    before = DeltaTable(str(narrow.path)).metadata()
    wide = make_sink(WIDE, query_id="query-2", **MERGE)
    wide.batch(0, [wide.rows([(2, 5, 8, 2.5, None, "x")])])
    after = DeltaTable(str(narrow.path)).metadata()
    assert (after.id, after.configuration, after.description) == (before.id, before.configuration, "ours")
    fields = json.loads(DeltaTable(str(narrow.path)).schema().to_json())["fields"]
    described = {field["name"]: field for field in fields}
    assert (described["n"]["type"], described["n"]["metadata"]) == ("long", {"comment": "how many"})


def test_deletions_remembered_with_narrow_times(make_sink):
    narrow = make_sink(NARROW)
    narrow.batch(0, [narrow.rows([(1, 5, None, None, None)], deleted=[True])])
    wide = make_sink(WIDE, query_id="query-2", **MERGE)
    wide.batch(0, [wide.rows([(1, 4, 1, 1.0, None, "older"), (2, 4, 1, 1.0, None, "x")])])
    assert set(wide.latest()) == {2}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([("k", pa.int32()), ("t", pa.int32())], "k is long .* integer"),
        ([("k", pa.int64()), ("t", pa.int32()), ("n", pa.string())], "n is integer .* string"),
        ([("k", pa.int64()), ("t", pa.int32()), ("f", pa.int64())], "f is float .* long"),
        ([("k", pa.int64()), ("t", pa.int32()), ("N", pa.int32())], "'n' and 'N'"),
    ],
)
def test_anything_else_is_refused_by_name(make_sink, columns, message):
    narrow = make_sink(NARROW)
    narrow.batch(0, [narrow.rows([(1, 5, 7, 1.5, None)])])
    with pytest.raises(SchemaError, match=message):
        make_sink(pa.schema(columns), **MERGE).writer()
    with pytest.raises(SchemaError, match=message if "and 'N'" not in message else "N is not in the table") as refused:
        make_sink(pa.schema(columns)).writer()
    assert ("schemaEvolution" in str(refused.value)) == ("and 'N'" in message), "only where it helps"
    with pytest.raises(SchemaError, match=r"new is not in the table.*schemaEvolution=add"):
        make_sink(WIDE).writer()
    assert narrow.version() == 1


WIDER = ["byte", "short", "integer", "long", "float", "double", "decimal(5,2)", "decimal(7,2)", "decimal(7,4)"]


@given(st.sampled_from([*WIDER, "decimal(6,4)", "string"]), st.sampled_from(WIDER), st.sampled_from(WIDER))
def test_widening_is_an_order(kind, other, third):
    assert not widens(kind, kind)
    assert not (widens(kind, other) and widens(other, kind))
    if widens(kind, other) and widens(other, third):
        assert widens(kind, third)
    assert not widens("decimal(5,2)", "decimal(9,4)")


def test_somebody_else_changes_the_table_at_the_same_moment(make_sink):
    narrow, wide = make_sink(NARROW), make_sink(WIDE, query_id="query-2", **MERGE)
    narrow.batch(0, [narrow.rows([(1, 5, 7, 1.5, None)])])
    stale, target = DeltaTable(str(narrow.path)), parse_sink_options(wide.given)
    wide.writer()
    with pytest.raises(TableError, match="columns of the table"):
        change_schema(target, Layout.of(target.options, wide.schema), stale)


KINDS = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(38, 10), pa.bool_()),
    *(pa.string(), pa.binary(), pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us")),
]
VALUES = [1, 2, 3, 4, 1.5, 2.5, decimal.Decimal("1.5"), True, "x", b"y", dt.date(2024, 2, 29)]
VALUES += [dt.datetime(9999, 12, 31, 23, 59, 59, 999999, zone) for zone in (dt.timezone.utc, None)]


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("old", ["v", "a name"])
@pytest.mark.parametrize("deep", [False, True])
def test_every_type_comes_to_a_table_of_every_protocol(make_sink, old, vectors, deep):
    columns = pa.schema([("k", pa.int64()), ("t", pa.int64()), (old, pa.int64())])
    more = {"engine": "vectors"} if vectors else {}
    before = make_sink(columns, **more)
    before.batch(0, [before.rows([(1, 5, 7), (2, 5, 8)])])
    new, values = [(f"n{at}", kind) for at, kind in enumerate(KINDS)], list(VALUES)
    if deep:
        new = [(name, pa.struct([("l", pa.list_(kind)), ("m", pa.map_(pa.string(), kind))])) for name, kind in new]
        values = [{"l": [value, None], "m": [("a", value)]} for value in values]
    for number in range(len(new)):  # one by one: each change finds the protocol of the last
        columns = columns.append(pa.field(*new[number]))
        after = make_sink(columns, query_id=f"query-{number}", **more, **MERGE)
        after.batch(0, [after.rows([(2, 9 + number, 8, *values[: number + 1])])])
    wanted = {"k": 2, "t": 9 + number, old: 8, **dict(zip([name for name, _ in new], values, strict=True))}
    table = DeltaTable(after.path)
    read = table.scan()  # noqa: F841 DuckDB finds it by its name
    duck = duckdb.sql("SELECT * EXCLUDE (_upstream_seq, _upstream_bucket) FROM read WHERE k = 2").to_arrow_table()
    for rows in (scan_table(table).filter(pl.col("k") == 2).collect().to_arrow(), duck):
        kinds = columns if deep else after.columns
        assert rows.select(columns.names).cast(kinds).to_pylist() == [wanted]
    assert scan_table(table).filter(pl.col("k") == 1).select("n12").collect().item() is None
