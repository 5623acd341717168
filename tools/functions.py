"""docs/functions.md from the rules that check the types of calls: ``make reference``."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import pyarrow as pa

from upstream.conf.errors import SchemaError
from upstream.expressions.kinds import (
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    DURATION,
    FLOAT,
    INT,
    LONG,
    SHORT,
    TEXT,
    TIMESTAMP,
    spark_name,
)
from upstream.expressions.nodes import Constant, Expression, Field

__all__ = ["OPERATORS", "page"]

# Their private parts are meant: the tables of rules.
typing: Any = import_module("upstream.expressions.types")
arithmetic_types: Any = import_module("upstream.expressions.arithmetic_types")
digests: Any = import_module("upstream.expressions.hashes")
doubles: Any = import_module("upstream.expressions.doubles")
encodings: Any = import_module("upstream.expressions.encodings")
hashing: Any = import_module("upstream.expressions.hashes")
bits: Any = import_module("upstream.expressions.numbers")
logic: Any = import_module("upstream.expressions.logic")
months: Any = import_module("upstream.expressions.times")
Signature: Any = import_module("upstream.expressions.coercion").Signature
aggregates: Any = import_module("upstream.operators.relations.plan.aggregates")

OPERATORS: Mapping[str, str] = {
    "add": "a + b",
    "subtract": "a - b",
    "multiply": "a * b",
    "divide": "a / b",
    "div": "a DIV b",
    "mod": "a % b",
    "negate": "-a",
    "eq": "a = b",
    "ne": "a <> b",
    "lt": "a < b",
    "le": "a <= b",
    "gt": "a > b",
    "ge": "a >= b",
    "eq_null_safe": "a <=> b",
    "and": "p AND q",
    "or": "p OR q",
    "not": "NOT p",
    "is_null": "a IS NULL",
    "is_not_null": "a IS NOT NULL",
    "between": "a BETWEEN b AND c",
    "in": "a IN (b, c)",
    "like": "s LIKE 'x%'",
    "ilike": "s ILIKE 'x%'",
    "rlike": "s RLIKE 'x.*'",
    "case": "CASE WHEN p THEN a ELSE b END",
    "bitwise_and": "a & b",
    "bitwise_or": "a | b",
    "bitwise_xor": "a ^ b",
    "bitwise_not": "~a",
    "get_field": "r.f",
    "get_item": "l[0]",
}
"""How the calls that have signs or words of their own are written."""

_NOT_TYPED = {"second_with_fraction"}  # what EXTRACT(SECOND FROM t) becomes

_TAKES = {
    "add": "two numbers, or a time and an interval",
    "subtract": "two numbers, two times, or a time and an interval",
    "multiply": "two numbers, or an interval and a number",
    "divide": "two numbers, or an interval and a number",
    "get_field": "a struct, and the name of a field",
    "reverse": "a STRING, or an array",
    "make_dt_interval": "days, hours, minutes and seconds, or the first of these",
    "make_ym_interval": "constant years and months",
    **dict.fromkeys(("struct", "row"), "values, perhaps with names: `struct(a, b + 1 AS c)`, or `(a, b)`"),
    "decode": "a value, then pairs of what it may be and the result, and a default; or bytes and 'UTF-8'",
    "encode": "a STRING and 'UTF-8'",
    "overlay": "overlay(STRING, STRING, INT[, INT])",
}
_GIVES = {
    "get_field": "the type of the field",
    "make_ym_interval": "INTERVAL",
    "encode": "BINARY",
    "try_subtract": "the type of `a - b`",
    "array_join": "STRING",
    **dict.fromkeys(("array", "sequence", "generate_series"), "ARRAY"),
    **dict.fromkeys(("struct", "row", "named_struct"), "STRUCT"),
    **dict.fromkeys(("get", "get_item", "element_at", "try_element_at"), "the type of the elements"),
}
"""What the errors and the probes do not show."""

_INTRODUCTION = """\
# Functions of the query language

