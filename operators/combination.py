"""Steps that combine streams, order one, or let rows wait, as a plan has them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from ..conf.errors import OptionError, SchemaError
from ..conf.options import column_argument, count_argument, duration_argument, path_argument, text_argument
from ..plan.nodes import IncompleteInput, Node, Queue, Reorder
from ..plan.properties import check_final, check_key_columns, check_promised
from .queue.queue import Policy, ShardPlan, check_policy
from .queue.tick_planner import check_budget
from .reorder.shard import Late, ReorderPlan, Repeats, check_inputs, check_ordered
from .runtime.ticks import Flush, flush_rows_each

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column


_OUT_OF_ORDER = "would hold back results that are to be given early"
_FIRST_BUDGET = 2_000


def queue(
    plan: Node,
    *,
    policy: Policy,
    budget: int | Literal["auto"] | None,
    batch_duration: str | None,
    shards: int,
    weight: str | Column | None,
    access_interval: str | Column | None,
    cost: str | None,
    half_life: str,
    seed: int,
    most_stale: int,
) -> Queue:
    """Return a plan whose rows wait beyond a batch's budget."""
    check_key_columns(plan, "queue")
    check_policy(policy)
    check_budget(budget)
    count_argument("shards", shards)
    count_argument("most_stale", most_stale, least=0)
    count_argument("seed", seed, least=0)
    column_argument("weight", weight)
    column_argument("access_interval", access_interval)
    auto = budget == "auto"
    first = _FIRST_BUDGET if auto else budget
    specification = ShardPlan(
        key=plan.key,
        time=plan.time,
        shards=shards,
        policy=policy,
        budget=first if isinstance(first, int) else None,
        auto=auto,
        half_life_s=_seconds("half_life", half_life),
        cost_s=None if cost is None else _seconds("cost", cost),
        seed=seed,
        most_stale=most_stale,
    )
    options = {
        "auto": str(auto).lower(),
        **({} if specification.budget is None else {"budget": str(specification.budget)}),
        **({} if batch_duration is None else {"duration": str(_seconds("batch_duration", batch_duration))}),
        **({} if specification.cost_s is None else {"cost": str(specification.cost_s)}),
    }
    if policy == "shed":
        check_final(
            plan,
            "queue(policy='shed')",
            "would drop some of the rows that take results back",
            "take another policy, such as in-place",
        )
    left_out = plan.left_out
    if policy != "append":
        left_out = IncompleteInput(
            f"queue(policy={policy!r}) leaves rows out, superseded ones mostly (covered > 1 says so)",
            'put the window before the queue, or give the queue policy="append"',
        )
    return Queue(
        plan.key, plan.time, plan.schema, left_out, False, shards,
        inputs=(plan,), specification=specification, options=options, weight=weight, access_interval=access_interval,
    )  # fmt: skip


def union(
    plan: Node, other: Node, *, names: tuple[str, str], prefer: str | None, overlap: bool, shards: int
) -> Reorder:
    """Return the rows of two plans, each at once."""
    if not isinstance(overlap, bool):  # pyright: ignore[reportUnnecessaryIsInstance] whatever was given
        raise OptionError(f"overlap={overlap!r}", expected="True or False")
    repeats: Repeats = "inputs" if overlap and plan.time is not None else "keep"
    specification = ReorderPlan(
        "union", plan.key, plan.key, plan.time, names, repeats=repeats, prefer=prefer, shards=shards
    )
    left_out: IncompleteInput | None = None
    if prefer is not None:
        left_out = IncompleteInput(
            "union(prefer=…) lets the preferred row follow another one with its key and time, and both would count",
            "use merge(…, prefer=…), which waits until both have come",
        )
    return _combined(plan, other, specification, None, left_out)


def merge(
    plan: Node,
    other: Node,
    *,
    names: tuple[str, str],
    prefer: str | None,
    late_location: str | os.PathLike[str] | None,
    flush: Flush,
    flush_rows: int | None,
    time_format: str | None,
    shards: int,
) -> Reorder:
    """Return the rows of two plans in the order of time."""
    check_ordered(plan.time, time_type(plan), "merge", time_format)
    specification = ReorderPlan(
        "merge", plan.key, plan.key, plan.time, names, hold=True, repeats="inputs", prefer=prefer,
        flush_rows=flush_rows_each(flush, flush_rows, shards), shards=shards, time_format=time_format,
    )  # fmt: skip
    return _combined(plan, other, specification, late_location, None)


