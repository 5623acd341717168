"""Columns under collations, as Spark's own schemas describe them."""

import pytest
from pyspark.sql.types import ArrayType, DataType, LongType, MapType, StringType, StructField, StructType

from upstream.conf.errors import SchemaError
from upstream.core.rows.text import check_collations, collations_of

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