[Continuous queries](query-language.md) have these operators and functions, with the meaning that they
have in Spark SQL's ANSI mode: the same types and casts, and the same failures. `try_` functions give
null where the others fail. Names may be in capitals. Brackets hold optional arguments.
"""

_UNITS = """\
A unit is MICROSECOND, MILLISECOND, SECOND, MINUTE, HOUR, DAY, WEEK, MONTH, QUARTER, or YEAR.
"""

_NUMBERS = (INT, DOUBLE, pa.decimal128(10, 2))
_TYPES = (BOOLEAN, BYTE, SHORT, LONG, FLOAT, *_NUMBERS, TEXT, DATE, TIMESTAMP, DURATION, pa.list_(INT))
_PARTS = ("year", "MONTH")


def _probes() -> Iterator[list[Expression]]:
    """Yield arguments to try a function with, each of a type that needs no cast."""
    one: list[Expression] = [Field(f"x{at}", each) for at, each in enumerate(_TYPES)]
    yield from ([each] for each in one)
    yield from ([each, other] for each, other in itertools.product(one, one))
    digits: Expression = Constant(1, INT)
    condition: Expression = Field("p", BOOLEAN)
    yield from ([each, digits] for each in one)
    yield from ([condition, each, each] for each in one)
    yield from ([each, each, each] for each in one)
    for part in _PARTS:
        unit: list[Expression] = [Constant(part, TEXT)]
        yield from ([*unit, each] for each in one)
        yield from ([*unit, each, other] for each, other in itertools.product(one, one))


_PROBES = tuple(_probes())


def _gives(name: str) -> str:
    """Return the types of a function's results: those of all calls that need no cast of text."""
    if name in _GIVES:
        return _GIVES[name]
    if _error(name) == f"{name}()":  # a constant
        return _kind(typing.call(name, []).type)
    numeric = name in arithmetic_types.ARITHMETIC
    made: list[tuple[list[str], str]] = []
    for given in _PROBES:
        if numeric and any(each.type == TEXT for each in given):
            continue
        try:
            result = typing.call(name, given)
        except (SchemaError, ValueError):
            continue
        made.append(([_kind(each.type) for each in given], _kind(result.type)))
    return _summary(made)


def _kind(dtype: pa.DataType) -> str:
    return spark_name(dtype).partition("(")[0].partition("<")[0]


def _summary(made: Sequence[tuple[Sequence[str], str]]) -> str:
    """Return in words what results have in common, from the types of calls and of their results."""
    found = sorted({result for _, result in made})
    if len(found) > 1 and all(given[0] == result for given, result in made):
        return "the type of its argument" if all(len(given) == 1 for given, _ in made) else "the type of the first one"
    if len(found) > 1 and all(given[0] == result for given, result in made if len(set(given)) == 1):
        return "the common type"
    return " or ".join(found) if len(found) <= 4 else "by its arguments"


def _takes(name: str) -> str:
    """Return what the error of a call without arguments would ask for, with units in few words."""
    if name in _TAKES:
        return _TAKES[name]
    taken = _error(name).partition(": what CAST")[0]
    listed = re.fullmatch(r"(a unit and two values); the unit is one of (.+)", taken)
    if listed is None:
        return taken
    return "a unit or DAYOFYEAR, and two values" if "DAYOFYEAR" in listed[2] else listed[1]


def _row(name: str) -> tuple[str, str, str]:
    """Return how a function is written, what it takes, and what it gives."""
    rule = typing._rules()[name]
    if isinstance(rule, Signature):
        taken = re.fullmatch(r"\w+\((.*)\)", rule.written(name))
        takes = ", ".join(map(spark_name, rule.takes)) if name in OPERATORS or taken is None else taken[1]
        return OPERATORS.get(name, name), takes or "nothing", spark_name(rule.result)
    takes = _takes(name)
    written = re.fullmatch(r"\w+\((.*)\)", takes)  # of another name for the same function, too
    if name not in OPERATORS and written:
        takes = written[1] or "nothing"
    return OPERATORS.get(name, name), takes, _gives(name)


def _rows(names: Iterable[str]) -> Iterator[str]:
    """Yield a row for all functions that take and give the same."""
    return _together((f"`{written}`", takes, gives) for written, takes, gives in map(_row, names))


