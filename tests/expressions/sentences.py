"""Expressions as SQL text, drawn at random, with operands of any type, and rows of edges for them."""

import random
import struct
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa

__all__ = ["SCHEMA", "Sentences", "rows"]


def _listed(words: str, between: str = " ") -> list[str]:
    return words.split(between)


_UTC = timezone.utc
_EPOCH = datetime(1970, 1, 1, tzinfo=_UTC)
_FLOATS = [0.0, -0.0, 1.5, -2.25, 0.1, 3.4028235e38, 1e-45, float("nan"), float("inf"), float("-inf")]
_DOUBLES_OF_ROWS = [0.0, -0.0, 1.5, -2.5, 2.675, 0.1, 1e300, 5e-324, 1e16, 123456789.125, 2.0**63, -(2.0**63), 0.001]
_DOUBLES_OF_ROWS += [1e-05, float("nan"), float("inf"), float("-inf")]
_MONEY = "0.00 1.50 -2.25 999.99 -999.99 0.01 10.05"
_LONG = "0 1.5 -2.25 99999999999999999999.999999999999999999 0.000000000000000001 12345.678901234567890123"
_LONG += " -99999999999999999999.999999999999999999"
_WORDS = "|a|abc|ABC|a,b,,c|  x |日本語|é😀x|ß|a%b|a_b|a\\b|line\nline|aXbXc|ΑΣ|x ΑΣ aΣ b"
_WORDS += "|hello wORLD ab-cd d'e  1st |ǆx ﬁx İx ßa"
_VALUES = "0|1|-1| 12 |+5|1.5|1e3|.5|5.|abc||NaN|inf|-Infinity|99999999999999999999|true|f|2020-02-29|2021-2-3"
_VALUES += (
    "|2021-02-29|2020-02-29 12:30:45.123456|2020-02-29T01:02:03Z|1d|0.005|1999-12-31 23:59:59.5+01:30|2020|2020-01|128"
)
_VALUES += "|99999.995|-0.0|2147483648|\t7\n|1E-3"
_DAYS = [date(1970, 1, 1), date(2020, 2, 29), date(1969, 12, 31), date(1, 1, 1), date(9999, 12, 31), date(1900, 3, 1)]
_MOMENTS = [
    _EPOCH,
    datetime(2020, 2, 29, 23, 59, 59, 999999, _UTC),
    datetime(1969, 12, 31, 23, 59, 59, 1, _UTC),
    datetime(1, 1, 1, tzinfo=_UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, _UTC),
    datetime(1883, 11, 18, 12, 3, 58, 500000, _UTC),
    datetime(2021, 1, 4, 5, 6, 7, 120000, _UTC),
]
_LOCAL = [datetime(1970, 1, 1), datetime(2020, 2, 29, 23, 59, 59, 999999), datetime(1, 1, 1), datetime(1969, 7, 20, 20)]
_COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bo": (pa.bool_(), [True, False]),
    "by": (pa.int8(), [0, 1, -1, 127, -128, 10]),
    "sh": (pa.int16(), [0, 1, -1, 32767, -32768, 300]),
    "i": (pa.int32(), [0, 1, -1, 2**31 - 1, -(2**31), 7, -7, 10, 100, 12345]),
    "l": (pa.int64(), [0, 1, -1, 2**63 - 1, -(2**63), 10**10, -(10**10), 3, 86_400]),
    "f": (pa.float32(), _FLOATS),
    "d": (pa.float64(), _DOUBLES_OF_ROWS),
    "n": (pa.decimal128(5, 2), [*map(Decimal, _listed(_MONEY))]),
    "m": (pa.decimal128(38, 18), [*map(Decimal, _listed(_LONG))]),
    "w": (pa.decimal128(38, 0), [*map(Decimal, ("0", "1", "-7", "9" * 38, "-" + "9" * 38, "10"))]),
    "t": (pa.string(), _listed(_WORDS, "|")),
    "q": (pa.string(), _listed(_VALUES, "|")),
    "dt": (pa.date32(), _DAYS),
    "ts": (pa.timestamp("us", tz="UTC"), _MOMENTS),
    "x": (pa.binary(), [b"", b"a", b"abc", "é".encode(), b"\x00\x01", b"12", "日本".encode(), b"ABC"]),
    "a": (pa.list_(pa.int32()), [[], [1], [1, 2, 3], [None, 5], [-7, 2**31 - 1, 0, None]]),
    "s": (pa.list_(pa.string()), [[], ["a"], ["b", None, "é"], ["", "abc", "a"]]),
    "z": (pa.timestamp("us"), _LOCAL),
}
SCHEMA = pa.schema(
    [("row", pa.int32()), *((f"{name}{at}", dtype) for name, (dtype, _) in _COLUMNS.items() for at in (1, 2))]
)


