"""Joins of two plans by time or by their newest rows, and joins with the rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..conf.errors import OptionError
from ..core.rows.key import Key
from ..plan.newest_nodes import LatestJoin, Versions
from ..plan.nodes import IncompleteInput, Node, TableJoin, TimeJoin, check_complete
from ..plan.properties import check_key_columns, check_promised, coalesces
from .joins.band import LEFT, SIDES, unit_of
from .joins.latest_changes import check_key_texts
from .joins.latest_plan import LatestJoinPlan, LatestLimit, LatestSide, VersionPlan
from .joins.pairs import pair_condition
from .joins.plan import AsOfPlan, JoinPlan, JoinSide, Shards
from .step_arguments import check_time_formats, columns_of_on, schemas_of, time_span
from .tables.lookup import TableJoinPlan

TimeToLive = str | int | tuple[str | int | None, str | int | None] | None
"""The lifetime of rows: a duration for both sides of a join, or a pair."""


def latest_sides(
    left: Node, right: Node, on: Any, ttl: TimeToLive, tombstone_retention: str | int | None
) -> tuple[LatestSide, LatestSide]:
    """Return both sides of a join of newest rows."""
    columns = columns_of_on(on)
    schemas = schemas_of(left, right, columns, "join_latest")
    for each in (left, right):
        check_key_columns(each, "join_latest")
    one, two = (
        LatestSide(
            names, "", schema, plan.key, plan.time,
            retention=time_span("join_latest", "tombstone_retention", plan, tombstone_retention),
            ttl=time_span("join_latest", "ttl", plan, life),
        )
        for names, schema, plan, life in zip(
            (Key(columns), Key(columns.values())), schemas, (left, right), of_both(ttl), strict=True
        )
    )  # fmt: skip
    return one, two


def join_latest(left: Node, right: Node, plan: LatestJoinPlan) -> LatestJoin:
    """Return pairs of the newest rows of two plans."""
    from pyspark.sql.pandas.types import from_arrow_schema

    for side, name in zip(plan.sides, SIDES, strict=True):
        if plan.own_key:
            check_key_texts(side.schema, side.key, name)
    inputs = tuple(
        before if side.stays else versions(before, VersionPlan(side, plan.shards, plan.limit))
        for side, before in zip(plan.sides, (left, right), strict=True)
    )
    left_out = IncompleteInput(
        "join_latest() emits pairs of newest rows, and retracts them",
        "put the window before the join",
    )
    return LatestJoin(
        plan.key, None, from_arrow_schema(plan.schema), left_out, False,
        plan.shards if plan.key == plan.left.on else None, inputs=inputs, specification=plan,
    )  # fmt: skip


def versions(before: Node, plan: VersionPlan) -> Versions:
    """Return the newest row of each key, in the shard of its partners or its group."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return Versions(
        plan.side.key, None, from_arrow_schema(plan.side.versioned), None, False, plan.shards,
        inputs=(before,), specification=plan,
    )  # fmt: skip


def join_table(before: Node, plan: TableJoinPlan) -> TableJoin:
    """Return each row of a plan with the table's row that has its key."""
    from pyspark.sql.pandas.types import from_arrow_schema

    if plan.how != "left" and coalesces(before):
        raise OptionError(
            f"join_table(…, how={plan.how!r}) behind a source that coalesces: what it drops depends on the batches",
            expected="how='left', or a source that gives every row",
            hint="read without coalesce=True",
        )
    return TableJoin(
        before.key, before.time, from_arrow_schema(plan.schema), before.left_out, before.in_order,
        before.shards, inputs=(before,), specification=plan,
    )  # fmt: skip


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


def latest_limit(shards: Shards, sides: Sequence[LatestSide]) -> LatestLimit | None:
    """Return the limit of a join of newest rows, for all its stages' shards, or None; refuse one that drops rows."""
    if shards.on_limit != "fail":
        raise OptionError(
            f"on_limit={shards.on_limit!r} of a join of newest rows",
            expected="on_limit='fail': the oldest row may be the newest one of a key that seldom changes",
            hint="let rows expire by age, with ttl, or leave on_limit out",
        )
    stages = 1 + sum(not each.stays for each in sides)
    return None if shards.limit is None else LatestLimit(shards.limit, shards.number * stages)


def timed_sides(left: Node, right: Node, on: Any) -> tuple[JoinSide, JoinSide, int | None]:
    """Return both sides of a join by time, and the unit of the times in microseconds."""
    columns = columns_of_on(on)
    times = [_time_of(each, name) for each, name in ((left, "left"), (right, "right"))]
    schemas = schemas_of(left, right, columns, "join", {times[0]: times[1]})
    check_time_formats("join", left, right)
    unit = unit_of(times[0], schemas[0].field(times[0]).type, left.time_format.format)
    one = JoinSide(Key(columns), times[0], schemas[0], left.key)
    two = JoinSide(Key(columns.values()), times[1], schemas[1], right.key)
    return one, two, unit


def join(left: Node, right: Node, plan: JoinPlan, late_aside: bool) -> TimeJoin:
    """Return pairs of rows whose times are close."""
    from pyspark.sql.pandas.types import from_arrow_schema

    pair_condition(plan)  # refuses an invalid condition
    left_out: IncompleteInput | None = None
    if plan.output == "latest":
        left_out = IncompleteInput(
            "join(emit='latest') emits the newest pair of each key only",
            "join with emit='all'",
        )
    elif plan.early:
        left_out = IncompleteInput(
            "an early join emits rows without a partner at once, and retracts them when they meet one",
            "leave out early: such a row then comes once no partner can come",
        )
    if plan.left_alone:
        check_key_columns(left, "join")
    return TimeJoin(
        plan.key, plan.time, left.schema if plan.left_alone and not plan.early else from_arrow_schema(plan.schema),
        left_out, False, plan.shards if plan.key == plan.sides[LEFT].on else None,
        inputs=(left, right), specification=plan, keeping=plan.keeps, late_aside=late_aside,
        early=plan.early, newest_key=plan.left.on if plan.early and not plan.left_alone else None,
    )  # fmt: skip


def join_as_of(left: Node, right: Node, plan: AsOfPlan) -> TimeJoin:
    """Return each row of the left with the row of the right that was newest at its time."""
    from pyspark.sql.pandas.types import from_arrow_schema

    check_key_columns(left, "join")
    left_out: IncompleteInput | None = None
    if plan.early:
        left_out = IncompleteInput(
            "an early join_as_of emits rows with the partner that is newest so far, and revises them",
            "leave out early: a row then waits until its partner is final",
        )
    return TimeJoin(
        Key((*left.key, *plan.own_key)), left.time, from_arrow_schema(plan.schema), left_out, False,
        plan.shards if left.key == plan.left.on and not plan.early else None,
        inputs=(left, right), specification=plan, keeping=plan.keeps,
        early=plan.early, newest_key=left.key if plan.early and plan.how == "left" else None,
    )  # fmt: skip


def _time_of(plan: Node, name: str) -> str:
    """Return the event time of a stream that is joined by time. It needs one, a watermark, and all of its rows."""
    if plan.time is None:
        raise OptionError(
            f"join of a {name} stream without an event time",
            expected="an event time in both streams",
            hint="name the column: read(…, event_time=…); join_latest(…) needs none",
        )
    check_promised(plan, f"join() over the {name} stream")
    check_complete(plan.left_out, "a join would miss pairs here")
    return plan.time
