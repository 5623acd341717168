"""Columns under collations, as Spark's own schemas describe them."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, DataType, LongType, MapType, StringType, StructField, StructType

from upstream.conf.errors import SchemaError
from upstream.core.rows.text import as_bytes, check_collations, collations_of, rows_without_text

TEXT, CASELESS, UNICODE = StringType(), StringType("UTF8_LCASE"), StringType("UNICODE_CI")


def struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


def test_they_are_found_at_any_depth():
    nested = struct(x=CASELESS, l=ArrayType(struct(y=UNICODE)), ll=ArrayType(ArrayType(UNICODE)))
    schema = struct(k=CASELESS, plain=TEXT, b=StringType("UTF8_BINARY"), s=nested, m=MapType(TEXT, UNICODE))
    assert collations_of(schema.jsonValue()["fields"]) == {
        "k": "UTF8_LCASE",
        "s.x": "UTF8_LCASE",
        "s.l.y": "UNICODE_CI",
        "s.ll.element.element": "UNICODE_CI",
        "m.value": "UNICODE_CI",
    }


def test_the_columns_are_named_and_the_way_out():
    schema = struct(k=CASELESS, v=UNICODE)
    message = r"k is under the collation UTF8_LCASE, v is under .* UNICODE_CI.*collate\(k, 'UTF8_BINARY'\).*lower"
    with pytest.raises(SchemaError, match=message):
        check_collations(schema)
    with pytest.raises(SchemaError, match="of v is under"):
        check_collations(schema, names=["v"])
    check_collations(struct(k=StringType("UTF8_BINARY"), n=LongType()))
    check_collations(schema, names=["other"])


WRONG = b"\xff"


def texts(values: list[bytes | None]) -> pa.Array:
    """As Spark hands them on: nobody has looked whether they are text."""
    return pa.array(values, pa.binary()).view(pa.string())


@given(st.lists(st.one_of(st.none(), st.binary(max_size=4), st.just("é".encode())), max_size=300), st.integers(0, 5))
def test_by_a_plain_look(values, skip):
    def is_text(value: bytes | None) -> bool:
        try:
            return value is None or value.decode() is not None
        except UnicodeDecodeError:
            return False

    rows = pa.table({"n": range(len(values)), "v": pa.chunked_array([texts(values[:7]), texts(values[7:])])}).slice(
        skip
    )
    assert rows_without_text(rows).tolist() == [not is_text(value) for value in values[skip:]]


@pytest.mark.parametrize("at", [0, 63, 64, 65, 4095, 4096, 9999])
def test_one_of_many(at):
    found = rows_without_text(pa.table({"v": texts([b"x"] * at + [WRONG] + [b"y"] * (9999 - at))}))
    assert np.flatnonzero(found).tolist() == [at]


@pytest.mark.parametrize("skip", [0, 1, 3])
def test_inside_structs_lists_and_maps(skip):
    rows = 6
    inner = texts([b"a", WRONG, b"b", None, b"c", WRONG])
    struct = pa.StructArray.from_arrays([inner], ["x"])
    offsets = pa.array([0, 1, 1, 3, 3, 5, 6], pa.int32())
    keys = texts([b"a", b"b", b"c", b"d", b"e", b"f"])
    columns = {
        "s": ([1, 5], struct),
        "l": ([2, 5], pa.ListArray.from_arrays(offsets, inner)),
        "ls": ([2, 5], pa.ListArray.from_arrays(offsets, struct)),
        "m": ([2, 5], pa.MapArray.from_arrays(offsets, keys, inner)),
        "mk": ([2, 5], pa.MapArray.from_arrays(offsets, texts([b"a", WRONG, b"b", b"x", b"c", WRONG]), keys)),
    }
    for name, (expected, column) in columns.items():
        table = pa.table({name: column}).slice(skip)
        assert len(column) == rows
        found = np.flatnonzero(rows_without_text(table)).tolist()
        assert found == [each - skip for each in expected if each >= skip], name
        assert table.column(name).cast(as_bytes(column.type)).type == as_bytes(column.type)


def test_other_types_are_left():
    kind = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.binary()))])
    assert as_bytes(kind) == kind
    assert as_bytes(pa.map_(pa.string(), pa.list_(pa.string()))) == pa.map_(pa.binary(), pa.list_(pa.binary()))
