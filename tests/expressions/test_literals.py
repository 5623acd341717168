from datetime import timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from kit.continuous import bound, refused

from upstream.expressions.literals import interval, length_us, number, type_of
from upstream.expressions.places import Text
from upstream.language.dialect import parse


def item(sql: str) -> object:
    return parse(f"SELECT {sql} FROM s").expressions[0]


@pytest.mark.parametrize(
    ("written", "value", "kind"),
    [
        ("0", 0, pa.int32()),
        ("2147483647", 2147483647, pa.int32()),
        ("2147483648", 2147483648, pa.int64()),
        ("9223372036854775808", Decimal(9223372036854775808), pa.decimal128(19, 0)),
        ("1.50", Decimal("1.50"), pa.decimal128(3, 2)),
        ("0.001", Decimal("0.001"), pa.decimal128(3, 3)),
        (".5", Decimal("0.5"), pa.decimal128(1, 1)),
        ("1E3", 1000.0, pa.float64()),
    ],
)
def test_numbers(written, value, kind):
    found = number(item(written), Text(written))
    assert (found.value, found.type) == (value, kind)


def test_intervals_and_lengths_of_windows():
    assert interval(item("INTERVAL '90' MINUTES"), Text("")).value == timedelta(minutes=90)
    assert interval(item("INTERVAL '1.5' SECONDS"), Text("")).value == timedelta(milliseconds=1500)
    assert interval(item("INTERVAL -2 WEEKS"), Text("")).value == timedelta(days=-14)
    assert interval(item("INTERVAL '2' YEARS"), Text("")).value == (24, 0, 0)
    refused("SELECT t + INTERVAL '0.0000001' SECOND FROM trade", "whole number of microseconds")
    refused("SELECT t + INTERVAL '99999999999' YEARS FROM trade", "longer than Spark can hold")
    assert length_us(item("INTERVAL '1' DAY"), Text(""), "RANGE") == 86_400_000_000
    refused("SELECT * FROM trade [RANGE 0 SECONDS]", "longer than nothing", at="0 SECONDS")
    refused("SELECT * FROM trade [RANGE INTERVAL '-1' SECONDS]", "longer than nothing")
    refused("SELECT * FROM trade [RANGE 1 YEAR]", "a year has no fixed length", "30 DAYS")


def test_types_and_the_smallest_int():
    kinds = {"DECIMAL": pa.decimal128(10, 0), "DECIMAL(5)": pa.decimal128(5, 0), "DECIMAL(5, 2)": pa.decimal128(5, 2)}
    kinds |= {"TIMESTAMP": pa.timestamp("us", "UTC"), "TIMESTAMP_NTZ": pa.timestamp("us"), "LONG": pa.int64()}
    for name, kind in kinds.items():
        assert type_of(item(f"CAST(x AS {name})").args["to"], Text("")) == kind
    refused("SELECT CAST(n AS DECIMAL(39, 0)) FROM trade", "at most 38 digits")
    refused("SELECT CAST(n AS DECIMAL(5, 6)) FROM trade", "decimal(5, 6) is not possible")
    assert number(item("2147483648"), Text(""), negative=True).type == pa.int32()
    refused(f"SELECT {'9' * 39} FROM trade", "more than 38 digits")


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("1E309", "DOUBLE"),
        ("-1E309", "DOUBLE"),
        ("1.7976931348623159E308", "DOUBLE"),
        ("1E309D", "DOUBLE"),
        ("3.5E38F", "FLOAT"),
        ("9223372036854775808L", "BIGINT"),
        ("40000S", "SMALLINT"),
        ("128Y", "TINYINT"),
    ],
)
def test_numbers_that_their_type_does_not_hold_are_refused(written, kind):
    refused(f"SELECT {written} AS x FROM trade", f"is not a {kind}", at=written.strip("-"))


def test_the_least_and_greatest_numbers_of_a_type_are_numbers():
    refused("SELECT -129Y AS x FROM trade", "is not a TINYINT")
    for written in ("-128Y", "127Y", "-9223372036854775808L", "1.7976931348623157E308", "3.4028234E38F", "1E-400"):
        bound(f"SELECT {written} AS x FROM trade")
