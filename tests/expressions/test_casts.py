import math
from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.failures import fails

from upstream.expressions.casts import decoded
from upstream.expressions.kinds import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LOCAL_TIMESTAMP,
    LONG,
    SHORT,
    TEXT,
    TIMESTAMP,
)

from .values import evaluate, evaluate_cast

_MONEY = pa.decimal128(5, 2)
_UTC = timezone.utc


def _tried(values: Sequence[object], given: pa.DataType, wanted: pa.DataType) -> list[object]:
    """What try_cast gives, after a look that cast fails exactly where that is null."""
    found = evaluate_cast((values, given), wanted, try_=True)
    for value, made in zip(values, found, strict=True):
        if made is None and value is not None:
            fails("cannot be cast", evaluate_cast, ([value], given), wanted)
        else:
            kept = evaluate_cast(([value], given), wanted)[0]
            assert kept == made or (math.isnan(kept) and math.isnan(made))
    return found


@pytest.mark.parametrize(("wanted", "bits"), [(BYTE, 8), (SHORT, 16), (INT, 32), (LONG, 64)], ids=str)
def test_to_whole_numbers(wanted, bits):
    most = 2 ** (bits - 1) - 1
    texts = [str(most), str(most + 1), f"-{most + 1}", f"-{most + 2}", " +7\t", "7.0", "", None, "1e1", "--1"]
    assert _tried(texts, TEXT, wanted) == [most, None, -most - 1, None, 7, None, None, None, None, None]
    wide = pa.decimal128(22, 2)
    decimals = [Decimal(f"{most}.99"), Decimal(most + 1), Decimal(f"-{most + 1}.99"), Decimal("-0.99")]
    assert _tried(decimals, wide, wanted) == [most, None, -most - 1, 0]
    if bits < 64:
        assert _tried([most, most + 1, -most - 1, -most - 2], LONG, wanted) == [most, None, -most - 1, None]
        doubles = [most + 0.9, most + 1.0, -most - 1.9, -most - 2.0, math.nan, math.inf, -0.5]
        assert _tried(doubles, DOUBLE, wanted) == [most, None, -most - 1, None, None, None, 0]


def test_to_decimals():
    assert _tried([999, 1000, -999], INT, _MONEY) == [Decimal(999), None, Decimal(-999)]
    rounded = [Decimal("999.99"), None, Decimal("2.68"), None, Decimal("0.10"), Decimal("0.00")]
    assert _tried([999.994, 999.995, 2.675, 1e300, 0.1, 1e-10], DOUBLE, _MONEY) == rounded
    assert evaluate_cast(([math.nan, math.inf, None], DOUBLE), _MONEY) == [None, None, None], "as Spark"
    wide = pa.decimal128(38, 18)
    halves = [Decimal("1.005"), Decimal("-1.005"), Decimal("999.995")]
    assert _tried(halves, wide, _MONEY) == [Decimal("1.01"), Decimal("-1.01"), None]
    assert _tried([Decimal("999.99")], _MONEY, pa.decimal128(38, 37)) == [None]
    assert evaluate_cast(([True, False, None], BOOLEAN), _MONEY) == [Decimal(1), Decimal(0), None]


def test_to_and_from_doubles_the_nearest():
    values = [Decimal("0.1"), Decimal("12345678901234567890.123456789012345678"), None, Decimal("-1E-18")]
    assert evaluate_cast((values, pa.decimal128(38, 18)), DOUBLE) == [0.1, 12345678901234567890.123456789, None, -1e-18]
    assert evaluate_cast(([2**63 - 1, 2**53 + 1], LONG), DOUBLE) == [2.0**63, 2.0**53]
    assert evaluate_cast(([1e300, 0.1, None], DOUBLE), FLOAT) == [math.inf, pytest.approx(0.1), None]
    beyond = math.nextafter(2.0**63, math.inf)
    assert _tried([2.0**63, beyond, -(2.0**63), -beyond], DOUBLE, LONG) == [2**63 - 1, None, -(2**63), None]


def test_to_booleans():
    texts = ["t", " TRUE ", "y", "Yes", "1", "f", "false", "N", "no", "0", "2", "", None]
    assert _tried(texts, TEXT, BOOLEAN) == [True] * 5 + [False] * 5 + [None] * 3
    assert evaluate_cast(([0.0, -0.0, math.nan, 2.0, None], DOUBLE), BOOLEAN) == [False, False, True, True, None]
    assert evaluate_cast(([Decimal("0.00"), Decimal("0.01")], _MONEY), BOOLEAN) == [False, True]


