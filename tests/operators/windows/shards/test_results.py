"""Columns in, columns out."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from upstream.conf.errors import MalformedRowError, SchemaError
from upstream.core.rows.event_times import event_time_us
from upstream.operators.windows.kinds import LandmarkWindows, SlidingWindows
from upstream.operators.windows.parse import window_by_time
from upstream.operators.windows.shards.results import ends_column, windowing_values

UTC = dt.timezone.utc


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        (pa.array([0, -1], pa.timestamp("us", "UTC")), [0, -1]),
        (pa.array([0, -1], pa.timestamp("s", "Europe/Paris")), [0, -1_000_000]),
        (pa.array([0, 1], pa.timestamp("ms")), [-3_600_000_000, -3_599_999_000]),  # local in Paris
        (pa.array([1999, -1, -1000, -1001], pa.timestamp("ns", "UTC")), [1, -1, -1, -2]),
        (pa.array([1, -1], pa.int16()), [1, -1]),
        (pa.chunked_array([[7], [8]], pa.uint64()), [7, 8]),
        (pa.chunked_array([], pa.timestamp("us", "UTC")), []),
        (pa.array([1, -1], pa.int32()).cast(pa.date32()), [82_800_000_000, -90_000_000_000]),  # at midnight in Paris
    ],
)
def test_times_become_microseconds_and_numbers_stay(column, wanted):
    assert windowing_values("at", column, "Europe/Paris").tolist() == wanted


@pytest.mark.parametrize(
    "column", [pa.array([1.5]), pa.array(["2024-01-01"]), pa.array([True]), pa.array([dt.time(1)])]
)
def test_other_types_are_refused(column):
    with pytest.raises(SchemaError, match=r"windows over the column 'at'.*cast it"):
        windowing_values("at", column)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None, 3]),
        pa.array([2**63], pa.uint64()),
        pa.array([2**62], pa.timestamp("s", "UTC")),
        pa.array([2**31 - 1], pa.int32()).cast(pa.date32()),
    ],
)
def test_a_row_without_a_value_is_not_lost_silently(column):
    with pytest.raises(MalformedRowError, match="'at'"):
        windowing_values("at", column)


def test_ends_are_timestamps_again():
    column = pa.array(
        [dt.datetime(1969, 12, 31, 23, 59, 30, tzinfo=UTC), dt.datetime(9999, 12, 31, 23, 59, tzinfo=UTC)]
    )
    windows = window_by_time("1 minute")
    low, high = windows.extent(windows.wids(windowing_values("at", column))[0])
    assert ends_column(low, column.type).to_pylist() == [
        dt.datetime(1969, 12, 31, 23, 59, tzinfo=UTC),
        dt.datetime(9999, 12, 31, 23, 59, tzinfo=UTC),
    ]
    assert ends_column(high, column.type)[0].as_py() == dt.datetime(1970, 1, 1, tzinfo=UTC)


def test_a_landmark_window_begins_with_null():
    low, high = LandmarkWindows(10).extent(np.array([1]))
    assert ends_column(low, pa.timestamp("us", "UTC")).to_pylist() == [None]
    assert ends_column(high, pa.int64()).to_pylist() == [20]
    assert ends_column(SlidingWindows(5, 5).extent(np.array([0]))[0], pa.int32()).to_pylist() == [0]


def test_no_leap_seconds():
    """POSIX time has none: the second after 2016-12-31T23:59:59Z is that of midnight, whatever it is called."""
    called = event_time_us(pa.array(["2016-12-31T23:59:60Z", "2017-01-01T00:00:00Z"]), None, "UTC")
    assert called[0] == called[1]
    column = pa.array([dt.datetime(2016, 12, 31, 23, 59, 59, tzinfo=UTC), dt.datetime(2017, 1, 1, tzinfo=UTC)])
    low, high = windowing_values("at", column)
    assert high - low == 1_000_000
    for windows in (window_by_time("1 minute"), window_by_time("1 day", zone="UTC")):
        first, _ = windows.wids(np.array([low, high]))
        assert first[1] == first[0] + 1
        assert windows.extent(first)[1][0] == high
