"""Joins of two plans by time or by their newest rows, and joins with the rows of a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from ..conf.errors import OptionError, SchemaError
from ..core.rows.key import Key
from ..plan.newest_nodes import LatestJoin, Versions
from ..plan.nodes import IncompleteInput, Node, TableJoin, TimeJoin, check_complete
from ..plan.properties import check_key_columns, check_promised, coalesces, table_key
from .joins.band import LEFT, SIDES, JoinTimeRange, unit_of
from .joins.latest_changes import check_key_texts
from .joins.latest_plan import LatestJoinPlan, LatestLimit, LatestSide, VersionPlan
from .joins.pairs import pair_condition
from .joins.plan import AsOfPlan, JoinPlan, JoinSide, Shards
from .step_arguments import check_time_formats, columns_of_on, schemas_of, time_span
from .tables.lookup import TableJoinPlan

TimeToLive = str | int | tuple[str | int | None, str | int | None] | None
"""The lifetime of rows: a duration for both sides of a join, or a pair."""


def joins_newest_rows(left: Node, right: Node) -> bool:
    """Return whether a join by time is of newest rows, as its inputs are; refuse one input of newest rows."""
    both = (left, right)
    tables = [table_key(each) is not None for each in both]
    if all(tables) or not any(tables):
        return all(tables)
    table, name = both[tables.index(True)], SIDES[tables.index(False)]
    check_complete(both[tables.index(False)].left_out, "a join would miss pairs here")
    reason = "its steps retract results" if table.left_out is None else table.left_out.problem
    raise SchemaError(
        f"a join of every row of the {name} stream with newest rows would miss pairs or keep all its rows: {reason}",
        expected="every row of both streams, or the newest rows of both",
        hint=f"make the {name} stream a table of its newest rows: read it with coalesce=True; or use join_latest(…)",
    )


def latest_sides(
    left: Node, right: Node, on: Any, ttl: TimeToLive = None, tombstone_retention: str | int | None = None
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


def table_sides(
    left: Node, right: Node, on: Any, band: Callable[[int | None], JoinTimeRange] | None
) -> tuple[tuple[LatestSide, LatestSide], JoinTimeRange | None, int | None]:
    """Return both sides of a join of newest rows, the times that meet, given by `band`, and their unit."""
    one, two = (
        dataclasses.replace(side, key=table_key(each))
        for side, each in zip(latest_sides(left, right, on), (left, right), strict=True)
    )
    if band is None:
        return (one, two), None, 1
    times = [_event_time(each, name) for each, name in zip((left, right), SIDES, strict=True)]
    schemas_of(left, right, {}, "join", {times[0]: times[1]})
    check_time_formats("join", left, right)
    unit = unit_of(times[0], left.arrow.field(times[0]).type, left.time_format.format)
    return (one, two), band(unit), unit


def join_latest(left: Node, right: Node, plan: LatestJoinPlan) -> LatestJoin:
    """Return pairs of the newest rows of two plans."""
    from pyspark.sql.pandas.types import from_arrow_schema

    pair_condition(plan)  # refuses an invalid condition
    for side, name in zip(plan.sides, SIDES, strict=True):
        if plan.own_key:
            check_key_texts(side.schema, side.key, name)
    inputs = tuple(
        before if side.stays else versions(before, VersionPlan(side, plan.shards, plan.limit))
        for side, before in zip(plan.sides, (left, right), strict=True)
    )
    left_out = IncompleteInput(
        "a join of newest rows emits their pairs, and retracts them",
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
    time = _event_time(plan, name)
    check_promised(plan, f"join() over the {name} stream")
    check_complete(plan.left_out, "a join would miss pairs here")
    return time


def _event_time(plan: Node, name: str) -> str:
    if plan.time is None:
        raise OptionError(
            f"join of a {name} stream without an event time",
            expected="an event time in both streams",
            hint="name the column: read(…, event_time=…); join_latest(…) needs none, nor do results that are "
            'retracted without `within`: condition="l.join_time < r.t" compares their columns',
        )
    return plan.time
