"""Expressions in two forms, Spark's SQL and ours, drawn at random, and rows of edges for them."""

from __future__ import annotations

import dataclasses
import functools
import random
import struct
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa

from upstream.conf.errors import SchemaError
from upstream.queries.expressions.nodes import Constant, Days, Expression, Field
from upstream.queries.expressions.typing import call, cast

INT, LONG, DOUBLE, TEXT = pa.int32(), pa.int64(), pa.float64(), pa.string()
DATE, TIMESTAMP = pa.date32(), pa.timestamp("us", tz="UTC")
_UTC = timezone.utc
_EPOCH = datetime(1970, 1, 1, tzinfo=_UTC)

_COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bo": (pa.bool_(), [True, False]),
    "by": (pa.int8(), [0, 1, -1, 127, -128, 10]),
    "sh": (pa.int16(), [0, 1, -1, 32767, -32768, 300]),
    "i": (INT, [0, 1, -1, 2**31 - 1, -(2**31), 7, -7, 10, 100, 12345]),
    "l": (LONG, [0, 1, -1, 2**63 - 1, -(2**63), 10**10, -(10**10), 3, 86_400]),
    "f": (pa.float32(), [0.0, -0.0, 1.5, -2.25, 0.1, 3.4028235e38, 1e-45, float("nan"), float("inf"), float("-inf")]),
    "d": (
        DOUBLE,
        [
            0.0,
            -0.0,
            1.5,
            -2.5,
            2.675,
            0.1,
            1e300,
            5e-324,
            1e16,
            123456789.125,
            2.0**63,
            -(2.0**63),
            0.001,
            1e-05,
            float("nan"),
            float("inf"),
            float("-inf"),
        ],
    ),
    "n": (pa.decimal128(5, 2), [Decimal(v) for v in ("0.00", "1.50", "-2.25", "999.99", "-999.99", "0.01", "10.05")]),
    "m": (
        pa.decimal128(38, 18),
        [Decimal(v) for v in ("0", "1.5", "-2.25", "99999999999999999999.999999999999999999", "0.000000000000000001")]
        + [Decimal("-99999999999999999999.999999999999999999"), Decimal("12345.678901234567890123")],
    ),
    "w": (pa.decimal128(38, 0), [Decimal(v) for v in ("0", "1", "-7", "9" * 38, "-" + "9" * 38, "10")]),
    "t": (
        TEXT,
        [
            "",
            "a",
            "abc",
            "ABC",
            "a,b,,c",
            "  x ",
            "日本語",
            "é😀x",
            "ß",
            "a%b",
            "a_b",
            "a\\b",
            "line\nline",
            "aXbXc",
            "ΑΣ",
            "x ΑΣ aΣ b",
            "hello wORLD ab-cd d'e  1st ",
            "ǆx ﬁx İx ßa",
        ],
    ),
    "q": (
        TEXT,
        [
            "0",
            "1",
            "-1",
            " 12 ",
            "+5",
            "1.5",
            "1e3",
            ".5",
            "5.",
            "abc",
            "",
            "NaN",
            "inf",
            "-Infinity",
            "9" * 20,
            "true",
            "f",
            "2020-02-29",
            "2021-2-3",
            "2021-02-29",
            "2020-02-29 12:30:45.123456",
            "2020-02-29T01:02:03Z",
            "1d",
            "0.005",
            "1999-12-31 23:59:59.5+01:30",
            "2020",
            "2020-01",
            "128",
            "99999.995",
            "-0.0",
            "2147483648",
            "\t7\n",
            "1E-3",
        ],
    ),
    "dt": (
        DATE,
        [date(1970, 1, 1), date(2020, 2, 29), date(1969, 12, 31), date(1, 1, 1), date(9999, 12, 31), date(1900, 3, 1)],
    ),
    "ts": (
        TIMESTAMP,
        [
            _EPOCH,
            datetime(2020, 2, 29, 23, 59, 59, 999999, _UTC),
            datetime(1969, 12, 31, 23, 59, 59, 1, _UTC),
            datetime(1, 1, 1, tzinfo=_UTC),
            datetime(9999, 12, 31, 23, 59, 59, 999999, _UTC),
            datetime(1883, 11, 18, 12, 3, 58, 500000, _UTC),
            datetime(2021, 1, 4, 5, 6, 7, 120000, _UTC),
        ],
    ),
}

