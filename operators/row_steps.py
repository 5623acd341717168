"""Steps on single rows, and steps that combine streams, order one, or let rows wait, as a plan has them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from ..conf.errors import OptionError, SchemaError
from ..conf.options import column_argument, count_argument, duration_argument, text_argument
from ..conf.units import length_text
from ..core.rows.key import Key
from ..core.rows.system_column import SYSTEM
from ..plan.nodes import Choice, Filter, IncompleteInput, Map, Node, Queue, Reorder
from ..plan.properties import check_final, check_key_columns, check_promised, coalesces
from .queue.queue import ShardPlan
from .reorder.shard import ReorderPlan, check_inputs, check_ordered
from .runtime.steps import mapped
from .step_arguments import check_time_formats

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import StructType


def filter_step(
    plan: Node, condition: str | Column, on_leave: Literal["keep", "delete"] | None
) -> tuple[Filter, IncompleteInput | None]:
    """Return a filter of a plan's rows, and why rows are missing after it, if it adds a reason."""
    changes = plan.retracts
    asked: str | None = on_leave
    if asked is None:
        on_leave = "delete" if changes else "keep"
    if on_leave not in ("keep", "delete"):
        raise OptionError(
            f"on_leave={on_leave!r}",
            expected="'keep' or 'delete'",
            hint="keep drops the row and lets the earlier result stay, delete takes the key out of the table",
        )
    if column_argument("where", condition) is None:
        raise OptionError("where(None)", expected="a condition in SQL, or a column")
    if on_leave == "keep":
        check_final(plan, 'where(…, on_leave="keep")', "would keep results that no longer hold", "leave on_leave out")
        # In its batch, a newer row that fails may have replaced one that passes.
        if coalesces(plan):
            raise OptionError(
                f"where({str(condition)!r}) behind a source that coalesces: its result would depend on the batches",
                expected="the filter before coalescing",
                hint='give the condition to the source, read(…, where="…"). If the newest row decides, use '
                'where(…, on_leave="delete")',
            )
    if on_leave == "keep" or changes:
        return Filter(condition, on_leave), None
    return Filter(condition, on_leave), IncompleteInput(
        'where(…, on_leave="delete") makes tombstones of rows, which have no values',
        'filter with on_leave="keep" before a window, or count each key once by group_by(…).window(…)',
    )


def choice_step(columns: Sequence[str | Column]) -> Choice:
    """Return a choice of columns."""
    if any(column_argument("select", each) is None for each in columns):
        raise OptionError("select(None)", expected="names of columns, SQL, or columns")
    return Choice(tuple(columns))


def check_choice(before: Node, after: StructType) -> None:
    """Refuse to compute the key, the time or the system column again."""
    clash = [name for name in before.fixed if after.names.count(name) > 1]
    if clash:
        raise SchemaError(
            f"{', '.join(clash)} would be computed again, and is the stream's key, time or system column",
            expected="new columns under other names: the key and the time of a row do not change",
            hint="rename the column, or begin a new stream with UpdateStream(df, key=…, event_time=…)",
        )