def rows(count: int, seed: int) -> pa.Table:
    """Rows whose values are edges of their types, nulls, and some in between."""
    draw = random.Random(seed)

    def column(dtype: pa.DataType, edges: Sequence[Any]) -> pa.Array:
        return pa.array([None if draw.random() < 0.12 else _value(draw, dtype, edges) for _ in range(count)], dtype)

    made = [pa.array(range(count), pa.int32())]
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
    if pa.types.is_timestamp(dtype) and dtype.tz is not None:
        return _EPOCH + timedelta(microseconds=draw.randint(-(4 * 10**15), 4 * 10**15))
    return draw.choice(edges)


_TYPES = _listed("TINYINT SMALLINT INT BIGINT FLOAT DOUBLE STRING BOOLEAN DATE TIMESTAMP TIMESTAMP_NTZ BINARY")
_TYPES += _listed("DECIMAL(5,2) DECIMAL(38,18) DECIMAL(20,0) DECIMAL(38,37) DECIMAL(1,1)")
_WHOLE = _listed("127Y 32767S 2147483647 -2147483648 9223372036854775807L -9223372036854775808L 0 1 -1")
_DECIMALS = _listed("0.5 -12.345 9.99BD 99999999999999999999999999999999999999 0.00000000000000000001 1.0")
_DOUBLES = _listed("1e0 2.5D 1E300 -0.0D 1e-5 3.25F double('NaN') double('-inf')")
_NUMBERS = ((("by", "sh", "i", "l"), _WHOLE), (("n", "m", "w"), _DECIMALS), (("f", "d"), _DOUBLES))
_NUMBERS += ((("q",), ("'12'", "'1.5'")),)
_LITERALS = ["' 7 '", *_listed("'' 'a' 'abc' '12' '1e3' 'é😀x' '2020-02-29' 'true' 'x\\\\%y' '%' 'A_c'")]
_DATES = _listed("DATE'2020-02-29' DATE'1970-01-01' DATE'0001-01-01' DATE'9999-12-31' '2021-03-31' '1999-1-1'")
_TIMES = (
    *("TIMESTAMP'2020-02-29 12:30:45.123456'", "TIMESTAMP'1969-12-31 23:59:59.999999'", "'2020-06-15 01:02:03'"),
    *("TIMESTAMP'2020-06-15 01:02:03+05:30'", "TIMESTAMP_NTZ'2020-02-29 23:59:59'", "'2020-02-29T01:02:03Z'"),
    *("TIMESTAMP'0001-01-01 00:00:00'", "'1999-12-31 23:59:59.5-08:00'", "TIMESTAMP_NTZ'1582-10-10 00:00:00.5'"),
)
_INTERVALS = [f"INTERVAL {each}" for each in ("'1' DAY", "'-36' HOUR", "'1' MONTH", "'-13' MONTH", "'2' YEAR")]
_INTERVALS += ["INTERVAL '0.5' SECOND", "INTERVAL 90 MINUTES", "INTERVAL '3 weeks'", "INTERVAL 1 MILLISECOND"]
_INTERVALS += ["INTERVAL '7' DAYS", "INTERVAL '-400' DAY"]
_LIKE = ("", *_listed("a% %b %X% a_b % _ %line 日% a%b%c A\\\\_% __ %\\\\%% é_x ß S%"))
_REGEX = _listed("a.c ^a c$ [a-c]+X? (a|b), \\\\d+ \\\\w\\\\W x\\\\s*$ ^.$ a{1,2}b? [^ab] X+?b (?i)ABC")
_UNITS = _listed("MICROSECOND MILLISECOND SECOND MINUTE HOUR DAY WEEK MONTH QUARTER YEAR")
_PARTS = _listed("YEAR QUARTER MONTH WEEK DAY DAYOFWEEK DOW DOY HOUR MINUTE SECOND DAYOFWEEK_ISO YEAROFWEEK")
_FORMATS = (
    "yyyy/MM/dd HH:mm",
    "hh:mm a",
    "E, d MMM yyyy",
    *_listed("yyyy-MM-dd HH:mm:ss.SSS dd.MM.yyyy yyyyMMdd D yy"),
)