SCHEMA = pa.schema([("row", INT)] + [(f"{name}{at}", dtype) for name, (dtype, _) in _COLUMNS.items() for at in (1, 2)])


def rows(count: int, seed: int) -> pa.Table:
    """Rows whose values are edges of their types, nulls, and some in between."""
    draw = random.Random(seed)

    def column(dtype: pa.DataType, edges: Sequence[Any]) -> pa.Array:
        return pa.array([None if draw.random() < 0.12 else _value(draw, dtype, edges) for _ in range(count)], dtype)

    made = [pa.array(range(count), INT)]
    made += [column(dtype, edges) for dtype, edges in _COLUMNS.values() for _ in (1, 2)]
    return pa.table(made, schema=SCHEMA)


def _value(draw: random.Random, dtype: pa.DataType, edges: Sequence[Any]) -> Any:
    if draw.random() < 0.6:
        return draw.choice(edges)
    if pa.types.is_integer(dtype):
        return draw.randint(-100, 100)
    if pa.types.is_float64(dtype):
        return draw.choice([draw.uniform(-1e3, 1e3), round(draw.uniform(-100, 100), 2), draw.uniform(-1e12, 1e12)])
    if pa.types.is_float32(dtype):
        return struct.unpack("f", struct.pack("f", draw.uniform(-1e3, 1e3)))[0]
    if pa.types.is_decimal(dtype):
        digits = draw.randint(1, dtype.precision)
        return Decimal(draw.randint(-(10**digits) + 1, 10**digits - 1)).scaleb(-dtype.scale)
    if pa.types.is_date(dtype):
        return date(1970, 1, 1) + timedelta(days=draw.randint(-60_000, 60_000))
    if pa.types.is_timestamp(dtype):
        return _EPOCH + timedelta(microseconds=draw.randint(-(4 * 10**15), 4 * 10**15))
    return draw.choice(edges)


@dataclasses.dataclass(frozen=True)
class Pair:
    """One expression: as Spark reads it, and as we do."""

    sql: str
    ours: Expression


def column(name: str) -> Pair:
    return Pair(name, Field(name, SCHEMA.field(name).type))


def integer(value: int) -> Pair:
    return Pair(str(value) if value >= 0 else f"({value})", Constant(value, INT))


def number(text: str) -> Pair:
    value = Decimal(text)
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    dtype = pa.decimal128(max(len(digits), -exponent), -exponent)
    return Pair(text if value >= 0 else f"({text})", Constant(value, dtype))


def double(value: float) -> Pair:
    return Pair(f"{value!r}D" if value >= 0 else f"({value!r}D)", Constant(value, DOUBLE))


def text(value: str) -> Pair:
    quoted = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return Pair(f"'{quoted}'", Constant(value, TEXT))


def unit(word: str) -> Pair:
    return Pair(word, Constant(word, TEXT))


def null() -> Pair:
    return Pair("NULL", Constant(None, pa.null()))


def seconds(value: int) -> Pair:
    return Pair(f"INTERVAL '{value}' SECOND", Constant(timedelta(seconds=value), pa.duration("us")))


def days(value: int) -> Pair:
    return Pair(f"INTERVAL '{value}' DAY", Constant(Days(days=value), pa.duration("us")))


def months(value: int) -> Pair:
    return Pair(f"INTERVAL '{value}' MONTH", Constant(pa.MonthDayNano([value, 0, 0]), pa.month_day_nano_interval()))


_INFIX = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "div": "DIV",
    "mod": "%",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
    "eq": "=",
    "ne": "<>",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq_null_safe": "<=>",
    "and": "AND",
    "or": "OR",
}


