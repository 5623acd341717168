"""Event times of every type, in one unit."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import OptionError, SchemaError
from upstream.frames.times import NO_TIME, check_time_type, check_time_zone, event_time_us, time_scalar

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
    ],
)
def test_the_same_instant_in_every_form(column: pa.Array, time_format: str | None, zone: str) -> None:
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
    ],
)
def test_what_is_no_time_is_marked(column: pa.Array, time_format: str | None) -> None:
    assert set(event_time_us(column, time_format, "UTC").tolist()) == {NO_TIME}


def test_before_the_epoch_a_part_of_a_microsecond_belongs_to_the_earlier_one() -> None:
    for column, time_format in ((pa.array([-1], pa.timestamp("ns", tz="UTC")), None), (pa.array([-1]), "epoch_ns")):
        assert event_time_us(column, time_format, "UTC").tolist() == [-1]
    assert event_time_us(pa.array([-1], pa.date32()), None, "UTC").tolist() == [-86_400_000_000]


@given(st.integers(-(9 * 10**15), 9 * 10**15), st.sampled_from(["epoch_s", "epoch_ms", "epoch_us", "epoch_ns"]))
def test_a_bound_in_the_columns_terms_never_promises_more(bound_us: int, unit: str) -> None:
    for dtype in (pa.int64(), pa.timestamp("us", tz="UTC"), pa.date32()):
        scalar = time_scalar(bound_us, dtype, unit)
        back = int(event_time_us(pa.array([scalar.as_py()], dtype), unit, "UTC")[0])
        assert back <= bound_us
        assert bound_us - back <= {pa.date32(): 86_400_000_000}.get(dtype, 1_000_000)


def test_numbers_need_a_unit_and_lists_are_no_times() -> None:
    with pytest.raises(SchemaError, match=r"'ms' holds numbers .*epoch_ms"):
        check_time_type("ms", pa.int64(), None)
    with pytest.raises(SchemaError, match="timestamp, a date, text or a number"):
        check_time_type("x", pa.list_(pa.int64()), None)
    with pytest.raises(SchemaError, match="strptime"):
        check_time_type("x", pa.string(), "yyyy")
    assert event_time_us(pa.array([dt.date(1970, 1, 2)]), None, "UTC").tolist() == [86_400_000_000]


def test_zones_are_known_before_the_first_row() -> None:
    for name in ("UTC", "Z", "gmt", "Europe/Paris", "+02:00"):
        check_time_zone("timeZone", name)
    for name in ("Mars", "", "Europe/Pari"):
        with pytest.raises(OptionError, match=rf"timeZone='{name}'.*IANA name such as 'Europe/Paris'"):
            check_time_zone("timeZone", name)
