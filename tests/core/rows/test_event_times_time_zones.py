"""Local times and instants by the rules of zoneinfo, in all years."""

import datetime as dt
import zoneinfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import OptionError
from upstream.core.rows.event_times import event_time_us, in_utc, instants_near, instants_of, local_micros, times_as
from upstream.operators.windows.kinds import Calendar

ZONES = ["Europe/Berlin", "America/New_York", "Africa/Cairo", "America/Sao_Paulo", "Pacific/Apia", "UTC", "Asia/Tehran"]
EPOCH = dt.datetime(1970, 1, 1)
US = dt.timedelta(microseconds=1)


def instants(*local: dt.datetime, zone: str) -> list[int]:
    column = pa.chunked_array([pa.array([*local, None], pa.timestamp("us"))])
    return in_utc(column, zone).cast(pa.int64()).to_pylist()[:-1]


def by_zoneinfo(local: dt.datetime, zone: str) -> int:
    aware = local.replace(tzinfo=zoneinfo.ZoneInfo(zone))
    return (local - (aware.utcoffset() or dt.timedelta()) - EPOCH) // US


@given(st.lists(st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 12, 31)), min_size=1), st.sampled_from(ZONES))
def test_both_ways_as_zoneinfo(local, zone):
    found = instants(*local, zone=zone)
    there = local_micros(np.array(found), zone).tolist()
    for each, instant, shown in zip(local, found, there, strict=True):
        if shown == (each - EPOCH) // US:  # not skipped
            assert instant == by_zoneinfo(each, zone)


def test_summer_time_never_ends_and_readings_fit_their_calendar_windows():
    (found,) = instants(dt.datetime(2038, 7, 1, 12), zone="Europe/Berlin")
    assert EPOCH + found * US == dt.datetime(2038, 7, 1, 10)
    days = pa.array([dt.date(2038, 7, 1), dt.date(2500, 3, 31), dt.date(2018, 11, 4), dt.date(9998, 7, 1)])
    for zone in ("Europe/Berlin", "America/Sao_Paulo"):  # which skipped the midnight of 2018-11-04
        at = event_time_us(days, None, zone)
        assert at.tolist() == Calendar(zone, "day").beginnings(days.cast(pa.int32()).to_numpy()).tolist()
        assert times_as(at, days.type, None, zone).equals(days)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_skipped_times_are_the_change_and_repeated_ones_the_first(unit):
    local = pa.array(["2024-03-31T02:30:00", "2024-10-27T02:30:00", None, "2024-03-31T03:00:00"])
    found = in_utc(pa.chunked_array([local.cast(pa.timestamp(unit))]), "Europe/Berlin")
    change = pa.array(["2024-03-31T01:00:00", "2024-10-27T00:30:00", None, "2024-03-31T01:00:00"])
    assert found.combine_chunks().cast(pa.timestamp(unit)).equals(change.cast(pa.timestamp(unit)))


def micros(*texts: str) -> np.ndarray:
    return np.array([(dt.datetime.fromisoformat(each) - EPOCH) // US for each in texts])


def test_skipped_times_are_later_by_what_is_skipped_where_that_is_asked_for():
    local = micros("2024-03-31T02:30:00", "2024-10-27T02:30:00", "2024-07-01T12:00:00")
    shifted = instants_of(local, "Europe/Berlin", shifted=True)
    assert shifted.tolist() == micros("2024-03-31T01:30:00", "2024-10-27T00:30:00", "2024-07-01T10:00:00").tolist()
    assert instants_of(local, "Europe/Berlin")[0] == micros("2024-03-31T01:00:00")[0]
    assert instants_of(local, "+02:00", shifted=True)[0] == micros("2024-03-31T00:30:00")[0]


def test_a_time_that_was_moved_keeps_its_offset_where_it_can():
    twice = micros(*["2024-10-27T02:30:00"] * 3)
    before = micros("2024-10-26T12:00:00", "2024-10-27T03:00:00", "2024-12-01T12:00:00")
    found = instants_near(twice, before, "Europe/Berlin").tolist()
    assert found == micros("2024-10-27T00:30:00", "2024-10-27T01:30:00", "2024-10-27T01:30:00").tolist()
    skipped = instants_near(micros("2024-03-31T02:30:00"), micros("2024-03-30T12:00:00"), "Europe/Berlin")
    assert skipped.tolist() == micros("2024-03-31T01:30:00").tolist()


def test_offsets_are_zones_and_what_is_neither_is_refused():
    assert instants(EPOCH, zone="-01:30") == [5_400_000_000]
    with pytest.raises(OptionError, match="Mars/Base"):
        instants(EPOCH, zone="Mars/Base")
