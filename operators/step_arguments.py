"""Arguments that several steps share, checked where a plan takes the step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ..conf.errors import OptionError, SchemaError
from ..conf.options import duration_argument, names_argument
from ..core.rows.system_column import SYSTEM
from ..plan.nodes import Node
from ..plan.properties import check_promised
from .aggregates.parts import check_named
from .joins.band import unit_of


def check_result_names(aggregates: Mapping[str, object], columns: Sequence[str], own: Sequence[str], what: str) -> None:
    """Refuse aggregates and columns of a key or a group, `what`, that have names of other columns of the results."""
    check_named(aggregates, {*columns, *own, SYSTEM})
    hidden = set(columns) & set(own)
    if hidden:
        raise SchemaError(
            f"the {what} has the column {', '.join(sorted(hidden))}, and results have a column of that name",
            expected="columns of other names than " + ", ".join(own),
            hint="rename the column, and begin a stream with the new name in its key",
        )


def schemas_of(
    left: Node, right: Node, on: Mapping[str, str], what: str, times: Mapping[str, str] | None = None
) -> list[pa.Schema]:
    """Return the Arrow schemas of both streams; raise SchemaError if a compared column is missing or types differ."""
    schemas = [left.arrow, right.arrow]
    for schema, name, names in zip(schemas, ("left", "right"), (list(on), list(on.values())), strict=True):
        absent = [column for column in names if column not in schema.names]
        if absent:
            raise SchemaError(
                f"{what} on {', '.join(absent)}, which the {name} stream has not",
                expected="columns among " + ", ".join(schema.names),
                hint='name the columns of both: on={"left_name": "right_name"}',
            )
    for one, two in [*on.items(), *(times or {}).items()]:
        kinds = schemas[0].field(one).type, schemas[1].field(two).type
        if kinds[0] != kinds[1] or pa.types.is_floating(kinds[0]) or pa.types.is_nested(kinds[0]):
            raise SchemaError(
                f"a {what} by {one} of type {kinds[0]} and {two} of type {kinds[1]}",
                expected="columns of one type, and no fractions, arrays or structs",
                hint="cast one of them where the rows are read: read(…, select='CAST(a AS BIGINT) AS a, …')",
            )
    return schemas


def check_time_formats(what: str, left: Node, right: Node) -> None:
    """Refuse two streams whose times count in other units."""
    one, two = left.time_format, right.time_format
    if one != two:
        raise SchemaError(
            f"a {what} of a stream whose time {left.time!r} counts {one.unit} ({one.zone}) and one whose time "
            f"{right.time!r} counts {two.unit} ({two.zone})",
            expected="times of one format and one zone in both",
            hint="give the right time_format where each stream is made; convert the times of one where it is read",
        )


def columns_of_on(given: Any) -> dict[str, str]:
    """Return the right's column for each of the left's; raise OptionError if `on` is malformed."""
    if isinstance(given, Mapping):
        found = dict(given)
        if found and all(isinstance(each, str) and each for each in (*found, *found.values())):
            return found
    else:
        names = names_argument("on", given)
        if names:
            return {name: name for name in ([names] if isinstance(names, str) else names)}
    raise OptionError(
        f"on={given!r}",
        expected="the name of a column, a list of several, or a mapping from the left's to the right's",
        hint="name the columns that are equal in rows that meet",
    )


def check_group_columns(what: str, names: Sequence[str], schema: pa.Schema) -> None:
    """Raise SchemaError for columns that do not exist or form no groups, such as fractions: equal-looking ones may
    differ.

    `what` is the user's call with ``{}`` for the column, such as ``group_by({})``.
    """
    for name in names:
        asked = what.format(repr(name))
        if name not in schema.names or name == SYSTEM:
            raise SchemaError(
                f"{asked}, which the stream lacks",
                expected="columns among " + ", ".join(each for each in schema.names if each != SYSTEM),
                hint="correct the name",
            )
        kind = schema.field(name).type
        if pa.types.is_floating(kind) or pa.types.is_nested(kind):
            raise SchemaError(
                f"{asked}, which is of type {kind}",
                expected="a column of whole numbers, decimals, texts, dates, times or booleans",
                hint="cast it where the rows are read: read(…, select='CAST(a AS BIGINT) AS a, …')",
            )


def time_span(what: str, argument: str, plan: Node, value: Any) -> int | None:
    """Return how far the watermark has to pass a row, in units of the time column; None for never.

    `what` and `argument` are the names of the step and its argument, for errors. Raise OptionError if `value` is not a
    duration, or the stream has no event time or no watermark.
    """
    if value is None:
        return None
    if plan.time is None:
        raise OptionError(
            f"{what} with {argument}={value!r} over a stream without an event time",
            expected="an event time and a watermark: later arrivals are newer otherwise, however old",
            hint=f"name the column: read(…, event_time=…); or leave {argument} out",
        )
    kind = plan.arrow.field(plan.time).type
    check_promised(plan, f"{what} with {argument}")
    unit_us = unit_of(plan.time, kind, plan.time_format.format)
    if pa.types.is_integer(kind) and (unit_us is None or not isinstance(value, str)):
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 61:
            raise OptionError(
                f"{argument}={value!r}, and {plan.time} holds numbers ({plan.time_format.unit})",
                expected="a whole number in their unit, not negative",
                hint="give for example 604800000 for 7 days of milliseconds",
            )
        return value
    assert unit_us is not None
    return -(-duration_argument(argument, value, such_as="'7 days'") // unit_us)