def _together(rows: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    alike: dict[tuple[str, str], list[str]] = {}
    for call, takes, gives in rows:
        alike.setdefault((takes, gives), []).append(call)
    for types, calls in alike.items():
        yield "| " + " | ".join(each.replace("|", "\\|") for each in (", ".join(calls), *types)) + " |"


def _casts(names: Iterable[str]) -> Iterator[str]:
    """Yield lines on functions that cast: those named after types, and the others by their types."""
    types = {name: _gives(name) for name in names}
    own = ", ".join(f"`{name}`" for name, of in types.items() if name.upper() == of)
    yield f"`CAST(x AS type)`, `TRY_CAST(x AS type)`, and functions with a type's name convert x:\n{own}."
    for of in sorted({of for name, of in types.items() if name.upper() != of}):
        others = " and ".join(f"`{name}`" for name, given in types.items() if given == of and name.upper() != of)
        yield f"{others} give {of}."


def _groups() -> dict[str, list[str]]:
    """Return the names by what they are about, each once."""
    numbers = (*arithmetic_types.ARITHMETIC, *doubles.DOUBLE_RULES)
    hashes = (*digests.DIGEST_RULES, *hashing.HASH_RULES)
    coded = encodings.ENCODING_RULES
    text, times = typing._text_rules(), typing._time_rules()
    nested = ("get_field", "get", "get_item", "element_at", "try_element_at", "size", "cardinality", "array_size")
    nested += ("array_contains", "array_join", "struct", "row", "named_struct", *logic.SEQUENCE_RULES)
    casts = [name for name in typing.function_names() if "what CAST reads" in _error(name)]
    groups: dict[str, list[str]] = {"Operators": [name for name in OPERATORS if name in typing._rules()]}
    left = set(typing.function_names()) - set(OPERATORS) - _NOT_TYPED
    for title, names in (
        ("Numbers", numbers),
        ("Bits", bits.BIT_RULES),
        ("Bytes and their text", coded),
        ("Hashes", hashes),
        ("Text", tuple(text)),
        ("Dates and times", (*times, *months.MONTH_RULES)),
        ("Arrays and structs", nested),
        ("Casts", casts),
        ("Nulls and choices", tuple(left)),
    ):
        groups[title] = sorted(left.intersection(names))
        left -= set(names)
    return groups


def _error(name: str) -> str:
    """Return what a call without arguments lacks."""
    try:
        typing.call(name, [])
    except SchemaError as error:
        return error.expected
    except ValueError:  # get_field, which the grammar alone calls
        return ""
    return f"{name}()"


def _aggregate_rows() -> Iterator[tuple[str, str, str]]:
    arguments = {1: "x", 2: "x, y", 3: "x, y, z"}
    for name, (counts, fits, _) in aggregates._KINDS.items():
        if name in aggregates._WITHIN_ALONE:
            continue
        written = " or ".join(f"`{name}({arguments[each]})`" for each in counts)
        of = aggregates._EXPECTED.get(fits, ("any value", ""))[0]
        yield written, of, _aggregated(name)
    for name in aggregates._WITHIN_ALONE:
        yield f"`{name}(y) WITHIN GROUP (ORDER BY x)`", "a number", "DOUBLE"
    yield "`listagg(x, ', ')`", "a value that becomes text, and a literal", "STRING"
    yield "`count(*)` or `count(x, …)`", "any values", "BIGINT"
    yield "`count_if(p)`", "a condition", "BIGINT"
    yield "`bool_and(p)`", "a condition", "BOOLEAN"
    yield "`bool_or(p)`", "a condition", "BOOLEAN"


def _aggregated(name: str) -> str:
    made: list[tuple[list[str], str]] = []
    for given in _PROBES:
        for second in ([], [Constant(0.5, DOUBLE)]):
            try:
                result = aggregates.aggregation("x", name, [*given, *second])
            except (SchemaError, KeyError):
                continue
            made.append(([_kind(given[0].type)], _kind(result.type)))
    return _summary(made)


def page() -> str:
    """Return docs/functions.md."""
    head = ["| functions | takes | gives |", "|---|---|---|"]
    lines = [_INTRODUCTION]
    for title, names in _groups().items():
        rows = [*_casts(names)] if title == "Casts" else [*head, *_rows(names)]
        lines += [f"## {title}\n", *([_UNITS] if "date_diff" in names else []), *rows, ""]
    names = {**aggregates._ALIASES, "string_agg": "listagg"}
    aliases = sorted((name, of) for name, of in names.items() if name not in aggregates._WITHIN_ALONE)
    lines += [
        "## Aggregates\n",
        "`DISTINCT`, `FILTER (WHERE …)` and `WITHIN GROUP (ORDER BY …)` work as in Spark SQL. The arguments of",
        "a list may end with `ORDER BY y`; if they do not, it is in the order of its values. Percentiles are exact.",
        "`sum` and `avg` take intervals, too.\n",
        *head,
        *_together(sorted(_aggregate_rows())),
        "",
        f"Other names: {', '.join(f'`{name}` for `{of}`' for name, of in aliases[:6])}.",
        f"More: {', '.join(f'`{name}` for `{of}`' for name, of in aliases[6:])}.",
        "",
        "A query with several groupings has `GROUPING` and `GROUPING_ID` besides.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