class Sentences:
    """Draws expressions as text."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)

    def casts(self) -> list[str]:
        """A column of each type cast to each type."""
        return [f"{self._pick('CAST', 'TRY_CAST')}({name}1 AS {to})" for name in _COLUMNS for to in _TYPES]

    def plain(self, count: int) -> list[str]:
        """Functions and operators of columns and literals."""
        kinds = (self._whole, self._number, self._text, self._text, self._binary, self._condition, self._time)
        return [self._draw.choice(kinds)(0) for _ in range(count)]

    def some(self, count: int, depth: int) -> list[str]:
        """So many expressions, each of a kind of value."""
        return [self.any(depth) for _ in range(count)]

    def any(self, depth: int) -> str:
        return self._draw.choice(
            (self.number, self.number, self.text, self.condition, self.time, self.converted, self.chosen, self.binary)
        )(depth)

    def _pick(self, *options: str) -> str:
        return self._draw.choice(options)

    def _one(self, *made: Callable[[], str]) -> str:
        return self._draw.choice(made)()

    def _called(self, names: str, *arguments: str) -> str:
        return f"{self._draw.choice(names.split())}({', '.join(arguments)})"

    def _column(self, *names: str) -> str:
        return f"{self._draw.choice(names)}{self._draw.choice('12')}"

    def _leaf(self, names: Sequence[str], literals: Sequence[str]) -> str:
        return self._column(*names) if self._draw.random() < 0.7 else self._draw.choice((*literals, "NULL"))

    def _of(self, depth: int, leaf: Callable[[], str], made: Callable[[int], str]) -> str:
        return leaf() if depth <= 0 or self._draw.random() < 0.2 else made(depth - 1)

    def number(self, depth: int) -> str:
        return self._of(depth, self._number_leaf, self._number)

    def _number_leaf(self) -> str:
        return self._leaf(*self._draw.choice(_NUMBERS))

    def whole(self, depth: int) -> str:
        return self._of(depth, lambda: self._leaf(("by", "sh", "i", "l"), _WHOLE), self._whole)

    def small(self) -> str:
        """A whole number that counts characters or units."""
        return self._pick("0", "1", "2", "3", "-1", "-2", "5", "40", "by1", "CAST(by2 AS INT)", "NULL")

    def _whole(self, depth: int) -> str:
        draw = self._draw
        one, two = self.whole(depth), self.whole(depth)
        return self._one(
            lambda: f"({one} {self._pick('+', '-', '*', 'DIV', '%')} {two})",
            lambda: f"({one} {self._pick('&', '|', '^')} {two})",
            lambda: f"{self._pick('bit_count', '~')}({one})",
            lambda: f"({self.number(depth)} DIV {self.number(depth)})",
            lambda: f"length({self.text(depth)})",
            lambda: self._called("instr position find_in_set", self.text(depth), self.text(depth)),
            lambda: f"locate({self.text(0)}, {self.text(depth)}, {self.small()})",
            lambda: f"POSITION({self.text(0)} IN {self.text(depth)})",
            lambda: self._called("year quarter month day dayofweek weekday dayofyear weekofyear", self.time(depth)),
            lambda: self._called("hour minute second", self.time(depth)),
            lambda: f"EXTRACT({draw.choice(_PARTS)} FROM {self.time(depth)})",
            lambda: f"datediff({self.time(depth)}, {self.time(depth)})",
            lambda: self._called("TIMESTAMPDIFF DATEDIFF", draw.choice(_UNITS), self.time(depth), self.time(0)),
            lambda: self._called("unix_seconds unix_millis unix_micros unix_date", self.time(depth)),
            lambda: self._called("floor ceil ceiling", self.number(depth)),
            lambda: self._called("ascii char_length octet_length bit_length crc32", self.text(depth)),
            lambda: self._called("shiftleft shiftright shiftrightunsigned", one, self.small()),
            lambda: f"{self._pick('abs', '-', 'factorial', 'sign')}({one})",
            lambda: self._called("bit_get getbit", one, self._pick("7", "by1")),
            lambda: f"{self._pick('a', 's')}1[{self.small()}]",
            lambda: self._called("element_at try_element_at get", self._column("a"), self.small()),
            lambda: f"get(array({one}, {self.small()}, {self.whole(0)}), by1)",  # of a literal, Spark reads no array
            lambda: f"try_element_at(sequence({self.small()}, {self._pick('4', 'by1')}), {self.small()})",
            lambda: f"get(sequence({self.small()}, {self.small()}, {self._pick('1', '-1', '2', '0')}), 1)",
            lambda: self._days(self.time(0)),
            lambda: self._called("size cardinality array_size", self._column("a", "s")),
            lambda: self._called("hash xxhash64", self.any(depth), self.any(0)),
            lambda: f"width_bucket({self.number(0)}, 0, 10, {self.small()})",
        )

    def _days(self, time: str) -> str:
        """The number of days from a time to one near it: those between any two would be millions."""
        later = f"date_add({time}, {self.small()})"
        return f"size(sequence(CAST({time} AS DATE), {later}, INTERVAL '{self._pick('1', '-1', '2')}' DAY))"

    def _number(self, depth: int) -> str:
        one, two = self.number(depth), self.number(depth)
        return self._one(
            lambda: f"({one} {self._pick('+', '-', '*', '/', '%', 'DIV')} {two})",
            lambda: f"({one} {self._pick('+', '-', '*', '/', '%')} {two})",
            lambda: self._called("try_add try_subtract try_multiply try_divide try_mod pmod mod", one, two),
            lambda: self._called("abs - + sign sqrt negative positive rint degrees radians", one),
            lambda: self._called("round bround floor ceil", one, self._pick("0", "1", "2", "-1", "-3", "10")),
            lambda: self._called("round bround", one),
            lambda: self._called("greatest least coalesce nvl ifnull nullif", one, two),
            lambda: self._called("zeroifnull nullifzero", one),
            lambda: self.whole(depth),
            lambda: self.cased(depth, self.number),
            lambda: f"months_between({self.time(depth)}, {self.time(depth)}{self._pick('', ', bo1')})",
            lambda: f"power({self._column('i', 'd')}, {self._pick('0', '1', '2')})",
            lambda: self._called("exp ln log10 cbrt expm1 log1p sin cos tan asin acos atan", self._column("i", "d")),
            lambda: self._called("hypot nanvl atan2", self._column("i", "d"), self._column("d")),
        )

    def text(self, depth: int) -> str:
        """An expression that is text, or becomes text where it has to."""
        return self._of(depth, lambda: self._leaf(("t", "t", "q", "i", "ts"), _LITERALS), self._text)

    def _text(self, depth: int) -> str:
        draw = self._draw
        one, two = self.text(depth), self.text(0)
        return self._one(
            lambda: f"({one} || {two})",
            lambda: f"concat({one}, {two}, {self.any(0)})",
            lambda: f"concat_ws({self.text(0)}, {one}, {two}, {self._column('s', 't')})",
            lambda: self._called("substr substring", one, self.small(), self.small()),
            lambda: f"SUBSTRING({one} FROM {self.small()} FOR {self.small()})",
            lambda: f"substr({one}, {self.small()})",
            lambda: self._called("left right repeat", one, self.small()),
            lambda: self._called("upper lower trim ltrim rtrim reverse initcap btrim", one),
            lambda: f"TRIM({self._pick('BOTH', 'LEADING', 'TRAILING')} {two} FROM {one})",
            lambda: f"TRIM({self._pick('BOTH', 'LEADING', 'TRAILING', two)} FROM {one})",
            lambda: f"btrim({one}, {two})",
            lambda: f"replace({one}, {two}, {self.text(0)})",
            lambda: f"translate({one}, {two}, {self.text(0)})",
            lambda: f"split_part({one}, {two}, {self.small()})",
            lambda: self._called("lpad rpad", one, self.small(), two),
            lambda: f"OVERLAY({one} PLACING {two} FROM {self.small()})",
            lambda: f"OVERLAY({one} PLACING {two} FROM {self.small()} FOR {self.small()})",
            lambda: f"substring_index({one}, {two}, {self.small()})",
            lambda: f"regexp_extract({one}, '([a-z])(X)', {self._pick('0', '1', '2')})",
            lambda: f"regexp_replace({one}, '{draw.choice(_REGEX)}', '<$0>')",
            lambda: f"date_format({self.time(depth)}, '{draw.choice(_FORMATS)}')",
            lambda: self._called("dayname monthname", self.time(depth)),
            lambda: self._called("hex bin chr char", self.whole(depth)),
            lambda: f"space({self.small()})",  # of the greatest INT it takes gigabytes
            lambda: self._called("md5 sha sha1 base64 hex", self._pick(one, self.binary(0))),
            lambda: f"sha2({one}, {self._pick('256', '0', '224', '384', '512', '1')})",
            lambda: f"from_unixtime({self.whole(0)})",
            lambda: f"array_join({self._column('s')}, {two})",
            lambda: f"CAST({self.any(depth)} AS STRING)",
            lambda: self.cased(depth, self.text),
            lambda: self._called("coalesce greatest least nullif nvl", one, two),
        )

    def binary(self, depth: int) -> str:
        return self._of(
            depth, lambda: self._leaf(("x",), ("X'00ff'", "X'616263'", "CAST('é' AS BINARY)")), self._binary
        )

    def _binary(self, depth: int) -> str:
        one = self.binary(depth)
        return self._one(
            lambda: f"({one} || {self.binary(0)})",
            lambda: self._called("substr substring", one, self.small(), self.small()),
            lambda: f"substr({one}, {self.small()})",
            lambda: f"left({one}, {self.small()})",
            lambda: f"CAST({self.text(depth)} AS BINARY)",
            lambda: self._called("unhex unbase64", self.text(depth)),
            lambda: f"encode({self.text(depth)}, 'UTF-8')",
            lambda: f"coalesce({one}, {self.binary(0)})",
        )

    def condition(self, depth: int) -> str:
        return self._of(depth, lambda: self._leaf(("bo",), ("TRUE", "FALSE")), self._condition)

    def _condition(self, depth: int) -> str:
        draw = self._draw
        sides = draw.choice((self.number, self.text, self.time, self.condition, self.binary))
        one, two = sides(depth), draw.choice((sides, self.any))(0)
        negated = self._pick("", "", "NOT ")
        op = self._pick("=", "<>", "<", "<=", ">", ">=", "<=>")
        return self._one(
            lambda: f"({one} {self._pick('=', '<>', '<', '<=', '>', '>=', '<=>', '!=', '==')} {two})",
            lambda: f"({one} {self._pick('=', '<', '>', '<=>')} {two})",
            lambda: f"({one} {negated}BETWEEN {two} AND {sides(0)})",
            lambda: f"({one} {negated}IN ({two}, {sides(0)}, {sides(0)}))",
            lambda: f"({self.text(depth)} {negated}{self._pick('LIKE', 'LIKE', 'ILIKE')} '{draw.choice(_LIKE)}')",
            lambda: f"({self.text(depth)} LIKE {self.text(0)})",
            lambda: f"({self.text(depth)} LIKE 'a!%b' ESCAPE '!')",
            lambda: f"({self.text(depth)} {negated}{self._pick('RLIKE', 'REGEXP')} '{draw.choice(_REGEX)}')",
            lambda: self._quantified(depth),
            lambda: (
                f"(struct({one} AS a, {self._column('i')} AS b) {op} struct({sides(0)} AS a, {self._column('i')} AS b))"
            ),
            lambda: f"({one} IS {negated}NULL)",
            lambda: f"({self.condition(depth)} IS {negated}{self._pick('TRUE', 'FALSE')})",
            lambda: f"({one} IS {negated}DISTINCT FROM {two})",
            lambda: f"(NOT {self.condition(depth)})",
            lambda: f"({self.condition(depth)} {self._pick('AND', 'OR')} {self.condition(depth)})",
            lambda: self._called("contains startswith endswith", self.text(depth), self.text(0)),
            lambda: f"isnan({self.number(depth)})",
            lambda: f"array_contains({self._column('a')}, {self.whole(0)})",
        )

    def _quantified(self, depth: int) -> str:
        patterns = ", ".join(f"'{self._draw.choice(_LIKE)}'" for _ in range(2))
        like = f"{self._pick('', 'NOT ')}{self._pick('LIKE', 'ILIKE')} {self._pick('ANY', 'ALL', 'SOME')}"
        return f"({self.text(depth)} {like} ({patterns}))"

    def time(self, depth: int) -> str:
        """A date or a timestamp, or text that becomes one."""
        leaf = self._draw.choice(((("dt", "ts", "z"), _DATES), (("ts", "dt", "z"), _TIMES)))
        return self._of(depth, lambda: self._leaf(*leaf), self._time)

    def _time(self, depth: int) -> str:
        draw = self._draw
        one = self.time(depth)
        return self._one(
            lambda: f"({one} {self._pick('+', '-')} {draw.choice(_INTERVALS)})",
            lambda: f"({draw.choice(_INTERVALS)} + {one})",
            lambda: f"({one} {self._pick('+', '-')} {self.small()})",
            lambda: f"({one} - {self.time(0)})",
            lambda: self._called("date_add date_sub add_months", one, self.small()),
            lambda: self._called("TIMESTAMPADD DATEADD DATE_ADD", draw.choice(_UNITS), self.whole(0), one),
            lambda: f"date_trunc('{draw.choice(_UNITS)}', {one})",
            lambda: f"trunc({one}, '{self._pick('year', 'quarter', 'mon', 'week', 'day')}')",
            lambda: f"last_day({one})",
            lambda: f"next_day({one}, '{self._pick('MO', 'Tue', 'sunday', 'xx')}')",
            lambda: self._called(
                "make_date", self._pick("2020", "sh1"), self._pick("2", "by1"), self._pick("29", "by2")
            ),
            lambda: self._called(
                *("make_timestamp try_make_timestamp", "2020", self._pick("2", "by1"), "29"),
                *(self._pick("0", "23", "by2"), "59", self._pick("0", "n1", "59.5")),
            ),
            lambda: self._called("timestamp_seconds timestamp_millis timestamp_micros", self.number(0)),
            lambda: self._called("to_date to_timestamp date timestamp try_to_date try_to_timestamp", self.any(0)),
            lambda: f"to_date({self._column('q')}, 'yyyy-MM-dd')",
            lambda: f"CAST({self.any(depth)} AS {self._pick('DATE', 'TIMESTAMP', 'TIMESTAMP_NTZ')})",
            lambda: f"date_from_unix_date({self.whole(0)})",
            lambda: self.cased(depth, self.time),
            lambda: self._called("coalesce greatest least", one, self.time(0)),
        )

    def converted(self, depth: int) -> str:
        value, to = self.any(depth - 1), self._draw.choice(_TYPES)
        if self._draw.random() < 0.1:
            return f"{value}::{to}" if value.isidentifier() else f"({value})::{to}"
        return f"{self._pick('', 'TRY_')}CAST({value} AS {to})"

    def chosen(self, depth: int) -> str:
        """One of two values of types that may differ."""
        return self.cased(depth - 1, self._draw.choice((self.number, self.text, self.time, self.any)))

    def cased(self, depth: int, value: Callable[[int], str]) -> str:
        one, two = value(depth), self._draw.choice((value, value, self.any))(0)
        condition = self.condition(depth)
        return self._one(
            lambda: f"(CASE WHEN {condition} THEN {one} ELSE {two} END)",
            lambda: f"(CASE {self.text(0)} WHEN {self.text(0)} THEN {one} WHEN {self.any(0)} THEN {two} END)",
            lambda: f"if({condition}, {one}, {two})",
            lambda: f"nvl2({self.any(0)}, {one}, {two})",
            lambda: f"decode({self.any(0)}, {self.any(0)}, {one}, {two})",
        )
