"""The type of each call's result, and calls that are refused."""

from datetime import timedelta

import pyarrow as pa
import pytest

from upstream.conf.errors import SchemaError
from upstream.queries.expressions.kinds import (
    BOOLEAN,
    DATE,
    DOUBLE,
    DURATION,
    INT,
    LONG,
    MONTHS,
    NULL,
    SHORT,
    TEXT,
    TIMESTAMP,
)
from upstream.queries.expressions.nodes import Call, Constant, Days, Expression, Field
from upstream.queries.expressions.typing import call, function_names

_FIELDS = {
    "sh": SHORT,
    "i": INT,
    "l": LONG,
    "d": DOUBLE,
    "f": pa.float32(),
    "m": pa.decimal128(5, 2),
    "w": pa.decimal128(38, 18),
    "t": TEXT,
    "b": BOOLEAN,
    "dt": DATE,
    "ts": TIMESTAMP,
    "arr": pa.list_(INT),
    "st": pa.struct([("x", INT)]),
}


def _field(name: str) -> Field:
    return Field(name, _FIELDS[name])


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        ("add", "sh sh", SHORT),
        ("add", "sh l", LONG),
        ("add", "m i", pa.decimal128(13, 2)),
        ("multiply", "m m", pa.decimal128(11, 4)),
        ("multiply", "w w", pa.decimal128(38, 6)),
        ("divide", "i i", DOUBLE),
        ("divide", "f f", DOUBLE),
        ("divide", "m m", pa.decimal128(13, 8)),
        ("mod", "m i", pa.decimal128(5, 2)),
        ("div", "sh sh", LONG),
        ("div", "m i", LONG),
        ("add", "t i", LONG),
        ("add", "t m", DOUBLE),
        ("subtract", "ts dt", DURATION),
        ("add", "dt i", DATE),
        ("abs", "sh", SHORT),
        ("floor", "m", pa.decimal128(4, 0)),
        ("ceil", "d", LONG),
        ("round", "m", pa.decimal128(4, 0)),
        ("sqrt", "i", DOUBLE),
        ("eq", "t dt", BOOLEAN),
        ("greatest", "i m", pa.decimal128(12, 2)),
        ("coalesce", "i d", DOUBLE),
        ("concat", "i t", TEXT),
        ("length", "i", INT),
        ("year", "ts", INT),
        ("hour", "dt", INT),
        ("unix_timestamp", "dt", LONG),
        ("element_at", "arr i", INT),
    ],
)
def test_result_type(function: str, arguments: str, expected: pa.DataType) -> None:
    assert call(function, [_field(name) for name in arguments.split()]).type == expected


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("add", "b i"),
        ("add", "ts i"),
        ("add", "t t"),
        ("add", "i"),
        ("div", "d d"),
        ("eq", "b i"),
        ("eq", "st st"),
        ("in", "i"),
        ("and", "i b"),
        ("not", "b b"),
        ("case", "b i"),
        ("coalesce", "dt i"),
        ("substring", "t"),
        ("year", "b"),
        ("unix_timestamp", "t t t"),
        ("to_date", "t t t"),
        ("round", "d i"),
        ("get", "i i"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(function: str, arguments: str) -> None:
    with pytest.raises(SchemaError):
        call(function, [_field(name) for name in arguments.split()])


def test_an_unknown_function_is_refused_with_near_names() -> None:
    with pytest.raises(SchemaError, match="substring") as caught:
        call("substrin", [_field("t")])
    assert "no function substrin" in str(caught.value)
    with pytest.raises(SchemaError, match="event time"):
        call("current_timestamp", [])


def test_a_field_that_there_is_not_is_refused_with_the_fields() -> None:
    assert call("get_field", [_field("st"), Constant("x", TEXT)]).type == INT
    with pytest.raises(SchemaError, match="no field y"):
        call("get_field", [_field("st"), Constant("y", TEXT)])


def test_between_is_two_comparisons_each_with_its_own_casts() -> None:
    made = call("between", [_field("sh"), Constant(1, INT), _field("d")])
    assert str(made) == "((cast(sh AS INT) >= 1) AND (cast(sh AS DOUBLE) <= d))"


def test_nullif_keeps_the_first_type() -> None:
    made = call("nullif", [_field("sh"), Constant(0, INT)])
    assert made.type == SHORT
    assert str(made) == "(CASE WHEN (cast(sh AS INT) = 0) THEN NULL ELSE sh END)"


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        (Constant(Days(days=2), DURATION), DATE),
        (call("subtract", [Constant(Days(days=2), DURATION), call("subtract", [_field("dt"), _field("dt")])]), DATE),
        (Constant(timedelta(hours=48), DURATION), TIMESTAMP),
        (Constant(timedelta(hours=2), DURATION), TIMESTAMP),
        (Constant(pa.MonthDayNano([1, 0, 0]), MONTHS), DATE),
        (Constant(pa.MonthDayNano([0, 0, 1000]), MONTHS), TIMESTAMP),
    ],
)
def test_a_date_plus_whole_days_is_a_date(interval: Constant, expected: pa.DataType) -> None:
    assert call("add", [_field("dt"), interval]).type == expected
    assert call("add", [interval, _field("ts")]).type == TIMESTAMP


def test_null_takes_the_type_of_the_others() -> None:
    null = Constant(None, NULL)
    assert call("add", [null, _field("sh")]) == Call("add", (Constant(None, SHORT), _field("sh")), SHORT)
    assert call("divide", [null, _field("m")]).type == DOUBLE
    assert call("divide", [_field("m"), null]).type == pa.decimal128(13, 8), "Spark has two rules"
    made = call("case", [_field("b"), null, null])
    assert made.type == NULL


def test_unix_timestamp_goes_towards_zero_and_unix_seconds_down() -> None:
    before = Field("t", TIMESTAMP)
    assert str(call("unix_timestamp", [before])) == "(unix_micros(t) DIV 1000000)"
    assert str(call("unix_seconds", [before])) == "unix_seconds(t)"


def test_date_part_is_the_function_of_its_name() -> None:
    part: Expression = Constant("DOY", TEXT)
    assert call("date_part", [part, _field("dt")]) == Call("dayofyear", (_field("dt"),), INT)


def test_names_of_functions_are_in_order_and_each_is_one() -> None:
    assert list(function_names()) == sorted(set(function_names()))
