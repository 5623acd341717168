"""Expressions as SQL text, drawn at random: what people write, with operands of any type."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from .pairs import SCHEMA as PLAIN
from .pairs import rows as plain_rows

__all__ = ["SCHEMA", "Sentences", "rows"]

_BINARY = [b"", b"a", b"abc", "é".encode(), b"\x00\x01", b"12", "日本".encode(), b"ABC"]
_ARRAYS = [[], [1], [1, 2, 3], [None, 5], [-7, 2**31 - 1, 0, None]]
_TEXTS = [[], ["a"], ["b", None, "é"], ["", "abc", "a"]]
_LOCAL = [datetime(1970, 1, 1), datetime(2020, 2, 29, 23, 59, 59, 999999), datetime(1, 1, 1), datetime(1969, 7, 20, 20)]
_MORE: dict[str, tuple[pa.DataType, list[Any]]] = {
    "x": (pa.binary(), _BINARY),
    "a": (pa.list_(pa.int32()), _ARRAYS),
    "s": (pa.list_(pa.string()), _TEXTS),
    "z": (pa.timestamp("us"), _LOCAL),
}
SCHEMA = pa.schema([*PLAIN, *((f"{name}{at}", dtype) for name, (dtype, _) in _MORE.items() for at in (1, 2))])


def rows(count: int, seed: int) -> pa.Table:
    """Rows whose values are edges of their types, nulls, and some in between."""
    draw = random.Random(seed)
    table = plain_rows(count, seed)
    for name, (dtype, edges) in _MORE.items():
        for at in (1, 2):
            values = [None if draw.random() < 0.1 else draw.choice(edges) for _ in range(count)]
            table = table.append_column(f"{name}{at}", pa.array(values, dtype))
    return table


_TYPES = (
    *("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BOOLEAN", "DATE", "TIMESTAMP"),
    *("TIMESTAMP_NTZ", "BINARY", "DECIMAL(5,2)", "DECIMAL(38,18)", "DECIMAL(20,0)", "DECIMAL(38,37)", "DECIMAL(1,1)"),
)
_WHOLE = (
    "127Y",
    "32767S",
    "2147483647",
    "-2147483648",
    "9223372036854775807L",
    "-9223372036854775808L",
    "0",
    "1",
    "-1",
)
_DECIMALS = ("0.5", "-12.345", "9.99BD", "99999999999999999999999999999999999999", "0.00000000000000000001", "1.0")
_DOUBLES = ("1e0", "2.5D", "1E300", "-0.0D", "1e-5", "3.25F", "double('NaN')", "double('-inf')")
_LITERALS = (
    "''",
    "'a'",
    "'abc'",
    "'12'",
    "' 7 '",
    "'1e3'",
    "'é😀x'",
    "'2020-02-29'",
    "'true'",
    "'x\\\\%y'",
    "'%'",
    "'A_c'",
)
_DATES = ("DATE'2020-02-29'", "DATE'1970-01-01'", "DATE'0001-01-01'", "DATE'9999-12-31'", "'2021-03-31'", "'1999-1-1'")
_TIMES = (
    *("TIMESTAMP'2020-02-29 12:30:45.123456'", "TIMESTAMP'1969-12-31 23:59:59.999999'", "'2020-06-15 01:02:03'"),
    *("TIMESTAMP'2020-06-15 01:02:03+05:30'", "TIMESTAMP_NTZ'2020-02-29 23:59:59'", "'2020-02-29T01:02:03Z'"),
    *("TIMESTAMP'0001-01-01 00:00:00'", "'1999-12-31 23:59:59.5-08:00'", "TIMESTAMP_NTZ'1582-10-10 00:00:00.5'"),
)
_INTERVALS = (
    *("INTERVAL '1' DAY", "INTERVAL '-36' HOUR", "INTERVAL '1' MONTH", "INTERVAL '-13' MONTH", "INTERVAL '2' YEAR"),
    *(
        "INTERVAL '0.5' SECOND",
        "INTERVAL 90 MINUTES",
        "INTERVAL '3 weeks'",
        "INTERVAL 1 MILLISECOND",
        "INTERVAL '7' DAYS",
    ),
)
_LIKE = ("a%", "%b", "%X%", "a_b", "%", "", "_", "%line", "日%", "a%b%c", "A\\\\_%", "__", "%\\\\%%", "é_x", "ß", "S%")
_REGEX = (
    "a.c",
    "^a",
    "c$",
    "[a-c]+X?",
    "(a|b),",
    "\\\\d+",
    "\\\\w\\\\W",
    "x\\\\s*$",
    "^.$",
    "a{1,2}b?",
    "[^ab]",
    "(?i)ABC",
)
_UNITS = ("MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
_PARTS = (
    *("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DAYOFWEEK", "DOW", "DOY", "HOUR", "MINUTE", "SECOND"),
    "DAYOFWEEK_ISO",
    "YEAROFWEEK",
)
_FORMATS = (
    "yyyy-MM-dd",
    "HH:mm:ss",
    "yyyy/MM/dd HH:mm",
    "dd.MM.yyyy",
    "yyyyMMdd",
    "hh:mm a",
    "E, d MMM yyyy",
    "D",
    "yy",
)


class Sentences:
    """Draws expressions as text."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)

    def some(self, count: int, depth: int) -> list[str]:
        """So many expressions, each of a kind of value."""
        return [self.any(depth) for _ in range(count)]

    def any(self, depth: int) -> str:
        """An expression of any type."""
        return self._draw.choice(
            (self.number, self.number, self.text, self.condition, self.time, self.converted, self.chosen, self.binary)
        )(depth)

    def _pick(self, *options: str) -> str:
        return self._draw.choice(options)

    def _called(self, names: str, *arguments: str) -> str:
        return f"{self._draw.choice(names.split())}({', '.join(arguments)})"

    def _column(self, *names: str) -> str:
        return f"{self._draw.choice(names)}{self._draw.choice('12')}"

    def _leaf(self, names: Sequence[str], literals: Sequence[str]) -> str:
        return self._column(*names) if self._draw.random() < 0.7 else self._draw.choice((*literals, "NULL"))

    def _of(self, depth: int, leaf: Callable[[], str], made: Callable[[int], str]) -> str:
        return leaf() if depth <= 0 or self._draw.random() < 0.2 else made(depth - 1)

    # --- numbers ----------------------------------------------------------------------------------------------------

    def number(self, depth: int) -> str:
        """An expression that is a number."""
        return self._of(depth, self._number_leaf, self._number)

    def _number_leaf(self) -> str:
        kind = self._draw.choice(
            (
                (("by", "sh", "i", "l"), _WHOLE),
                (("n", "m", "w"), _DECIMALS),
                (("f", "d"), _DOUBLES),
                (("q",), ("'12'", "'1.5'")),
            )
        )
        return self._leaf(*kind)

    def whole(self, depth: int) -> str:
        """A whole number."""
        return self._of(depth, lambda: self._leaf(("by", "sh", "i", "l"), _WHOLE), self._whole)

    def small(self) -> str:
        """A whole number that counts characters or units."""
        return self._pick("0", "1", "2", "3", "-1", "-2", "5", "40", "by1", "CAST(by2 AS INT)", "NULL")

    def _whole(self, depth: int) -> str:
        draw = self._draw
        one, two = self.whole(depth), self.whole(depth)
        return draw.choice(
            (
                lambda: f"({one} {self._pick('+', '-', '*', 'DIV', '%', '&', '|', '^')} {two})",
                lambda: f"({self.number(depth)} DIV {self.number(depth)})",
                lambda: f"length({self.text(depth)})",
                lambda: self._called("instr position levenshtein find_in_set", self.text(depth), self.text(depth)),
                lambda: f"locate({self.text(0)}, {self.text(depth)}, {self.small()})",
                lambda: f"POSITION({self.text(0)} IN {self.text(depth)})",
                lambda: self._called("year quarter month day dayofweek weekday dayofyear weekofyear", self.time(depth)),
                lambda: self._called("hour minute second", self.time(depth)),
                lambda: f"EXTRACT({draw.choice(_PARTS)} FROM {self.time(depth)})",
                lambda: f"datediff({self.time(depth)}, {self.time(depth)})",
                lambda: f"TIMESTAMPDIFF({draw.choice(_UNITS)}, {self.time(depth)}, {self.time(depth)})",
                lambda: self._called("unix_seconds unix_millis unix_micros unix_date", self.time(depth)),
                lambda: self._called("floor ceil ceiling", self.number(depth)),
                lambda: self._called("ascii char_length octet_length bit_length crc32", self.text(depth)),
                lambda: self._called("shiftleft shiftright shiftrightunsigned", one, self.small()),
                lambda: f"{self._pick('bit_count', '~', 'abs', '-', 'factorial', 'sign')}({one})",
                lambda: f"{self._pick('a', 's')}1[{self.small()}]",
                lambda: self._called("element_at get try_element_at", self._column("a"), self.small()),
                lambda: self._called("size cardinality array_size", self._column("a", "s")),
                lambda: self._called("hash xxhash64", self.any(depth), self.any(0)),
                lambda: f"width_bucket({self.number(0)}, 0, 10, {self.small()})",
                lambda: f"regexp_count({self.text(depth)}, '{draw.choice(_REGEX)}')",
            )
        )()

    def _number(self, depth: int) -> str:
        draw = self._draw
        one, two = self.number(depth), self.number(depth)
        return draw.choice(
            (
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
                lambda: f"months_between({self.time(depth)}, {self.time(depth)})",
            )
        )()

    # --- text and bytes ---------------------------------------------------------------------------------------------

    def text(self, depth: int) -> str:
        """An expression that is text, or becomes text where it has to."""
        return self._of(depth, lambda: self._leaf(("t", "t", "q", "i", "ts"), _LITERALS), self._text)

    def _text(self, depth: int) -> str:
        draw = self._draw
        one, two = self.text(depth), self.text(0)
        return draw.choice(
            (
                lambda: f"({one} || {two})",
                lambda: f"concat({one}, {two}, {self.any(0)})",
                lambda: f"concat_ws({self.text(0)}, {one}, {two}, {self._column('s', 't')})",
                lambda: self._called("substr substring", one, self.small(), self.small()),
                lambda: f"SUBSTRING({one} FROM {self.small()} FOR {self.small()})",
                lambda: f"substr({one}, {self.small()})",
                lambda: self._called("left right repeat", one, self.small()),
                lambda: self._called("upper lower trim ltrim rtrim reverse initcap btrim soundex", one),
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
                lambda: f"regexp_substr({one}, '{draw.choice(_REGEX)}')",
                lambda: f"date_format({self.time(depth)}, '{draw.choice(_FORMATS)}')",
                lambda: self._called("dayname monthname", self.time(depth)),
                lambda: self._called("hex bin chr char space", self.whole(depth)),
                lambda: self._called("md5 sha sha1 base64 hex", self._pick(one, self.binary(0))),
                lambda: f"sha2({one}, {self._pick('256', '0', '224', '384', '512', '1')})",
                lambda: f"elt({self.small()}, {one}, {two})",
                lambda: f"conv({one}, {self._pick('10', '16', '2')}, {self._pick('16', '10', '36', '-10')})",
                lambda: f"url_encode({one})",
                lambda: f"from_unixtime({self.whole(0)})",
                lambda: f"format_number({self.number(0)}, {self._pick('0', '2')})",
                lambda: f"array_join({self._column('s')}, {two})",
                lambda: f"CAST({self.any(depth)} AS STRING)",
                lambda: self.cased(depth, self.text),
                lambda: self._called("coalesce greatest least nullif nvl", one, two),
            )
        )()

    def binary(self, depth: int) -> str:
        """An expression that is bytes."""
        return self._of(
            depth, lambda: self._leaf(("x",), ("X'00ff'", "X'616263'", "CAST('é' AS BINARY)")), self._binary
        )

    def _binary(self, depth: int) -> str:
        one = self.binary(depth)
        return self._draw.choice(
            (
                lambda: f"({one} || {self.binary(0)})",
                lambda: self._called("substr substring", one, self.small(), self.small()),
                lambda: f"substr({one}, {self.small()})",
                lambda: f"left({one}, {self.small()})",
                lambda: f"CAST({self.text(depth)} AS BINARY)",
                lambda: self._called("unhex unbase64", self.text(depth)),
                lambda: f"encode({self.text(depth)}, 'UTF-8')",
                lambda: f"coalesce({one}, {self.binary(0)})",
            )
        )()

    # --- conditions -------------------------------------------------------------------------------------------------

    def condition(self, depth: int) -> str:
        """A condition."""
        return self._of(depth, lambda: self._leaf(("bo",), ("TRUE", "FALSE")), self._condition)

    def _condition(self, depth: int) -> str:
        draw = self._draw
        sides = draw.choice((self.number, self.text, self.time, self.condition, self.binary))
        one, two = sides(depth), draw.choice((sides, self.any))(0)
        negated = self._pick("", "", "NOT ")
        return draw.choice(
            (
                lambda: f"({one} {self._pick('=', '<>', '<', '<=', '>', '>=', '<=>', '!=', '==')} {two})",
                lambda: f"({one} {self._pick('=', '<', '>=', '<=>')} {two})",
                lambda: f"({one} {negated}BETWEEN {two} AND {sides(0)})",
                lambda: f"({one} {negated}IN ({two}, {sides(0)}, {sides(0)}))",
                lambda: f"({self.text(depth)} {negated}{self._pick('LIKE', 'LIKE', 'ILIKE')} '{draw.choice(_LIKE)}')",
                lambda: f"({self.text(depth)} LIKE {self.text(0)})",
                lambda: f"({self.text(depth)} LIKE 'a!%b' ESCAPE '!')",
                lambda: f"({self.text(depth)} {negated}{self._pick('RLIKE', 'REGEXP')} '{draw.choice(_REGEX)}')",
                lambda: self._quantified(depth),
                lambda: f"({one} IS {negated}NULL)",
                lambda: f"({self.condition(depth)} IS {negated}{self._pick('TRUE', 'FALSE')})",
                lambda: f"({one} IS {negated}DISTINCT FROM {two})",
                lambda: f"(NOT {self.condition(depth)})",
                lambda: f"({self.condition(depth)} {self._pick('AND', 'OR')} {self.condition(depth)})",
                lambda: self._called("contains startswith endswith", self.text(depth), self.text(0)),
                lambda: f"isnan({self.number(depth)})",
                lambda: f"array_contains({self._column('a')}, {self.whole(0)})",
            )
        )()

    def _quantified(self, depth: int) -> str:
        patterns = ", ".join(f"'{self._draw.choice(_LIKE)}'" for _ in range(2))
        like = f"{self._pick('', 'NOT ')}{self._pick('LIKE', 'ILIKE')} {self._pick('ANY', 'ALL', 'SOME')}"
        return f"({self.text(depth)} {like} ({patterns}))"

    # --- times ------------------------------------------------------------------------------------------------------

    def time(self, depth: int) -> str:
        """A date or a timestamp, or text that becomes one."""
        leaf = self._draw.choice(((("dt", "ts", "z"), _DATES), (("ts", "dt", "z"), _TIMES)))
        return self._of(depth, lambda: self._leaf(*leaf), self._time)

    def _time(self, depth: int) -> str:
        draw = self._draw
        one = self.time(depth)
        return draw.choice(
            (
                lambda: f"({one} {self._pick('+', '-')} {draw.choice(_INTERVALS)})",
                lambda: f"({draw.choice(_INTERVALS)} + {one})",
                lambda: f"({one} {self._pick('+', '-')} {self.small()})",
                lambda: f"({one} - {self.time(0)})",
                lambda: self._called("date_add date_sub add_months", one, self.small()),
                lambda: f"{self._pick('TIMESTAMPADD', 'DATEADD')}({draw.choice(_UNITS)}, {self.whole(0)}, {one})",
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
                lambda: self._called(
                    "from_utc_timestamp to_utc_timestamp",
                    one,
                    self._pick(repr("Europe/Oslo"), repr("+02:00"), repr("America/New_York")),
                ),
                lambda: f"CAST({self.any(depth)} AS {self._pick('DATE', 'TIMESTAMP', 'TIMESTAMP_NTZ')})",
                lambda: f"date_from_unix_date({self.whole(0)})",
                lambda: self.cased(depth, self.time),
                lambda: self._called("coalesce greatest least", one, self.time(0)),
            )
        )()

    # --- of any type ------------------------------------------------------------------------------------------------

    def converted(self, depth: int) -> str:
        """A cast."""
        value, to = self.any(depth - 1), self._draw.choice(_TYPES)
        if self._draw.random() < 0.1:
            return f"{value}::{to}" if value.isidentifier() else f"({value})::{to}"
        return f"{self._pick('', 'TRY_')}CAST({value} AS {to})"

    def chosen(self, depth: int) -> str:
        """One of two values of types that may differ."""
        return self.cased(depth - 1, self._draw.choice((self.number, self.text, self.time, self.any)))

    def cased(self, depth: int, value: Callable[[int], str]) -> str:
        """CASE or IF."""
        one, two = value(depth), self._draw.choice((value, value, self.any))(0)
        condition = self.condition(depth)
        return self._draw.choice(
            (
                lambda: f"(CASE WHEN {condition} THEN {one} ELSE {two} END)",
                lambda: f"(CASE {self.text(0)} WHEN {self.text(0)} THEN {one} WHEN {self.any(0)} THEN {two} END)",
                lambda: f"if({condition}, {one}, {two})",
                lambda: f"nvl2({self.any(0)}, {one}, {two})",
                lambda: f"decode({self.any(0)}, {self.any(0)}, {one}, {two})",
            )
        )()
