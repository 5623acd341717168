"""Bounds of feeds through punctuation rows: every type of time holds both infinities, and readers can read them."""

import datetime as dt

import pyarrow as pa
import pytest

from upstream.core.rows.sort_keys import in_order, ordered
from upstream.core.watermark.bounds import AFTER_ALL, BEFORE_ALL, beginning, bounds_in, is_finite, times_of_bounds

KINDS = [
    pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("ms", "Asia/Tokyo"), pa.date32(),
    pa.int64(), pa.int32(), pa.int16(), pa.float64(), pa.float32(),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_bounds_go_through_punctuation_rows_and_come_back(kind):
    numbers = pa.array([-3000, 0, 7000], pa.int32())
    points = ordered(pa.chunked_array([(numbers if pa.types.is_date(kind) else numbers.cast(pa.int64())).cast(kind)]))
    bounds = [BEFORE_ALL, *points.tolist(), AFTER_ALL]
    column = times_of_bounds(bounds, kind, lambda bound: in_order(bound, kind))
    assert column.null_count == 1
    assert bounds_in(column, ordered).tolist() == bounds
    # A reader that does not know the mark takes it for a time before all others: it waits, and promises nothing.
    order = ordered(pa.chunked_array([column.drop_null()])).tolist()
    assert order == sorted(order)


def test_the_mark_can_be_held_by_python_and_by_pandas():
    mark = beginning(pa.timestamp("us", "UTC"))
    assert mark.as_py() == dt.datetime(1700, 1, 1, tzinfo=dt.timezone.utc)
    assert (
        pa.array([mark.as_py()], pa.timestamp("us", "UTC")).cast(pa.timestamp("ns", "UTC")).to_pandas()[0].year == 1700
    )


def test_a_type_that_holds_no_time_has_no_mark():
    assert not beginning(pa.string()).is_valid


def test_only_points_in_time_are_finite():
    assert [is_finite(each) for each in (None, BEFORE_ALL, BEFORE_ALL + 1, 0, AFTER_ALL - 1, AFTER_ALL)] == [
        False, False, True, True, True, False,
    ]  # fmt: skip