def test_to_text():
    assert evaluate_cast(([True, False, None], BOOLEAN), TEXT) == ["true", "false", None]
    assert evaluate_cast(([-(2**63), 0], LONG), TEXT) == ["-9223372036854775808", "0"]
    assert evaluate_cast(([Decimal("-0.50"), Decimal("100.00")], _MONEY), TEXT) == ["-0.50", "100.00"]
    assert evaluate_cast((["é", None], TEXT), BINARY) == ["é".encode(), None]
    assert evaluate_cast((["é".encode()], BINARY), TEXT) == ["é"]
    for tried in (False, True):  # Spark keeps the bytes, so null would be another value
        fails("not UTF-8", evaluate_cast, ([b"a", b"\xff"], BINARY), TEXT, try_=tried)


def test_among_times_and_numbers():
    before = datetime(1969, 12, 31, 23, 59, 58, 500_000, _UTC)
    assert evaluate_cast(([before, None], TIMESTAMP), DATE) == [date(1969, 12, 31), None]
    assert evaluate_cast(([before], TIMESTAMP), LONG) == [-2]
    assert evaluate_cast(([before], TIMESTAMP), DOUBLE) == [-1.5]
    assert evaluate_cast(([before], TIMESTAMP), pa.decimal128(10, 1)) == [Decimal("-1.5")]
    assert evaluate_cast(([before], TIMESTAMP), LOCAL_TIMESTAMP) == [before.replace(tzinfo=None)]
    assert evaluate_cast(([date(1970, 1, 2)], DATE), TIMESTAMP) == [datetime(1970, 1, 2, tzinfo=_UTC)]
    assert evaluate_cast(([-2, None], LONG), TIMESTAMP) == [datetime(1969, 12, 31, 23, 59, 58, tzinfo=_UTC), None]
    assert evaluate_cast(([-1.5], DOUBLE), TIMESTAMP) == [before]
    assert evaluate_cast(([Decimal("-1.50")], _MONEY), TIMESTAMP) == [before]
    assert _tried([datetime(9999, 1, 1, tzinfo=_UTC), before], TIMESTAMP, INT) == [None, -2]
    fails("cannot be cast", evaluate_cast, ([math.nan], DOUBLE), TIMESTAMP)
    wide = pa.decimal128(38, 37)
    given = ["0." + "0" * 6 + "9" * 31, "-0." + "0" * 6 + "9" * 31, "0.1234567" + "9" * 30, "1." + "9" * 37]
    made = evaluate_cast(([Decimal(each) for each in given], wide), TIMESTAMP)
    epoch = datetime(1970, 1, 1, tzinfo=_UTC)
    assert [(each - epoch) // timedelta(microseconds=1) for each in made] == [0, 0, 123456, 2_000_000]


@pytest.mark.parametrize("seconds", [253_402_300_800, -62_135_596_801, 2**62])
def test_timestamps_outside_the_years_are_an_error_of_try_cast_too(seconds):
    fails("years 1 to 9999", evaluate_cast, ([seconds], LONG), TIMESTAMP, try_=True)


def test_other_types_of_arrow_come_in_sparks_own():
    stamps = pa.timestamp("ms", "Europe/Oslo")
    assert evaluate("year", ([datetime(1969, 12, 31, 23, 30, tzinfo=_UTC)], stamps)) == [1969]
    assert evaluate("add", ([200], pa.uint8()), ([100], pa.uint8())) == [300]
    assert evaluate("upper", (["a"], pa.large_string())) == ["A"]
    assert evaluate("upper", (["a", None], pa.dictionary(INT, TEXT))) == ["A", None]


def test_a_long_decimal_becomes_a_small_whole_number_by_way_of_a_double():
    """Spark does so for decimals that do not fit 64 bits, and not for BIGINT."""
    close = Decimal("364.999999999999994381")
    assert evaluate_cast(([close, -close, None], pa.decimal128(38, 18)), SHORT) == [365, -365, None]
    assert evaluate_cast(([close], pa.decimal128(38, 18)), LONG) == [364]
    assert evaluate_cast(([Decimal("9.99999999999999999")], pa.decimal128(18, 17)), INT) == [9]
    assert _tried([Decimal("127.9"), Decimal(128), Decimal("-128.9")], pa.decimal128(38, 18), BYTE) == [127, None, -128]


_PARTS = st.sampled_from([b"\xff", b"\xc3", b"\xa9", b"\xed\xa0\x80", b"\xf0\x9f", b"\n", *map(str.encode, "aé日😀\0")])


def _one(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


@given(st.lists(st.none() | st.lists(_PARTS, max_size=4).map(b"".join), max_size=8), st.integers(0, 3))
def test_each_value_is_decoded_by_itself(values, start):
    series = pl.Series(values, dtype=pl.Binary)[start:]
    assert decoded(series).to_list() == [_one(each) for each in values[start:]]
