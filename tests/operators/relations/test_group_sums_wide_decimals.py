"""Decimals of more than 38 digits lie in frames as bytes, nulls and slices included."""

import decimal

import polars as pl
import pyarrow as pa
import pytest

from upstream.operators.relations.group_sums import as_bytes, from_bytes, stored_schema

VALUES = [decimal.Decimal("1.50"), None, decimal.Decimal("-" + "9" * 60 + ".25"), decimal.Decimal(0)]
WIDE = pa.table({"n": pa.array([1, 2, 3, 4]), "s": pa.array(VALUES, pa.decimal256(76, 2)), "t": ["a", "b", None, "d"]})


@pytest.mark.parametrize("table", [WIDE, WIDE.slice(1, 2), WIDE.slice(0, 0), pa.concat_tables([WIDE, WIDE.slice(2)])])
def test_they_go_through_a_frame_and_come_back(table):
    stored = as_bytes(table)
    assert stored.schema == stored_schema(table.schema)
    frame = pl.from_arrow(stored)
    back = frame.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(stored.schema)
    assert from_bytes(back, table.schema).equals(table)


def test_other_columns_stay_as_they_are():
    narrow = WIDE.drop_columns(["s"])
    assert as_bytes(narrow) is narrow
    assert from_bytes(narrow, narrow.schema) is narrow
