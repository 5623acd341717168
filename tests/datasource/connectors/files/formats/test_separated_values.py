"""Numbers and times of CSV, JSON and Kafka's keys: exactly what is written, as Python computes it, or no row."""

import datetime as dt
import math
import re
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kit.malformed_rows import Reported

from upstream.datasource.connectors.files.formats.jsonlines import JsonFormat
from upstream.datasource.connectors.files.formats.lines import Head, LineFormat, parse_lines
from upstream.datasource.connectors.files.formats.separated_values import DelimitedFormat
from upstream.datasource.connectors.kafka.rows import keys_as

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
DECIMALS = [pa.decimal128(*each) for each in ((38, 0), (38, 10), (38, 18), (38, 38), (20, 2), (10, 2), (9, 9), (1, 0))]
FLOATS = [pa.float32(), pa.float64()]
NUMBERS = st.one_of(
    st.from_regex(r"\A-?(0|[1-9][0-9]{0,45})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?\Z"),
    st.integers(-(2**70), 2**70).map(str),
    st.builds("{}e{}".format, st.integers(-999, 999), st.integers(-50, 400)),
    st.decimals(allow_nan=False, allow_infinity=False, places=4).map(str),
)
FORMS = {
    "csv": (DelimitedFormat(header=False, sep=",", quote='"', multi_line=False, null_value=""), "a,{}\na,{}\na,{}\n"),
    "json": (JsonFormat(), '{{"k":"a","v":{}}}\n{{"k":"a","v":{}}}\n{{"k":"a","v":{}}}\n'),
}


def read(name: str, text: str, dtype: pa.DataType, good: str) -> pa.Scalar | None:
    """The value of a text between two good rows, or None for a dead letter."""
    if name == "key":
        column, bad = keys_as([good.encode(), text.encode()], dtype)
        return None if bad[1] else column[1]
    form: LineFormat
    form, line = FORMS[name]
    schema = pa.schema([("k", pa.string()), ("v", dtype)])
    reported = Reported()
    parser = form.parser(Head(0, schema.names), schema, None)
    pieces, count = parse_lines(parser, line.format(good, text, good).encode(), 0, reported, lambda _: ("", None))
    values = [value for table, _ in pieces for value in table.column("v")]
    assert count == len(values) + len(reported) == 3
    assert len(reported) < 2
    return None if reported else values[1]


@pytest.mark.parametrize("name", ["csv", "json", "key"])
@given(text=NUMBERS, dtype=st.sampled_from(DECIMALS))
@example(text="1e30", dtype=pa.decimal128(38, 10))
@example(text="1e30", dtype=pa.decimal128(38, 18))
@example(text="-1" + "0" * 30, dtype=pa.decimal128(38, 18))
@example(text="1e9", dtype=pa.decimal128(10, 2))
@example(text="9" * 28 + "." + "9" * 10, dtype=pa.decimal128(38, 10))
def test_a_decimal_is_exact_or_no_row(name, text, dtype):
    found = read(name, text, dtype, "0")
    with localcontext() as context:
        context.prec = 1000
        meant = Decimal(text)
        unscaled = meant.scaleb(dtype.scale)
        fits = abs(unscaled) < 10**dtype.precision and unscaled == unscaled.to_integral_value()
        if found is not None:
            assert found.as_py() == meant
            assert fits
        elif fits:  # longer than any decimal with its zeros
            assert len(re.sub(r"[eE].*|[-.]", "", text)) > 38 - dtype.scale or "e" in text.lower()


@pytest.mark.parametrize("name", ["csv", "json", "key"])
@given(text=NUMBERS, dtype=st.sampled_from(INTEGERS))
@example(text="0x1F", dtype=pa.int64())
@example(text="9223372036854775808", dtype=pa.int64())
def test_a_whole_number_is_exact_or_no_row(name, text, dtype):
    found = read(name, text, dtype, "0")
    fits = bool(re.fullmatch(r"-?[0-9]+", text)) and -(2 ** (dtype.bit_width - 1)) <= int(text) < 2 ** (
        dtype.bit_width - 1
    )
    assert (None if found is None else found.as_py()) == (int(text) if fits else None)


@pytest.mark.parametrize("name", ["csv", "json", "key"])
@given(text=NUMBERS, dtype=st.sampled_from(FLOATS))
@example(text="1e400", dtype=pa.float64())
@example(text="-1e39", dtype=pa.float32())
def test_a_float_is_the_nearest_or_no_row(name, text, dtype):
    found = read(name, text, dtype, "0")
    if found is None:
        with np.errstate(over="ignore"):
            assert math.isinf(dtype.to_pandas_dtype()(float(text)))
        return
    value = float(found.as_py())
    assert math.isfinite(value)
    if dtype == pa.float64():
        assert value == float(text)
    else:
        kind, exact = np.float32, Fraction(text)
        near = [float(np.nextafter(kind(value), kind(side), dtype=kind)) for side in (-np.inf, np.inf)]
        assert all(
            abs(Fraction(value) - exact) <= abs(Fraction(other) - exact) for other in near if math.isfinite(other)
        )


@pytest.mark.parametrize("name", ["csv", "json"])
@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_infinity_and_nan_are_read_where_they_are_written(name, text):
    found = read(name, text, pa.float32(), "0")
    assert found is not None
    assert repr(found.as_py()) == repr(float(text))


DAYS = st.one_of(
    st.dates().map(lambda day: day.isoformat()),
    st.sampled_from(["2024-02-30", "1900-02-29", "2000-02-29", "10000-01-01", "2024-1-1", "2024-13-01", "0000-02-29"]),
)


@pytest.mark.parametrize("name", ["csv", "json", "key"])
@given(text=DAYS)
def test_a_date_is_that_day_or_no_row(name, text):
    quoted = ('"{}"' if name == "json" else "{}").format
    found = read(name, quoted(text), pa.date32(), quoted("2024-01-01"))
    assert (None if found is None else found.cast(pa.int32()).as_py()) == days_of(text)


def days_of(text: str) -> int | None:
    if text.startswith("0000-"):  # as the year 400, a cycle later
        return days_of("0400-" + text[5:]) - 146_097
    try:
        day = dt.datetime.strptime(text, "%Y-%m-%d").date()
    except ValueError:
        return None
    return (day - dt.date(1970, 1, 1)).days if len(text) == 10 else None


@pytest.mark.parametrize("name", ["csv", "json", "key"])
@given(time=st.datetimes(), sep=st.sampled_from("T "), digits=st.integers(0, 9))
def test_a_timestamp_is_that_instant_or_no_row(name, time, sep, digits):
    fraction = f"{time.microsecond:06}789"[:digits]
    text = time.strftime(f"{time.year:04}-%m-%d{sep}%H:%M:%S") + ("." + fraction if digits else "")
    quoted = ('"{}"' if name == "json" else "{}").format
    found: Any = read(name, quoted(text), pa.timestamp("us"), quoted("2024-01-01 00:00:00"))
    if digits > 6:
        assert found is None
    else:
        kept = time.microsecond // 10 ** (6 - digits) * 10 ** (6 - digits)
        assert found.value == (time.replace(microsecond=kept) - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