def made(function: str, *arguments: Pair) -> Pair:
    """A function's call."""
    given = [each.sql for each in arguments]
    ours = call(function, [each.ours for each in arguments])
    if function in _INFIX:
        return Pair(f"({given[0]} {_INFIX[function]} {given[1]})", ours)
    if function == "not":
        return Pair(f"(NOT {given[0]})", ours)
    if function in ("is_null", "is_not_null"):
        return Pair(f"({given[0]} {function.replace('_', ' ').upper()})", ours)
    if function in ("negate", "bitwise_not"):
        return Pair(f"({'-' if function == 'negate' else '~'} {given[0]})", ours)
    if function == "in":
        return Pair(f"({given[0]} IN ({', '.join(given[1:])}))", ours)
    if function == "between":
        return Pair(f"({given[0]} BETWEEN {given[1]} AND {given[2]})", ours)
    if function == "like":
        escape = f" ESCAPE {given[2]}" if len(given) > 2 else ""
        return Pair(f"({given[0]} LIKE {given[1]}{escape})", ours)
    if function == "case":
        whens = " ".join(f"WHEN {given[at]} THEN {given[at + 1]}" for at in range(0, len(given) - 1, 2))
        return Pair(f"(CASE {whens} ELSE {given[-1]} END)", ours)
    return Pair(f"{function}({', '.join(given)})", ours)


def converted(value: Pair, dtype: pa.DataType, name: str, *, try_: bool = False) -> Pair:
    """A cast."""
    return Pair(f"{'TRY_' if try_ else ''}CAST({value.sql} AS {name})", cast(value.ours, dtype, try_=try_))


_TYPES = {
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": INT,
    "BIGINT": LONG,
    "FLOAT": pa.float32(),
    "DOUBLE": DOUBLE,
    "STRING": TEXT,
    "BOOLEAN": pa.bool_(),
    "DATE": DATE,
    "TIMESTAMP": TIMESTAMP,
    "DECIMAL(5,2)": pa.decimal128(5, 2),
    "DECIMAL(38,18)": pa.decimal128(38, 18),
    "DECIMAL(20,0)": pa.decimal128(20, 0),
}
_WHOLE = ("by", "sh", "i", "l")
_NUMBERS = ("by", "sh", "i", "l", "f", "d", "n", "m", "w")
_PATTERNS = ("a%", "%b", "%X%", "a_b", "a\\%b", "%", "", "_", "a\\_b", "%line", "日%", "a%b%c")
_EXPRESSIONS = ("a.c", "^a", "c$", "[a-c]+X?", "(a|b),", "\\d+", "\\w\\W", "x\\s*$", "^.$", "a{1,2}b?", "[^ab]", "X+?b")


_NUMBER_NAMES = (
    *("add", "subtract", "multiply", "divide", "mod", "div", "pmod", "try_add", "try_subtract", "try_multiply"),
    *("try_divide", "negate", "abs", "round", "bround", "floor", "ceil", "sign", "sqrt", "greatest", "least"),
    *("coalesce", "nullif", "case", "if", "length", "instr", "field", "datediff", "unix", "power", "nvl2"),
    *("timestampdiff", "months_between", "bits", "bitwise_not", "bit_count", "bit_get", "shift"),
)
_TEXT_NAMES = (
    *("concat", "substring", "substring2", "left", "right", "upper", "lower", "trim", "ltrim", "rtrim", "replace"),
    *("split_part", "lpad", "rpad", "repeat", "regexp_extract", "regexp_replace", "concat_ws", "cast", "case"),
    *("coalesce", "date_format", "greatest", "reverse", "initcap", "translate"),
)
_TIME_NAMES = ("date_trunc", "trunc", "interval", "days", "add_months", "last_day", "cast", "of", "case", "dates")
_TIME_NAMES += ("make_date", "timestampadd")
_UNITS = ("DAYOFYEAR", "MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER")
_UNITS += ("YEAR",)
_CONDITION_NAMES = ("compare", "compare", "and", "or", "not", "null", "in", "between", "like", "rlike", "text")


