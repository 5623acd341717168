"""Steps that combine streams, order one, or let rows wait, as a plan has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ..conf.errors import OptionError, SchemaError
from ..conf.options import column_argument, duration_argument, text_argument
from ..plan.nodes import IncompleteInput, Node, Queue, Reorder
from ..plan.properties import check_final, check_key_columns, check_promised
from .queue.queue import ShardPlan
from .queue.tick_planner import check_budget
from .reorder.shard import ReorderPlan, check_inputs, check_ordered

if TYPE_CHECKING:
    from pyspark.sql import Column


_FIRST_BUDGET = 2_000
_WITH_CHANGES = {
    "union": "would mix up results, which each input numbers by itself",
    "merge": "would hold back results that are to be given early",
    "ordered": "would hold back results that are to be given early",
    "distinct": "would take a result that changes for a repeat",
}


def first_budget(budget: int | Literal["auto"] | None) -> int | None:
    """Return the budget of a queue's first batch."""
    check_budget(budget)
    return _FIRST_BUDGET if isinstance(budget, str) else budget


def queue(
    before: Node,
    plan: ShardPlan,
    batch_duration: str | None,
    weight: str | Column | None,
    access_interval: str | Column | None,
) -> Queue:
    """Return a plan whose rows wait beyond a batch's budget."""
    check_key_columns(before, "queue")
    column_argument("weight", weight)
    column_argument("access_interval", access_interval)
    given = {
        "budget": plan.budget,
        "duration": None if batch_duration is None else seconds_argument("batch_duration", batch_duration),
        "cost": plan.cost_s,
    }
    options = {"auto": str(plan.auto).lower(), **{name: str(each) for name, each in given.items() if each is not None}}
    if plan.policy == "shed":
        check_final(
            before,
            "queue(policy='shed')",
            "would drop some of the rows that take results back",
            "take another policy, such as in-place",
        )
    left_out = before.left_out
    if plan.policy != "append":
        left_out = IncompleteInput(
            f"queue(policy={plan.policy!r}) leaves rows out, superseded ones mostly (covered > 1 says so)",
            'put the window before the queue, or give the queue policy="append"',
        )
    return Queue(
        before.key, before.time, before.schema, left_out, False, plan.shards,
        inputs=(before,), specification=plan, options=options, weight=weight, access_interval=access_interval,
    )  # fmt: skip


def seconds_argument(name: str, value: str) -> float:
    """Return the seconds of a duration."""
    return duration_argument(name, value, such_as="'10 seconds' or '0.5 ms'") / 1e6


def distinct_by(before: Node, columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns in which equal rows of one time are repeats: the key, unless others are given."""
    for each in columns:
        if text_argument("distinct", each) is None:
            raise OptionError("distinct(None)", expected="names of columns")
    by = tuple(dict.fromkeys(each for each in columns if each != before.time)) or before.key
    absent = [each for each in by if each not in before.schema.names]
    if absent:
        raise SchemaError(
            f"distinct by {', '.join(absent)}, which the stream has not",
            expected="columns among " + ", ".join(before.schema.names),
        )
    return by


def reorder(plan: ReorderPlan, *inputs: Node, late_location: str | None = None) -> Reorder:
    """Return the rows of one plan, or of two, in the order of time, without repeats, or each at once."""
    first, name = inputs[0], f"{plan.name}()"
    if plan.name in ("union", "merge"):
        check_inputs(plan.inputs, plan.prefer)
        _check_alike(plan.name, *inputs)
    check_key_columns(first, plan.name)
    if plan.name != "union":
        check_ordered(first.time, first.time_type, plan.name, plan.time_format)
    for each in inputs:
        if first.time is not None:
            check_final(each, name, _WITH_CHANGES[plan.name])
        if plan.name != "union":
            check_promised(each, name)
    left_out = next((each.left_out for each in inputs if each.left_out), None)
    if left_out is None and plan.name == "union" and plan.prefer is not None:
        left_out = IncompleteInput(
            "union(prefer=…) lets the preferred row follow another one with its key and time, and both would count",
            "use merge(…, prefer=…), which waits until both have come",
        )
    return Reorder(
        first.key, first.time, first.schema, left_out, plan.hold, plan.shards if plan.by == first.key else None,
        inputs=inputs, specification=plan, name=plan.name, late_location=late_location,
        paced=plan.flush_rows is not None,
    )  # fmt: skip


def _check_alike(name: str, one: Node, two: Node) -> None:
    """Refuse two inputs that differ in their key, their time or their columns."""
    if (one.key, one.time) != (two.key, two.time):
        raise SchemaError(
            f"{name} of a stream with key {', '.join(one.key)} and time {one.time} and one with key "
            f"{', '.join(two.key)} and time {two.time}",
            expected="the same key and time in both",
            hint="rename the columns of one, and name them as its key and time",
        )
    kinds = [{field.name: field.dataType for field in each.schema} for each in (one, two)]
    if kinds[0] != kinds[1]:
        differ = sorted(name for name in {*kinds[0], *kinds[1]} if kinds[0].get(name) != kinds[1].get(name))
        raise SchemaError(
            f"{name} of streams that differ in {', '.join(differ)}",
            expected="the same columns, of the same types",
            hint="select and cast the columns of one as the other has them",
        )