def map_rows(
    plan: Node,
    function: Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table],
    new: StructType,
    batch_rows: int,
) -> Map:
    """Return a plan whose rows have the columns `new`, which `function` computes, besides the fixed ones."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructField, StructType

    if not callable(function):
        raise OptionError(f"map({function!r})", expected="a function over Arrow batches")
    if not isinstance(new, StructType):  # pyright: ignore[reportUnnecessaryIsInstance] whatever was given
        raise OptionError(f"schema={new!r}", expected="the new columns, such as 'score DOUBLE', or a StructType")
    count_argument("batch_rows", batch_rows)
    fixed = plan.fixed
    clash = [field.name for field in new if field.name in fixed]
    if clash:
        raise SchemaError(
            f"the map would give {', '.join(clash)}, which is the stream's key, time or system column",
            expected="new columns only: a map may not change what a row updates, or when",
            hint="leave it out of the schema; it is kept as it is",
        )
    kept = [field for field in plan.schema if field.name in fixed and field.name != SYSTEM]
    # Punctuation has null in new columns, even if the schema rules nulls out.
    computed = [StructField(field.name, field.dataType, nullable=True, metadata=field.metadata) for field in new]
    schema = StructType([*kept, *computed, plan.schema[SYSTEM]])
    step = mapped(function, to_arrow_schema(schema, timezone="UTC"), [field.name for field in new], batch_rows)
    return Map(
        plan.key, plan.time, schema, plan.left_out, plan.in_order, plan.shards,
        inputs=(plan,), says=f"map {getattr(function, '__qualname__', type(function).__name__)}", step=step,
    )  # fmt: skip


_WITH_CHANGES = {
    "union": "would mix up results, which each input numbers by itself",
    "merge": "would hold back early results",
    "ordered": "would hold back early results",
}


def queue(
    before: Node,
    plan: ShardPlan,
    duration_s: float | None,
    weight: str | Column | None,
    access_interval: str | Column | None,
) -> Queue:
    """Return a plan whose rows wait beyond a batch's budget."""
    check_key_columns(before, "queue")
    column_argument("weight", weight)
    column_argument("access_interval", access_interval)
    given = {
        "budget": plan.budget,
        "duration": duration_s,
        "cost": None if plan.cost_s is None else length_text(round(plan.cost_s * 1e6)),
    }
    options = {"auto": str(plan.auto).lower(), **{name: str(each) for name, each in given.items() if each is not None}}
    if plan.policy == "shed":
        check_final(
            before,
            "queue(policy='shed')",
            "would drop some of the rows that retract results",
            "take another policy, such as in-place",
        )
    left_out = before.left_out
    if plan.policy != "append":
        left_out = IncompleteInput(
            f"queue(policy={plan.policy!r}) leaves rows out, superseded ones mostly (covered > 1 says so)",
            'put the window before the queue, or give the queue policy="append"',
            newest=plan.policy != "shed" and (left_out is None or left_out.newest),
        )
    return Queue(
        before.key, before.time, before.schema, left_out, False, plan.shards,
        inputs=(before,), specification=plan, options=options, weight=weight, access_interval=access_interval,
    )  # fmt: skip


def seconds_argument(name: str, value: str) -> float:
    """Return the seconds of a duration."""
    return duration_argument(name, value, such_as="'10 seconds' or '0.5 ms'") / 1e6


def distinct_by(before: Node, columns: tuple[str, ...]) -> Key:
    """Return the columns in which equal rows are repeats, if of one time or retracted: by default the key."""
    for each in columns:
        if text_argument("distinct", each) is None:
            raise OptionError("distinct(None)", expected="names of columns")
    check_key_columns(before, "distinct")
    by = Key(dict.fromkeys(each for each in columns if before.retracts or each != before.time)) or before.key
    absent = [each for each in by if each not in before.schema.names]
    if absent:
        raise SchemaError(
            f"distinct by {', '.join(absent)}, which the stream lacks",
            expected="columns among " + ", ".join(before.schema.names),
        )
    return by


def reorder(plan: ReorderPlan, *inputs: Node, late_aside: bool = False) -> Reorder:
    """Return the rows of one plan, or of two, in the order of time, without repeats, or each at once."""
    first, name = inputs[0], f"{plan.name}()"
    if plan.name in ("union", "merge"):
        check_inputs(plan.inputs, plan.prefer)
        _check_alike(plan.name, *inputs)
    check_key_columns(first, plan.name)
    if plan.name != "union":
        check_ordered(first.time, first.time_type, plan.name)
    form = first.time_format
    plan = dataclasses.replace(plan, time_format=form.format, time_zone=form.zone)
    for each in inputs:
        if first.time is not None and plan.name in _WITH_CHANGES:
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
        inputs=inputs, specification=plan, name=plan.name, late_aside=late_aside,
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
    check_time_formats(name, one, two)
    kinds = [{field.name: field.dataType for field in each.schema} for each in (one, two)]
    if kinds[0] != kinds[1]:
        differ = sorted(name for name in {*kinds[0], *kinds[1]} if kinds[0].get(name) != kinds[1].get(name))
        raise SchemaError(
            f"{name} of streams that differ in {', '.join(differ)}",
            expected="the same columns, of the same types",
            hint="select and cast the columns of one as the other has them",
        )
