"""Expressions over one relation's columns: immutable, typed and hashable, so queries can share equal ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any, TypeAlias

import pyarrow as pa

from ..conf.column_names import quoted_text
from .kinds import spark_name

CHAIN = 8
"""Up to this many operands of one operator form a left-deep tree, as in Spark."""

_INFIX = {
    "add": "+",
    "and": "AND",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
    "div": "DIV",
    "divide": "/",
    "eq": "=",
    "eq_null_safe": "<=>",
    "ge": ">=",
    "gt": ">",
    "le": "<=",
    "like": "LIKE",
    "lt": "<",
    "mod": "%",
    "multiply": "*",
    "ne": "<>",
    "or": "OR",
    "rlike": "RLIKE",
    "subtract": "-",
}
_BEFORE = {"bitwise_not": "~", "negate": "-", "not": "NOT "}
_AFTER = {"is_not_null": " IS NOT NULL", "is_null": " IS NULL"}


class Days(timedelta):
    """An interval written in days or weeks. A DATE that it moves stays a DATE."""


@dataclass(frozen=True)
class Field:
    """A column of the relation over which the expression is evaluated."""

    name: str
    type: pa.DataType

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Constant:
    """A Python value or None, in the form that pyarrow converts to the type; times of day and zones are UTC."""

    value: Any
    type: pa.DataType

    def __str__(self) -> str:
        if self.value is None:
            return "NULL"
        if isinstance(self.value, str):
            return quoted_text(self.value)
        if isinstance(self.value, bool):
            return str(self.value).upper()
        if isinstance(self.value, timedelta):
            return f"INTERVAL '{self.value}'"
        if isinstance(self.value, date):
            return f"{'TIMESTAMP' if isinstance(self.value, datetime) else 'DATE'} '{self.value}'"
        return str(self.value)


@dataclass(frozen=True)
class Call:
    """A function of other expressions. It checks nothing: :mod:`.typing` makes well-typed calls with Spark's casts.

    ``function`` is the canonical name: Spark's own in lower case, with operators spelled out (``add``, ``eq``,
    ``is_null``). Four are particular:

    - ``case``: condition, value, condition, value, ..., and at the end the value for no condition.
    - ``cast``, ``try_cast``: one argument; the call's ``type`` is the type to cast to.
    - ``in``: the value, then the candidates.
    - ``get_field``: a struct, then the field's name as a constant.
    """

    function: str
    arguments: tuple[Expression, ...]
    type: pa.DataType

    def __str__(self) -> str:
        parts = [str(each) for each in self.arguments]
        name = self.function
        if name in _INFIX and len(parts) == 2:
            return f"({parts[0]} {_INFIX[name]} {parts[1]})"
        if name in _BEFORE and len(parts) == 1:
            return f"({_BEFORE[name]}{parts[0]})"
        if name in _AFTER and len(parts) == 1:
            return f"({parts[0]}{_AFTER[name]})"
        if name == "add_all":
            return f"({' + '.join(parts)})"
        if name in {"cast", "try_cast"}:
            return f"{name}({parts[0]} AS {spark_name(self.type)})"
        if name == "in":
            return f"({parts[0]} IN ({', '.join(parts[1:])}))"
        if name == "in_list":
            return f"({parts[0]} IN {parts[1]})"
        if name == "between" and len(parts) == 3:
            return f"({parts[0]} BETWEEN {parts[1]} AND {parts[2]})"
        if name == "case":
            pairs = [f"WHEN {parts[at]} THEN {parts[at + 1]}" for at in range(0, len(parts) - 1, 2)]
            return f"(CASE {' '.join(pairs)} ELSE {parts[-1]} END)"
        if name == "get_item":
            return f"{parts[0]}[{parts[1]}]"
        return f"{name}({', '.join(parts)})"


Expression: TypeAlias = "Field | Constant | Call"


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield the expression and all its parts, outermost first."""
    yield expression
    if isinstance(expression, Call):
        for each in expression.arguments:
            yield from walk(each)


def fields(expression: Expression) -> frozenset[str]:
    """Return the names of the columns that the expression reads."""
    return frozenset(each.name for each in walk(expression) if isinstance(each, Field))


def substituted(expression: Expression, by: Mapping[str, Expression]) -> Expression:
    """Replace the fields named in `by` with other expressions."""
    if isinstance(expression, Field):
        return by.get(expression.name, expression)
    if isinstance(expression, Call):
        arguments = tuple(substituted(each, by) for each in expression.arguments)
        return expression if arguments == expression.arguments else replace(expression, arguments=arguments)
    return expression


def renamed(expression: Expression, names: Mapping[str, str]) -> Expression:
    """Rename the columns in `names`."""
    if isinstance(expression, Field):
        return replace(expression, name=names.get(expression.name, expression.name))
    if isinstance(expression, Call):
        return replace(expression, arguments=tuple(renamed(each, names) for each in expression.arguments))
    return expression


def conjuncts(condition: Expression | None) -> tuple[Expression, ...]:
    """Return the conditions joined by AND, in order; none for None."""
    if condition is None:
        return ()
    if isinstance(condition, Call) and condition.function == "and":
        return tuple(each for argument in condition.arguments for each in conjuncts(argument))
    return (condition,)


def all_of(conditions: Sequence[Expression]) -> Expression | None:
    """Join conditions by AND, the reverse of :func:`conjuncts`; return None if there are none."""
    return chain("and", conditions) if conditions else None


def left_of_chain(count: int) -> int:
    """Return the number of operands on the left of an associative operator; half of many, to keep the tree flat."""
    return count - 1 if count <= CHAIN else count // 2


def chain(function: str, parts: Sequence[Expression]) -> Expression:
    """Join parts by AND or OR, from left to right, or balanced if they are many."""
    if len(parts) == 1:
        return parts[0]
    half = left_of_chain(len(parts))
    return Call(function, (chain(function, parts[:half]), chain(function, parts[half:])), pa.bool_())