def ordered(
    plan: Node,
    *,
    late_location: str | os.PathLike[str] | None,
    flush: Flush,
    flush_rows: int | None,
    time_format: str | None,
    shards: int,
) -> Reorder:
    """Return a plan's rows in the order of time."""
    check_ordered(plan.time, time_type(plan), "ordered", time_format)
    check_final(plan, "ordered()", _OUT_OF_ORDER)
    check_promised(plan, "ordered()")
    specification = ReorderPlan(
        "ordered", plan.key, plan.key, plan.time, hold=True,
        flush_rows=flush_rows_each(flush, flush_rows, shards), shards=shards, time_format=time_format,
    )  # fmt: skip
    return _reordered(specification, (plan,), late_location, plan.left_out)


def distinct(
    plan: Node,
    columns: tuple[str, ...],
    *,
    late: Late,
    late_location: str | os.PathLike[str] | None,
    shards: int,
) -> Reorder:
    """Return the first of a plan's rows that have one time and the same values in `columns`."""
    check_key_columns(plan, "distinct")
    check_ordered(plan.time, time_type(plan), "distinct", None)
    check_final(plan, "distinct()", "would take a result that changes for a repeat")
    check_promised(plan, "distinct()")
    for each in columns:
        if text_argument("distinct", each) is None:
            raise OptionError("distinct(None)", expected="names of columns")
    by = tuple(dict.fromkeys(each for each in columns if each != plan.time)) or plan.key
    absent = [each for each in by if each not in plan.schema.names]
    if absent:
        raise SchemaError(
            f"distinct by {', '.join(absent)}, which the stream has not",
            expected="columns among " + ", ".join(plan.schema.names),
        )
    if late not in ("refuse", "pass"):
        raise OptionError(f"late={late!r}", expected="'refuse' or 'pass'")
    flush_rows_each("eager", None, shards)
    specification = ReorderPlan("distinct", plan.key, by, plan.time, repeats="all", late=late, shards=shards)
    return _reordered(specification, (plan,), late_location, plan.left_out)


def time_type(plan: Node) -> pa.DataType | None:
    """Return the Arrow type of a plan's event time; None without one."""
    return None if plan.time is None else plan.arrow.field(plan.time).type


def _combined(
    plan: Node,
    other: Node,
    specification: ReorderPlan,
    late: str | os.PathLike[str] | None,
    left_out: IncompleteInput | None,
) -> Reorder:
    name = specification.name
    check_inputs(specification.inputs, specification.prefer)
    flush_rows_each("eager", None, specification.shards)
    if (plan.key, plan.time) != (other.key, other.time):
        raise SchemaError(
            f"{name} of a stream with key {', '.join(plan.key)} and time {plan.time} and one with key "
            f"{', '.join(other.key)} and time {other.time}",
            expected="the same key and time in both",
            hint="rename the columns of one, and name them as its key and time",
        )
    kinds = [{field.name: field.dataType for field in each.schema} for each in (plan, other)]
    if kinds[0] != kinds[1]:
        differ = sorted(name for name in {*kinds[0], *kinds[1]} if kinds[0].get(name) != kinds[1].get(name))
        raise SchemaError(
            f"{name} of streams that differ in {', '.join(differ)}",
            expected="the same columns, of the same types",
            hint="select and cast the columns of one as the other has them",
        )
    for each in (plan, other):
        if specification.hold:
            check_final(each, f"{name}()", _OUT_OF_ORDER)
            check_promised(each, f"{name}()")
        elif plan.time is not None:
            check_final(each, f"{name}()", "would mix up results, which each input numbers by itself")
    return _reordered(specification, (plan, other), late, plan.left_out or other.left_out or left_out)


def _reordered(
    specification: ReorderPlan,
    inputs: tuple[Node, ...],
    late: str | os.PathLike[str] | None,
    left_out: IncompleteInput | None,
) -> Reorder:
    first = inputs[0]
    check_key_columns(first, specification.name)
    return Reorder(
        first.key, first.time, first.schema, left_out, specification.hold,
        specification.shards if specification.by == first.key else None,
        inputs=inputs, specification=specification, name=specification.name,
        late_location=None if late is None else path_argument("late_location", late),
        paced=specification.flush_rows is not None,
    )  # fmt: skip


def _seconds(name: str, value: str) -> float:
    return duration_argument(name, value, such_as="'10 seconds' or '0.5 ms'") / 1e6
