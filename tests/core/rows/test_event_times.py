"""Event times of every type, in one unit."""

import datetime as dt
import zoneinfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from upstream.conf.errors import OptionError, SchemaError
from upstream.core.rows.event_times import (
    NO_TIME,
    check_time_type,
    check_time_zone,
    event_time_us,
    in_utc,
    instants_near,
    instants_of,
    local_micros,
    rows_beyond_years,
    time_scalar,
    times_as,
    with_python_times,
)
from upstream.operators.windows.kinds import Calendar

HALF_PAST = 1_479_967_251_000_000  # 2016-11-24T06:00:51Z


@pytest.mark.parametrize(
    ("column", "time_format", "zone"),
    [
        (pa.array(["2016-11-24T00:00:51-06:00"]), None, "UTC"),
        (pa.array(["2016-11-24 00:00:51-06:00"]), None, "UTC"),
        (pa.array(["2016-11-24T06:00:51Z"]), None, "America/Chicago"),
        (pa.array(["2016-11-24T00:00:51"]), None, "America/Chicago"),
        (pa.array(["24/11/2016 06:00:51"]), "%d/%m/%Y %H:%M:%S", "UTC"),
        (pa.array(["24/11/2016 00:00:51 -0600"]), "%d/%m/%Y %H:%M:%S %z", "UTC"),
        (pa.array([1_479_967_251]), "epoch_s", "UTC"),
        (pa.array([1_479_967_251.0]), "epoch_s", "UTC"),
        (pa.array([1_479_967_251_000]), "epoch_ms", "UTC"),
        (pa.array([HALF_PAST]), "epoch_us", "UTC"),
        (pa.array([HALF_PAST * 1000 + 999]), "epoch_ns", "UTC"),
        (pa.array([1_479_967_251], pa.timestamp("s")), None, "UTC"),
        (pa.array([HALF_PAST * 1000], pa.timestamp("ns", tz="UTC")), None, "UTC"),
        (pa.array([1_479_945_651], pa.timestamp("s")), None, "America/Chicago"),
        (pa.array(["2016-11-24T07:00:51+01"]), None, "America/Chicago"),
        (pa.array(["2016-11-24 07:00:51.0+0100"]), None, "America/Chicago"),
    ],
)
def test_the_same_instant_in_every_form(column, time_format, zone):
    assert event_time_us(column, time_format, zone).tolist() == [HALF_PAST]


@pytest.mark.parametrize(
    ("column", "time_format"),
    [
        (pa.array(["no time", None, ""]), None),
        (pa.array(["no time", None]), "%Y"),
        (pa.array([float("nan"), None, float("inf"), 1e300]), "epoch_s"),
        (pa.array([None, 2**62], pa.int64()), "epoch_s"),
        (pa.array([None], pa.timestamp("us")), None),
        (pa.array([None], pa.date32()), None),
        (pa.array([2**62, -(2**62)], pa.timestamp("s", tz="UTC")), None),
        (pa.array([2**31 - 1], pa.date32()), None),
        (pa.array([253_402_300_800, -62_135_596_801]), "epoch_s"),
        (pa.array([1_718_000_000_000]), "epoch_s"),
        (pa.array([253_402_300_800.0]), "epoch_s"),
        (pa.array([253_402_300_800], pa.timestamp("s", tz="UTC")), None),
    ],
)
def test_what_is_no_time_is_marked(column, time_format):
    assert set(event_time_us(column, time_format, "UTC").tolist()) == {NO_TIME}


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2024-07-01", "2024-07-01T00:00:00+02:00"),
        ("2024-07-01T10:00", "2024-07-01T10:00:00+02:00"),
        ("2024-07-01 10:00", "2024-07-01T10:00:00+02:00"),
        ("2024-07-01T10:00Z", "2024-07-01T10:00:00+00:00"),
        ("2024-07-01T10:00+01", "2024-07-01T10:00:00+01:00"),
        ("2024-07-01T10:00-01:30", "2024-07-01T10:00:00-01:30"),
        ("2024-07-01T10:00:00.5+01", "2024-07-01T10:00:00.500+01:00"),
    ],
)
def test_iso_text_may_leave_parts_out(text, instant):
    meant = int(dt.datetime.fromisoformat(instant).timestamp() * 1_000_000)
    column = pa.array(["no time", text, "2024-07-01T00:00:00Z", None])
    found = event_time_us(column, None, "Europe/Paris").tolist()
    assert found == [NO_TIME, meant, 1_719_792_000_000_000, NO_TIME]


def test_a_day_begins_where_the_zone_says():
    days = pa.array([dt.date(2024, 7, 1), dt.date(2024, 1, 1), None])
    for column in (days, days.cast(pa.date64())):
        found = event_time_us(column, None, "America/New_York").tolist()
        assert found == [1_719_806_400_000_000, 1_704_085_200_000_000, NO_TIME]
        assert found == [*event_time_us(column.cast(pa.timestamp("us")), None, "America/New_York").tolist()]


