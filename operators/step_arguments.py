"""Checks of the arguments of joins and groups, and of how long they retain rows and deleted keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import pyarrow as pa

from ..conf.errors import OptionError, SchemaError
from ..conf.options import bytes_argument, duration_argument, names_argument
from ..core.rows.system_column import SYSTEM
from ..plan.nodes import check_complete
from ..plan.properties import check_promised
from .joins.band import unit_of
from .joins.latest_plan import LatestLimit
from .joins.plan import AsOfPlan, JoinPlan, OnLimit
from .keyed_stream import KeyedRows


def check_partner(what: str, other: object) -> None:
    """Raise OptionError unless the partner of a join is a stream."""
    if not isinstance(other, KeyedRows):
        raise OptionError(
            f"{what} with {other!r}",
            expected="an UpdateStream",
            hint="join a Delta table by join_table(path, on=…), and a static DataFrame before the stream is made: "
            "from_dataframe(df.join(static, …), …)",
        )


def check_early(plan: JoinPlan) -> None:
    """Raise OptionError for early results of a join that retracts none, or could not retract them."""
    early = plan.early
    if not isinstance(early, bool):  # pyright: ignore[reportUnnecessaryIsInstance] whatever was given
        raise OptionError(f"early={early!r}", expected="True or False", hint="correct early")
    if not early:
        return
    if plan.how in ("inner", "semi"):
        raise OptionError(
            f"early=True with how={plan.how!r}",
            expected="a join that gives rows without a partner: 'left', 'right', 'full' or 'anti'",
            hint=f"leave out early: how={plan.how!r} gives each result at once, and takes none back",
        )
    if plan.release is not None:
        raise OptionError(
            "early=True with output_order",
            expected="one of them: in the order of time, a row without a partner waits until it is final",
            hint="leave out early or output_order",
        )
    if plan.state_limit is not None and plan.on_limit != "fail":
        raise OptionError(
            f"early=True with on_limit={plan.on_limit!r}",
            expected="on_limit='fail': a row that was given without a partner cannot be taken back after it is dropped",
            hint="leave out early or on_limit",
        )


def check_early_as_of(plan: AsOfPlan, key: Sequence[str]) -> None:
    """Raise OptionError if `early` is no boolean or the state has a limit, SchemaError as :func:`check_row_number`."""
    if not isinstance(plan.early, bool):  # pyright: ignore[reportUnnecessaryIsInstance] whatever was given
        raise OptionError(f"early={plan.early!r}", expected="True or False", hint="correct early")
    if plan.early and plan.state_limit is not None:
        raise OptionError(
            f"early=True with state_limit={plan.state_limit}",
            expected="one of them: a result that was given cannot be revised after its row is dropped",
            hint="leave out early or state_limit",
        )
    check_row_number(plan.own_key, key)


def check_on_limit(on_limit: Any) -> OnLimit:
    """Return a join's behaviour at the limit of its state; raise OptionError if it is unknown."""
    if on_limit not in get_args(OnLimit):
        raise OptionError(
            f"on_limit={on_limit!r}", expected="one of " + ", ".join(get_args(OnLimit)), hint="correct on_limit"
        )
    return on_limit


def latest_limit(state_limit: Any, on_limit: Any, parts: int) -> LatestLimit | None:
    """Return the limit of a join of newest rows, for the `parts` shards of all its stages; None without a limit.

    Raise OptionError if it is no size, or `on_limit` would drop rows.
    """
    if check_on_limit(on_limit) != "fail":
        raise OptionError(
            f"on_limit={on_limit!r} of a join of newest rows",
            expected="on_limit='fail': the oldest row may be the newest one of a key that seldom changes",
            hint="let rows expire by age, with ttl, or leave on_limit out",
        )
    limit = bytes_argument("state_limit", state_limit)
    return None if limit is None else LatestLimit(limit, parts)


def check_row_number(own: Sequence[str], key: Sequence[str]) -> None:
    """Raise SchemaError if the left stream's key contains a name in `own`, the columns of row numbers."""
    taken = [name for name in own if name in key]
    if taken:
        raise SchemaError(
            f"the left stream's key has {', '.join(taken)}, and results have a column of that name",
            expected="another name in the key",
            hint="rename the column before the join",
        )


def time_of(stream: KeyedRows, name: str) -> str:
    """Return the event time of a stream that is joined by time.

    Raise OptionError without an event time or a watermark, SchemaError if the stream leaves rows out.
    """
    if stream.event_time is None:
        raise OptionError(
            f"join of a {name} stream without an event time",
            expected="an event time in both streams",
            hint="name the column: read(…, event_time=…); join_latest(…) needs none",
        )
    check_promised(stream.plan, f"join() over the {name} stream")
    check_complete(stream.plan.left_out, "a join would miss pairs here")
    return stream.event_time


def schemas_of(
    left: KeyedRows, right: KeyedRows, on: Mapping[str, str], what: str, times: Mapping[str, str] | None = None
) -> list[pa.Schema]:
    """Return the Arrow schemas of both streams; raise SchemaError if a compared column is missing or types differ."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schemas = [to_arrow_schema(each.schema, timezone="UTC") for each in (left, right)]
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
                f"{asked}, which the stream has not",
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


TimeToLive = str | int | tuple[str | int | None, str | int | None] | None
"""The lifetime of rows: a duration for both sides of a join, or a pair."""


def of_both(ttl: Any) -> tuple[Any, Any]:
    """Return the time to live of the left and of the right; raise OptionError for a list of another length than two."""
    if not isinstance(ttl, tuple | list):
        return ttl, ttl
    if len(ttl) != 2:
        raise OptionError(
            f"ttl={ttl!r}",
            expected="a duration, or a pair for the left and the right",
            hint='give ("10 minutes", None)',
        )
    return ttl[0], ttl[1]


def time_span(what: str, argument: str, stream: KeyedRows, value: Any) -> int | None:
    """Return how far the watermark has to pass a row, in units of the time column; None for never.

    `what` and `argument` are the names of the step and its argument, for errors. Raise OptionError if `value` is no
    duration, or the stream has no event time or no watermark.
    """
    if value is None:
        return None
    if stream.event_time is None:
        raise OptionError(
            f"{what} with {argument}={value!r} over a stream without an event time",
            expected="an event time and a watermark: later arrivals are newer otherwise, however old",
            hint=f"name the column: read(…, event_time=…); or leave {argument} out",
        )
    from pyspark.sql.pandas.types import to_arrow_schema

    kind = to_arrow_schema(stream.schema, timezone="UTC").field(stream.event_time).type
    check_promised(stream.plan, f"{what} with {argument}")
    if pa.types.is_integer(kind):
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 61:
            raise OptionError(
                f"{argument}={value!r}, and {stream.event_time} holds numbers",
                expected="a whole number in their unit, not negative",
                hint="give for example 604800000 for 7 days of milliseconds",
            )
        return value
    unit_us = unit_of(stream.event_time, kind, None)
    assert unit_us is not None
    return -(-duration_argument(argument, value, such_as="'7 days'") // unit_us)
