"""Joins of two plans by time or by their newest rows, and joins with the rows of a table."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

import pyarrow as pa

from ..conf.errors import OptionError, SchemaError
from ..conf.options import bytes_argument, count_argument, names_argument, text_argument
from ..core.rows.key import Key
from ..plan.newest_nodes import LatestJoin, Versions
from ..plan.nodes import IncompleteInput, Node, TableJoin, TimeJoin, check_complete
from ..plan.properties import check_key_columns, check_promised, coalesces
from .joins.band import LEFT, SIDES, Interval, band_of, distance_of, reach_back, unit_of
from .joins.latest_changes import check_key_texts
from .joins.latest_plan import LatestHow, LatestJoinPlan, LatestLimit, LatestSide, VersionPlan
from .joins.pairs import pair_condition
from .joins.plan import AsOfHow, AsOfPlan, How, JoinOutput, JoinPlan, JoinSide, OnLimit
from .joins.release.choice import OutputOrder, Release, release_plan
from .step_arguments import check_on_limit, columns_of_on, late_argument, schemas_of, time_span
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


def join(
    left: Node,
    right: Node,
    *,
    on: str | Sequence[str] | Mapping[str, str],
    within: Interval | None,
    tumbling: str | int | None,
    how: How,
    output: JoinOutput,
    early: bool,
    condition: str | None,
    suffix: str,
    time_format: str | None,
    state_limit: str | int | None,
    on_limit: OnLimit,
    output_order: OutputOrder | None,
    release: Release | None,
    cost: float | None,
    alpha: float | None,
    late_location: str | os.PathLike[str] | None,
    shards: int,
) -> TimeJoin:
    """Return pairs of rows whose times are close."""
    from pyspark.sql.pandas.types import from_arrow_schema

    if how not in get_args(How):
        raise OptionError(f"how={how!r}", expected="one of " + ", ".join(get_args(How)), hint="correct how")
    if output not in get_args(JoinOutput) or (how in ("semi", "anti") and output != "all"):
        raise OptionError(
            f"output={output!r} with how={how!r}",
            expected="'all', or 'latest' for a join that gives pairs",
            hint="correct output",
        )
    sides, unit = _timed_sides(left, right, columns_of_on(on), time_format)
    band = band_of(within, tumbling, unit)
    plan = JoinPlan(
        *sides,
        band,
        how=how,
        output=output,
        condition=text_argument("condition", condition),
        suffix=text_argument("suffix", suffix) or "_right",
        unit_us=unit,
        shards=count_argument("shards", shards),
        state_limit=bytes_argument("state_limit", state_limit),
        on_limit=check_on_limit(on_limit),
        release=release_plan(
            output_order, release, output=output, cost=cost, alpha=alpha, late_location=late_location,
            window=reach_back(band), unit_us=unit,
        ),
        early=early,
    )  # fmt: skip
    _check_early(plan)
    pair_condition(plan)  # refuses an invalid condition
    left_out: IncompleteInput | None = None
    if plan.output == "latest":
        left_out = IncompleteInput(
            "join(output='latest') gives the newest pair of each key only",
            "join with output='all'",
        )
    elif plan.early:
        left_out = IncompleteInput(
            "join(early=True) gives rows without a partner at once, and takes them back when they meet one",
            "leave out early: such a row then comes once no partner can come",
        )
    if plan.left_alone:
        _check_row_number(plan.own_key, left.key)
        check_key_columns(left, "join")
    return TimeJoin(
        Key(plan.key), plan.time, left.schema if plan.left_alone and not plan.early else from_arrow_schema(plan.schema),
        left_out, False, plan.shards if plan.key == plan.sides[LEFT].on else None,
        inputs=(left, right), specification=plan, keeping=plan.keeps, late_location=late_argument(late_location),
        early=plan.early, newest_key=plan.left.on if plan.early and not plan.left_alone else None,
    )  # fmt: skip


def join_as_of(
    left: Node,
    right: Node,
    *,
    on: str | Sequence[str] | Mapping[str, str],
    how: AsOfHow,
    early: bool,
    tolerance: str | int | None,
    suffix: str,
    time_format: str | None,
    state_limit: str | int | None,
    on_limit: OnLimit,
    shards: int,
) -> TimeJoin:
    """Return each row of the left with the row of the right that was newest at its time."""
    from pyspark.sql.pandas.types import from_arrow_schema

    check_key_columns(left, "join")
    if how not in get_args(AsOfHow):
        raise OptionError(f"how={how!r}", expected="one of " + ", ".join(get_args(AsOfHow)), hint="correct how")
    sides, unit = _timed_sides(left, right, columns_of_on(on), time_format)
    plan = AsOfPlan(
        *sides,
        how=how,
        tolerance=None if tolerance is None else distance_of("tolerance", tolerance, unit),
        suffix=text_argument("suffix", suffix) or "_right",
        unit_us=unit,
        shards=count_argument("shards", shards),
        early=early,
        state_limit=bytes_argument("state_limit", state_limit),
        on_limit=check_on_limit(on_limit),
    )
    _check_early_as_of(plan, left.key)
    if plan.tolerance is not None and plan.tolerance < 0:
        raise OptionError(f"tolerance={tolerance!r}", expected="a duration, not negative", hint="correct tolerance")
    left_out: IncompleteInput | None = None
    if early:
        left_out = IncompleteInput(
            "join_as_of(early=True) gives rows with the partner that is newest so far, and revises them",
            "leave out early: a row then waits until its partner is final",
        )
    return TimeJoin(
        Key((*left.key, *plan.own_key)), left.time, from_arrow_schema(plan.schema), left_out, False,
        plan.shards if left.key == plan.left.on and not early else None,
        inputs=(left, right), specification=plan, keeping=plan.keeps,
        early=early, newest_key=left.key if early and how == "left" else None,
    )  # fmt: skip


def _timed_sides(
    left: Node, right: Node, on: Mapping[str, str], time_format: str | None
) -> tuple[tuple[JoinSide, JoinSide], int | None]:
    """Return both sides of a join by time, and the unit of the times in microseconds."""
    times = [_time_of(each, name) for each, name in ((left, "left"), (right, "right"))]
    schemas = schemas_of(left, right, on, "join", {times[0]: times[1]})
    unit = unit_of(times[0], schemas[0].field(times[0]).type, text_argument("time_format", time_format))
    one = JoinSide(tuple(on), times[0], schemas[0], left.key)
    two = JoinSide(tuple(on.values()), times[1], schemas[1], right.key)
    return (one, two), unit


def _time_of(plan: Node, name: str) -> str:
    """Return the event time of a stream that is joined by time.

    Raise OptionError without an event time or a watermark, SchemaError if the stream leaves rows out.
    """
    if plan.time is None:
        raise OptionError(
            f"join of a {name} stream without an event time",
            expected="an event time in both streams",
            hint="name the column: read(…, event_time=…); join_latest(…) needs none",
        )
    check_promised(plan, f"join() over the {name} stream")
    check_complete(plan.left_out, "a join would miss pairs here")
    return plan.time


def _check_early(plan: JoinPlan) -> None:
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


def _check_early_as_of(plan: AsOfPlan, key: Sequence[str]) -> None:
    """Raise OptionError if `early` is no boolean or the state has a limit, SchemaError as :func:`_check_row_number`."""
    if not isinstance(plan.early, bool):  # pyright: ignore[reportUnnecessaryIsInstance] whatever was given
        raise OptionError(f"early={plan.early!r}", expected="True or False", hint="correct early")
    if plan.early and plan.state_limit is not None:
        raise OptionError(
            f"early=True with state_limit={plan.state_limit}",
            expected="one of them: a result that was given cannot be revised after its row is dropped",
            hint="leave out early or state_limit",
        )
    _check_row_number(plan.own_key, key)


def _check_row_number(own: Sequence[str], key: Sequence[str]) -> None:
    """Raise SchemaError if the left stream's key contains a name in `own`, the columns of row numbers."""
    taken = [name for name in own if name in key]
    if taken:
        raise SchemaError(
            f"the left stream's key has {', '.join(taken)}, and results have a column of that name",
            expected="another name in the key",
            hint="rename the column before the join",
        )