@given(
    st.integers(-(9 * 10**15), 9 * 10**15),
    st.sampled_from(["epoch_s", "epoch_ms", "epoch_us", "epoch_ns"]),
    st.sampled_from([pa.float64(), pa.float32()]),
)
@example(8_999_999_999_998_622, "epoch_s", pa.float64())
def test_a_float_is_below_a_bound_in_both_terms_or_in_neither(bound_us, unit, dtype):
    kind = dtype.to_pandas_dtype()
    at = kind(time_scalar(bound_us, dtype, unit).as_py())
    before, back = event_time_us(pa.array([np.nextafter(at, kind(-np.inf)), at], dtype), unit, "UTC").tolist()
    assert before < bound_us
    if dtype == pa.float32():
        assert back <= bound_us
        return
    # In and after the year 2242, two microseconds can have one double of seconds: it means the later one.
    microsecond = {"epoch_s": 1e-6, "epoch_ms": 1e-3, "epoch_us": 1, "epoch_ns": 1e3}[unit]
    assert bound_us <= back <= bound_us + max(0, np.spacing(np.abs(at)) / microsecond - 1)


def test_part_of_a_microsecond_is_cut_from_floats():
    values = [1.9999996, 0.5, 1_718_000_000.000001, 1_104_537_600.000001, -0.0000001]
    found = event_time_us(pa.array(values), "epoch_s", "UTC").tolist()
    assert found == [1_999_999, 500_000, 1_718_000_000_000_001, 1_104_537_600_000_001, -1]


def test_before_the_epoch_a_part_of_a_microsecond_belongs_to_the_earlier_one():
    for column, time_format in ((pa.array([-1], pa.timestamp("ns", tz="UTC")), None), (pa.array([-1]), "epoch_ns")):
        assert event_time_us(column, time_format, "UTC").tolist() == [-1]
    assert event_time_us(pa.array([-1], pa.date32()), None, "UTC").tolist() == [-86_400_000_000]


@given(
    st.integers(-(9 * 10**15), 9 * 10**15),
    st.sampled_from(["epoch_s", "epoch_ms", "epoch_us", "epoch_ns"]),
    st.sampled_from(["UTC", "Asia/Tokyo", "America/New_York", "Europe/Paris"]),
)
def test_a_bound_in_the_columns_terms_never_promises_more(bound_us, unit, zone):
    for dtype in (pa.int64(), pa.timestamp("us", tz="UTC"), pa.date32()):
        scalar = time_scalar(bound_us, dtype, unit, zone)
        back = int(event_time_us(pa.array([scalar.as_py()], dtype), unit, zone)[0])
        assert back <= bound_us
        # A row of the day before is below the bound in both terms, one of this day in neither.
        assert bound_us - back <= (25 * 3_600_000_000 if dtype == pa.date32() else 1_000_000)


def test_numbers_need_a_unit_and_lists_are_no_times():
    with pytest.raises(SchemaError, match=r"'ms' holds numbers .*epoch_ms"):
        check_time_type("ms", pa.int64(), None)
    with pytest.raises(SchemaError, match="timestamp, a date, text or a number"):
        check_time_type("x", pa.list_(pa.int64()), None)
    with pytest.raises(SchemaError, match="strptime"):
        check_time_type("x", pa.string(), "yyyy")
    assert event_time_us(pa.array([dt.date(1970, 1, 2)]), None, "UTC").tolist() == [86_400_000_000]


def test_zones_are_known_before_the_first_row():
    for name in ("UTC", "Z", "gmt", "Europe/Paris", "+02:00"):
        check_time_zone("timeZone", name)
    for name in ("Mars", "", "Europe/Pari"):
        with pytest.raises(OptionError, match=rf"timeZone='{name}'.*IANA name such as 'Europe/Paris'"):
            check_time_zone("timeZone", name)


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


BEYOND = pa.array(
    [-62_135_596_800_000_001, -62_135_596_800_000_000, 253_402_300_799_999_999, 253_402_300_800_000_000, None]
)


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("s"), pa.date32()])
@pytest.mark.parametrize("within", ["column", "struct", "list", "map"])
def test_times_that_python_cannot_hold_are_seen_and_are_text(kind, within):
    days = [-719_163, -719_162, 2_932_896, 2_932_897, None]
    micros = pa.array(BEYOND, pa.int64()).cast(pa.timestamp("us", kind.tz if pa.types.is_timestamp(kind) else None))
    times = pa.array(days, pa.int32()).cast(kind) if pa.types.is_date(kind) else micros.cast(kind, safe=False)
    each = pa.array(np.arange(6), pa.int32())
    column = {
        "column": times,
        "struct": pa.StructArray.from_arrays([times], ["t"]),
        "list": pa.ListArray.from_arrays(each, times),
        "map": pa.MapArray.from_arrays(each, pa.array(list("abcde")), times),
    }[within]
    rows = rows_beyond_years(pa.chunked_array([column]))
    low = kind != pa.timestamp("s")  # there the first is the second after
    assert rows.tolist() == [low, False, False, True, False]
    made = with_python_times(pa.table({"t": column})).to_pylist()
    assert "+10000-01-01" in str(made[3]) or "10000-01-01" in str(made[3])
    good = pa.chunked_array([column.slice(1, 2)])
    assert rows_beyond_years(good) is None
    assert with_python_times(pa.table({"t": good})).column("t").type == column.type