class Drawn:
    """Draws expressions."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)

    def pairs(self, count: int, depth: int) -> list[Pair]:
        """Expressions of all kinds."""
        kinds: tuple[Callable[[int], Pair], ...] = (
            self.number,
            self.number,
            self.condition,
            self.text,
            self.time,
            self.any_cast,
        )
        found: list[Pair] = []
        while len(found) < count:
            try:
                found.append(self._draw.choice(kinds)(depth))
            except SchemaError:
                continue
        return found

    def every(self) -> list[Pair]:
        """One or more expressions of each kind, of columns and constants."""
        kinds = [(self._number, _NUMBER_NAMES), (self._text, _TEXT_NAMES), (self._time, _TIME_NAMES)]
        makers: list[Callable[[], Pair]] = [
            functools.partial(maker, name, 0)
            for maker, names in [*kinds, (self._condition, _CONDITION_NAMES)]
            for name in names
        ]
        sources = [column(f"{name}1") for name in _COLUMNS]
        makers += [
            functools.partial(converted, source, dtype, name, try_=self._draw.random() < 0.5)
            for source in sources
            for name, dtype in _TYPES.items()
        ]
        found: list[Pair] = []
        for maker in makers:
            for _ in range(1 if maker.func is converted else 3):  # type: ignore[attr-defined]
                try:
                    found.append(maker())
                except SchemaError:
                    continue
        return found

    def _one(self, *names: str) -> Pair:
        return column(f"{self._draw.choice(names)}{self._draw.choice((1, 2))}")

    def number(self, depth: int) -> Pair:
        draw = self._draw
        if depth == 0:
            if draw.random() < 0.2:
                constants = (integer(0), integer(-1), integer(7), number("0.5"), number("-12.345"), double(2.5), null())
                return draw.choice(constants)
            return self._one(*_NUMBERS)
        return self._number(draw.choice(_NUMBER_NAMES), depth - 1)

    def _number(self, name: str, depth: int) -> Pair:
        draw, number = self._draw, self.number
        if name in ("negate", "abs"):  # of decimals of more than 34 digits, Spark loses the last ones
            return made(name, self._one("by", "sh", "i", "l", "f", "d", "n"))
        if name in ("floor", "ceil", "sign", "sqrt"):
            return made(name, number(depth))
        if name in ("round", "bround"):
            return made(name, number(depth), integer(draw.choice((0, 1, 2, -1, -2, 5))))
        if name in ("greatest", "least", "coalesce"):
            return made(name, *(number(depth) for _ in range(draw.choice((2, 3)))))
        if name == "case":
            return made(name, self.condition(depth), number(depth), self.condition(depth), number(depth), number(depth))
        if name == "if":
            return made(name, self.condition(depth), number(depth), number(depth))
        if name == "nvl2":
            return made(name, self.text(0), number(depth), number(depth))
        if name == "length":
            return made(name, self.text(depth))
        if name == "instr":
            return made(name, self.text(depth), draw.choice((text("b"), text(""), self._one("t"))))
        if name == "field":
            fields = ("year", "quarter", "month", "day", "dayofweek", "weekday", "dayofyear", "weekofyear")
            return made(draw.choice((*fields, "hour", "minute", "second")), self.time(depth))
        if name == "datediff":
            return made(name, self.time(0), self.time(0))
        if name == "unix":
            names = ("unix_seconds", "unix_millis", "unix_micros")
            return draw.choice((made(draw.choice(names), self._one("ts")), made("unix_date", self._one("dt"))))
        if name == "timestampdiff":
            function = draw.choice((name, "datediff", "date_diff"))
            return made(function, unit(draw.choice(_UNITS[1:])), self.time(depth), self._one("dt", "ts"))
        if name == "months_between":
            return made(name, self.time(depth), self._one("dt", "ts"), *draw.choice(((), (self._one("bo"),))))
        if name == "bits":
            pair = self._one(*_WHOLE), self._one(*_WHOLE, "q")
            return made(draw.choice(("bitwise_and", "bitwise_or", "bitwise_xor")), *draw.sample(pair, 2))
        if name in ("bitwise_not", "bit_count"):
            return made(name, self._one(*_WHOLE, *(["bo"] if name == "bit_count" else [])))
        if name == "bit_get":
            return made(draw.choice((name, "getbit")), self._one(*_WHOLE), draw.choice((integer(7), self._one("by"))))
        if name == "shift":
            shifts = ("shiftleft", "shiftright", "shiftrightunsigned")
            places = draw.choice((integer(1), integer(33), integer(-1), self._one("by")))
            return made(draw.choice(shifts), self._one(*_WHOLE), places)
        if name == "power":
            return made(name, self._one("i", "d"), integer(draw.choice((0, 1, 2))))
        return made(name, number(depth), number(depth))

    def condition(self, depth: int) -> Pair:
        draw = self._draw
        if depth == 0:
            return self._one("bo")
        return self._condition(draw.choice(_CONDITION_NAMES), depth - 1)

    def _condition(self, kind: str, depth: int) -> Pair:
        draw = self._draw
        if kind == "compare":
            name = draw.choice(("eq", "ne", "lt", "le", "gt", "ge", "eq_null_safe"))
            sides = draw.choice(("number", "text", "time", "mixed", "times"))
            if sides == "mixed":
                return made(name, self._one("q"), self.number(0))
            if sides == "times":
                return made(name, self._one("dt", "ts"), self._one("dt", "ts", "q"))
            draw_side: Callable[[int], Pair] = getattr(self, sides)
            return made(name, draw_side(depth), draw_side(depth))
        if kind in ("and", "or"):
            return made(kind, self.condition(depth), self.condition(depth))
        if kind == "not":
            return made(kind, self.condition(depth))
        if kind == "null":
            return made(
                draw.choice(("is_null", "is_not_null")), draw.choice((self.number, self.text, self.time))(depth)
            )
        if kind == "in":
            value: Callable[[int], Pair] = draw.choice((self.number, self.text))
            return made(kind, value(depth), value(0), value(0), draw.choice((null(), value(depth))))
        if kind == "between":
            return made(kind, self.number(depth), self.number(0), self.number(0))
        if kind == "like":
            return made(draw.choice(("like", "like", "ilike")), self.text(depth), text(draw.choice(_PATTERNS)))
        if kind == "rlike":
            return made(kind, self.text(depth), text(draw.choice(_EXPRESSIONS)))
        return made(draw.choice(("contains", "startswith", "endswith")), self.text(depth), self.text(0))

    def text(self, depth: int) -> Pair:
        draw = self._draw
        if depth == 0:
            return draw.choice((self._one("t"), self._one("t", "q"), text(draw.choice(("", "aXb", "é,x")))))
        return self._text(draw.choice(_TEXT_NAMES), depth - 1)

    def _text(self, name: str, depth: int) -> Pair:
        draw = self._draw
        some, value = integer(draw.choice((0, 1, 2, -1, -2, 3, 40))), self.text(depth)
        if name in ("concat", "greatest", "coalesce"):
            return made(name, value, self.text(0), *([self.number(0)] if name == "concat" else []))
        if name == "substring":
            return made(name, value, some, draw.choice((integer(2), integer(-1), self._one("by"))))
        if name == "substring2":
            return made("substring", value, draw.choice((some, self._one("by"))))
        if name in ("left", "right", "repeat"):
            return made(name, value, some)
        if name in ("upper", "lower", "trim", "ltrim", "rtrim", "reverse", "initcap"):
            return made(name, value)
        if name == "replace":
            return made(name, value, text(draw.choice(("X", "", "a", "é"))), text(draw.choice(("", "$1", "日"))))
        if name == "translate":
            return made(name, value, text(draw.choice(("aXa", "日é,", ""))), text(draw.choice(("123", "X", ""))))
        if name == "split_part":
            return made(name, value, text(draw.choice((",", "X", "", "."))), integer(draw.choice((1, 2, -1, -2, 5, 0))))
        if name in ("lpad", "rpad"):
            return made(name, value, some, text(draw.choice(("ab", " ", "", "日"))))
        if name == "regexp_extract":
            return made(
                name,
                value,
                text(draw.choice(("([a-z])(X)", "(\\d+)[.e](\\d+)", "(x)|(a)"))),
                integer(draw.choice((0, 1, 2))),
            )
        if name == "regexp_replace":
            return made(
                name, value, text(draw.choice(("[a-c]", "(a)(X|,)", "\\s+"))), text(draw.choice(("", "<$0>", "\\$")))
            )
        if name == "concat_ws":
            return made(name, text("-"), value, self._one("t"), self._one("q"))
        if name == "cast":
            return converted(draw.choice((self.number, self.time, self.condition))(depth), TEXT, "STRING")
        if name == "date_format":
            return made(name, self._one("ts", "dt"), text(draw.choice(("yyyy-MM-dd", "HH:mm:ss.SSS", "'at' dd/MM"))))
        return made("case", self.condition(depth), value, null())

    def time(self, depth: int) -> Pair:
        draw = self._draw
        if depth == 0:
            return self._one("dt", "ts")
        return self._time(draw.choice(_TIME_NAMES), depth - 1)

    def _time(self, name: str, depth: int) -> Pair:
        draw, value = self._draw, self.time(depth)
        if name == "date_trunc":
            units = ("year", "quarter", "MONTH", "week", "day", "hour", "minute", "second", "millisecond", "none")
            return made(name, text(draw.choice(units)), value)
        if name == "trunc":
            return made(name, self._one("dt"), text(draw.choice(("year", "quarter", "mon", "week", "day"))))
        if name == "interval":
            interval = draw.choice((days(1), seconds(-5), months(1), months(-13), days(-400)))
            return made(draw.choice(("add", "subtract")), value, interval)
        if name == "days":
            return made(
                draw.choice(("date_add", "date_sub")), self._one("dt"), draw.choice((integer(-1), self._one("by")))
            )
        if name == "add_months":
            return made(name, self._one("dt"), draw.choice((integer(1), self._one("by"))))
        if name == "make_date":
            years = draw.choice((integer(2020), integer(1), made("year", self._one("dt"))))
            some = [draw.choice((integer(1), integer(2), made(part, self._one("dt")))) for part in ("month", "day")]
            return made(name, years, some[0], draw.choice((some[1], self._one("by"))))
        if name == "timestampadd":
            function = draw.choice((name, "dateadd", "date_add"))
            count = draw.choice((integer(1), integer(-13), self._one("by", "sh")))
            return made(function, unit(draw.choice(_UNITS)), count, value)
        if name == "last_day":
            return made(name, self._one("dt"))
        if name == "cast":
            return converted(
                self._one("q"), *draw.choice(((DATE, "DATE"), (TIMESTAMP, "TIMESTAMP"))), try_=draw.random() < 0.7
            )
        if name == "of":
            names = ("timestamp_seconds", "timestamp_millis", "timestamp_micros")
            return made(draw.choice(names), self._one("i", "by"))
        if name == "dates":
            return converted(value, *draw.choice(((DATE, "DATE"), (TIMESTAMP, "TIMESTAMP"))))
        return made("case", self.condition(depth), value, self.time(depth))

    def any_cast(self, depth: int) -> Pair:
        """A cast from any type to any other."""
        draw = self._draw
        name = draw.choice(tuple(_TYPES))
        value = draw.choice((self.number, self.text, self.time, self.condition, lambda _: self._one("q")))(depth - 1)
        return converted(value, _TYPES[name], name, try_=draw.random() < 0.5)
