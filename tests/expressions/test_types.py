from datetime import timedelta

import pyarrow as pa
import pytest
from kit.failures import unfit

from upstream.conf.errors import SchemaError
from upstream.expressions import kinds, types
from upstream.expressions.nodes import Call, Constant, Days, Expression, Field
from upstream.expressions.types import call, function_names

_FIELDS = {
    "sh": kinds.SHORT,
    "i": kinds.INT,
    "l": kinds.LONG,
    "d": kinds.DOUBLE,
    "f": pa.float32(),
    "m": pa.decimal128(5, 2),
    "w": pa.decimal128(38, 18),
    "t": kinds.TEXT,
    "b": kinds.BOOLEAN,
    "dt": kinds.DATE,
    "ts": kinds.TIMESTAMP,
    "arr": pa.list_(kinds.INT),
    "st": pa.struct([("x", kinds.INT)]),
}


def _field(name: str) -> Field:
    return Field(name, _FIELDS[name])


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        ("add", "sh sh", kinds.SHORT),
        ("add", "sh l", kinds.LONG),
        ("add", "m i", pa.decimal128(13, 2)),
        ("multiply", "m m", pa.decimal128(11, 4)),
        ("multiply", "w w", pa.decimal128(38, 6)),
        ("divide", "i i", kinds.DOUBLE),
        ("divide", "f f", kinds.DOUBLE),
        ("divide", "m m", pa.decimal128(13, 8)),
        ("mod", "m i", pa.decimal128(5, 2)),
        ("div", "sh sh", kinds.LONG),
        ("div", "m i", kinds.LONG),
        ("add", "t i", kinds.LONG),
        ("add", "t m", kinds.DOUBLE),
        ("subtract", "ts dt", kinds.DURATION),
        ("add", "dt i", kinds.DATE),
        ("abs", "sh", kinds.SHORT),
        ("floor", "m", pa.decimal128(4, 0)),
        ("ceil", "d", kinds.LONG),
        ("round", "m", pa.decimal128(4, 0)),
        ("sqrt", "i", kinds.DOUBLE),
        ("eq", "t dt", kinds.BOOLEAN),
        ("greatest", "i m", pa.decimal128(12, 2)),
        ("coalesce", "i d", kinds.DOUBLE),
        ("concat", "i t", kinds.TEXT),
        ("length", "i", kinds.INT),
        ("year", "ts", kinds.INT),
        ("hour", "dt", kinds.INT),
        ("unix_timestamp", "dt", kinds.LONG),
        ("element_at", "arr i", kinds.INT),
    ],
)
def test_result_type(function, arguments, expected):
    assert call(function, [_field(name) for name in arguments.split()]).type == expected


_UNFIT = "add b i|add ts i|add t t|add i|div d d|eq b i|eq st i|in i|and i b|not b b|case b i|coalesce dt i"
_UNFIT += "|substring t|year b|unix_timestamp t t t|to_date t t t|round d i|get i i"


@pytest.mark.parametrize("written", _UNFIT.split("|"))
def test_arguments_that_do_not_fit_are_refused(written):
    function, *arguments = written.split()
    with pytest.raises(SchemaError):
        call(function, [_field(name) for name in arguments])


def test_unknown_functions_and_fields_are_refused_with_those_there_are():
    assert call("get_field", [_field("st"), Constant("x", kinds.TEXT)]).type == kinds.INT
    unfit("no field y", call, "get_field", [_field("st"), Constant("y", kinds.TEXT)])
    with pytest.raises(SchemaError, match="substring") as caught:
        call("substrin", [_field("t")])
    assert "no function substrin" in str(caught.value)
    unfit("event time", call, "current_timestamp", [])
    assert list(function_names()) == sorted(set(function_names()))


def test_what_is_written_by_other_functions():
    made = call("between", [_field("sh"), Constant(1, kinds.INT), _field("d")])
    assert str(made) == "((cast(sh AS INT) >= 1) AND (cast(sh AS DOUBLE) <= d))"
    made = call("nullif", [_field("sh"), Constant(0, kinds.INT)])
    assert made.type == kinds.SHORT
    assert str(made) == "(CASE WHEN (cast(sh AS INT) = 0) THEN NULL ELSE sh END)"
    before = Field("t", kinds.TIMESTAMP)
    assert str(call("unix_timestamp", [before])) == "(unix_micros(t) DIV 1000000)"
    assert str(call("unix_seconds", [before])) == "unix_seconds(t)"
    part: Expression = Constant("DOY", kinds.TEXT)
    assert call("date_part", [part, _field("dt")]) == Call("dayofyear", (_field("dt"),), kinds.INT)


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        (Constant(Days(days=2), kinds.DURATION), kinds.DATE),
        (
            call("subtract", [Constant(Days(days=2), kinds.DURATION), call("subtract", [_field("dt"), _field("dt")])]),
            kinds.DATE,
        ),
        (Constant(timedelta(hours=48), kinds.DURATION), kinds.TIMESTAMP),
        (Constant(timedelta(hours=2), kinds.DURATION), kinds.TIMESTAMP),
        (Constant(pa.MonthDayNano([1, 0, 0]), kinds.MONTHS), kinds.DATE),
        (Constant(pa.MonthDayNano([0, 0, 1000]), kinds.MONTHS), kinds.TIMESTAMP),
    ],
)
def test_a_date_plus_whole_days_is_a_date(interval, expected):
    assert call("add", [_field("dt"), interval]).type == expected
    assert call("add", [interval, _field("ts")]).type == kinds.TIMESTAMP


def test_null_takes_the_type_of_the_others():
    null = Constant(None, kinds.NULL)
    assert call("add", [null, _field("sh")]) == Call("add", (Constant(None, kinds.SHORT), _field("sh")), kinds.SHORT)
    assert call("divide", [null, _field("m")]).type == kinds.DOUBLE
    assert call("divide", [_field("m"), null]).type == pa.decimal128(13, 8), "Spark has two rules"
    made = call("case", [_field("b"), null, null])
    assert made.type == kinds.NULL


def test_a_function_of_spark_is_refused_with_a_hint():
    unfit("prepare them in the DataFrame", call, "from_json", [])
    assert types.hint_for("frobnicate") == ""
    assert [name for name in function_names() if types.hint_for(name)] == [], "of a function that is there"
