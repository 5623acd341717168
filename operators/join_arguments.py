"""Checks of the arguments of joins of two streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import pyarrow as pa

from ..conf.arguments import bytes_argument, names_argument
from ..conf.errors import OptionError, SchemaError
from ..plan.completeness import check_complete
from ..plan.promises import check_promised
from .joins.as_of_plan import AsOfPlan
from .joins.latest_plan import LatestLimit
from .joins.plan import JoinPlan, OnLimit
from .keyed import KeyedRows

__all__ = [
    "check_early",
    "check_early_as_of",
    "check_on_limit",
    "check_partner",
    "check_row_number",
    "columns_of_on",
    "latest_limit",
    "schemas_of",
    "time_of",
]


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
