"""Joins with the newest rows of another plan, and with the rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

import pyarrow as pa

from ..conf.errors import OptionError
from ..conf.options import bytes_argument, count_argument, names_argument, text_argument
from ..core.rows.key import Key
from ..plan.newest_nodes import LatestJoin, Versions
from ..plan.nodes import IncompleteInput, Node, TableJoin
from ..plan.properties import check_key_columns, coalesces
from .joins.band import SIDES
from .joins.latest_changes import check_key_texts
from .joins.latest_plan import LatestHow, LatestJoinPlan, LatestLimit, LatestSide, VersionPlan
from .joins.plan import OnLimit
from .step_arguments import check_on_limit, columns_of_on, schemas_of, time_span
from .tables.lookup import TableHow, planned

TimeToLive = str | int | tuple[str | int | None, str | int | None] | None
"""The lifetime of rows: a duration for both sides of a join, or a pair."""


def join_latest(
    left: Node,
    right: Node,
    *,
    on: str | Sequence[str] | Mapping[str, str],
    how: LatestHow,
    suffix: str,
    ttl: TimeToLive,
    tombstone_retention: str | int | None,
    state_limit: str | int | None,
    on_limit: OnLimit,
    shards: int,
) -> LatestJoin:
    """Return pairs of the newest rows of two plans."""
    from pyspark.sql.pandas.types import from_arrow_schema

    columns = columns_of_on(on)
    if how not in get_args(LatestHow):
        raise OptionError(f"how={how!r}", expected="one of " + ", ".join(get_args(LatestHow)), hint="correct how")
    kinds = schemas_of(left, right, columns, "join_latest")
    for each in (left, right):
        check_key_columns(each, "join_latest")
    one, two = (
        LatestSide(
            names, "", schema, plan.key, plan.time,
            retention=time_span("join_latest", "tombstone_retention", plan, tombstone_retention),
            ttl=time_span("join_latest", "ttl", plan, life),
        )
        for names, schema, plan, life in zip(
            (tuple(columns), tuple(columns.values())), kinds, (left, right), of_both(ttl), strict=True
        )
    )  # fmt: skip
    suffix = text_argument("suffix", suffix) or "_right"
    shards = count_argument("shards", shards)
    limit = latest_limit(state_limit, on_limit, shards * (1 + sum(not each.stays for each in (one, two))))
    plan = LatestJoinPlan(one, two, how, suffix, shards, limit)
    for side, name in zip(plan.sides, SIDES, strict=True):
        if plan.own_key:
            check_key_texts(side.schema, side.key, name)
    inputs = tuple(
        before
        if side.stays
        else Versions(
            Key(side.key), None, from_arrow_schema(side.versioned), None, False, shards,
            inputs=(before,), specification=VersionPlan(side, shards, limit),
        )
        for side, before in zip(plan.sides, (left, right), strict=True)
    )  # fmt: skip
    left_out = IncompleteInput(
        "join_latest() gives pairs of newest rows, and takes them back",
        "put the window before the join",
    )
    return LatestJoin(
        Key(plan.key), None, from_arrow_schema(plan.schema), left_out, False,
        shards if plan.key == plan.left.on else None, inputs=inputs, specification=plan,
    )  # fmt: skip


def join_table(
    before: Node,
    table: str,
    read: Callable[[str, dict[str, str]], tuple[str, pa.Schema]],
    *,
    on: str | Sequence[str] | Mapping[str, str],
    how: TableHow,
    columns: Sequence[str] | None,
    suffix: str,
    storage: Mapping[str, str] | None,
) -> TableJoin:
    """Return each row of a plan with the table's row that has its key; `read` gives a table's location and columns."""
    from pyspark.sql.pandas.types import from_arrow_schema

    names = columns_of_on(on)
    if how not in get_args(TableHow):
        raise OptionError(f"how={how!r}", expected="one of " + ", ".join(get_args(TableHow)), hint="correct how")
    chosen = names_argument("columns", columns)
    if how != "left" and coalesces(before):
        raise OptionError(
            f"join_table(…, how={how!r}) behind a source that coalesces: what it drops depends on the batches",
            expected="how='left', or a source that gives every row",
            hint="read without coalesce=True",
        )
    location, schema = read(table, dict(storage or {}))
    plan = planned(
        before.arrow, schema, location, names, how, [chosen] if isinstance(chosen, str) else chosen,
        text_argument("suffix", suffix) or "_table", dict(storage or {}),
    )  # fmt: skip
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
