import pyarrow as pa
import pytest

from upstream.conf.errors import OptionError, SchemaError
from upstream.operators.joins.band import Interval, IntervalBand, TumblingBand, band_of, distance_of, interval, unit_of


@pytest.mark.parametrize(
    ("kind", "time_format", "unit"),
    [
        (pa.timestamp("us", tz="UTC"), None, 1),
        (pa.timestamp("ms"), None, 1),
        (pa.date32(), None, 86_400_000_000),
        (pa.int64(), None, None),
        (pa.int64(), "epoch_s", 1_000_000),
        (pa.int64(), "epoch_ms", 1_000),
        (pa.int64(), "epoch_us", 1),
    ],
)
def test_the_unit_of_a_time(kind, time_format, unit):
    assert unit_of("t", kind, time_format) == unit


def test_times_without_a_distance_are_refused():
    for kind in (pa.float64(), pa.string()):
        with pytest.raises(SchemaError, match="a join by the time 't'"):
            unit_of("t", kind, None)
    with pytest.raises(OptionError, match="epoch_ns"):
        unit_of("t", pa.int64(), "epoch_ns")


def test_durations_are_rounded_down_to_whole_units():
    assert distance_of("before", "1500 ms", 1_000) == 1500
    assert distance_of("before", "1500 ms", 1_000_000) == 1
    # Whole seconds are at least one and a half seconds later if they are two seconds later.
    assert distance_of("before", "-1500 ms", 1_000_000) == -2
    assert distance_of("before", 7, None) == 7
    assert distance_of("before", "2 minutes", 1) == 120_000_000


@pytest.mark.parametrize(
    ("value", "unit"), [("soon", 1), (7, 1_000), (True, None), ("1 minute", None), (1 << 61, None), (None, 1)]
)
def test_what_is_no_distance_is_refused(value, unit):
    with pytest.raises(OptionError, match="before="):
        distance_of("before", value, unit)


def test_bands():
    assert band_of(interval(before="1 s", after="2 s"), None, 1_000) == IntervalBand(1_000, 2_000)
    assert band_of(interval(before=-3, after=3), None, None) == IntervalBand(-3, 3)
    assert band_of(None, "1 minute", 1_000_000) == TumblingBand(60)
    assert interval() == Interval("0 s", "0 s")
    for within, tumbling, match in (
        (None, None, "without a bound"),
        (interval(), "1 s", "both within and tumbling"),
        (interval(before=-4, after=3), None, "no time is that far"),
        ("1 minute", None, "both directions by name"),
        (None, "100 ms", "at least one unit"),
    ):
        with pytest.raises(OptionError, match=match):
            band_of(within, tumbling, None if within is not None and tumbling is None else 1_000_000)
