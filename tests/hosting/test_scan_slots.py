"""Slots of rows: equal values share one, other values spread, and it is the same slot in every process."""

import struct
from datetime import datetime, timezone
from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.hosting.scan import slots_of

MANY = 1 << 20


def slot(value, dtype):
    return int(slots_of([pl.Series([value], dtype=dtype)], MANY)[0])


def test_slots_are_the_same_for_good():
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone.utc)
    found = [
        slot(7, pl.Int64),
        slot("seven", pl.String),
        slot(None, pl.String),
        slot(0.5, pl.Float64),
        slot(Decimal("1.50"), pl.Decimal(10, 2)),
        slot(Decimal("1.50"), pl.Decimal(38, 2)),
        slot(moment, pl.Datetime("us", "UTC")),
        slot(moment.date(), pl.Date),
        slot(True, pl.Boolean),
        slot(b"\x00\xff", pl.Binary),
    ]
    assert found == [190004, 797126, 373007, 494027, 990692, 905840, 467980, 240724, 27841, 574542]


def test_equal_values_share_a_slot_whatever_their_form():
    assert slot(0.0, pl.Float64) == slot(-0.0, pl.Float64) == slot(-0.0, pl.Float32)
    payload = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000123))[0]
    assert slot(float("nan"), pl.Float64) == slot(payload, pl.Float64) == slot(float("nan"), pl.Float32)
    assert len({slot(-5, kind) for kind in (pl.Int8, pl.Int16, pl.Int32, pl.Int64)}) == 1
    assert len({slot(5, kind) for kind in (pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.Int64)}) == 1
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    assert len({slot(moment, pl.Datetime(unit, "UTC")) for unit in ("ms", "us", "ns")}) == 1
    kinds = (pl.String, pl.Int64, pl.Float64, pl.Date, pl.Boolean, pl.Decimal(20, 3))
    assert len({slot(None, kind) for kind in kinds}) == 1


def test_other_values_have_other_slots():
    assert slot(1, pl.Int64) != slot(2, pl.Int64)
    assert slot(None, pl.Int64) != slot(0, pl.Int64)
    assert slot(0.5, pl.Float64) != slot(float("nan"), pl.Float64)


@given(st.lists(st.tuples(st.none() | st.text(max_size=5), st.none() | st.integers(-(1 << 63), (1 << 63) - 1))))
def test_a_slot_is_a_function_of_the_row_and_not_of_its_neighbours(rows):
    frame = pl.DataFrame(rows, schema={"a": pl.String, "b": pl.Int64}, orient="row")
    together = slots_of(frame.get_columns(), 5)
    assert together.dtype == np.int64
    assert ((together >= 0) & (together < 5)).all()
    alone = [int(slots_of(frame[at].get_columns(), 5)[0]) for at in range(frame.height)]
    assert together.tolist() == alone


def test_rows_spread_over_all_slots_and_over_all_pages_within_a_slot():
    values = pl.Series(range(8000))
    slots = slots_of([values], 8)
    assert np.bincount(slots, minlength=8).min() > 800
    from upstream.operators.relations.zsets import key_numbers

    numbers = key_numbers(values.to_frame("v").filter(pl.Series(slots == 3)), ["v"])
    assert np.bincount(numbers % 8, minlength=8).min() > 80


def test_lists_do_not_matter_and_no_columns_are_no_slot():
    lists = pl.Series([[1], [2], [3]])
    assert len({*slots_of([lists], 64).tolist()}) == 1
    with pytest.raises(ValueError, match="gathered"):
        slots_of([], 8)


def test_structs_go_by_their_fields():
    values = pl.Series([{"a": 0.0, "b": "x"}, {"a": -0.0, "b": "x"}, {"a": 0.0, "b": "y"}])
    one, same, other = slots_of([values], MANY).tolist()
    assert one == same != other
