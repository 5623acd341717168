"""Aggregates with OVER: for each row of a stream, an aggregate of the rows up to its time.

A time frame is a join of ``s [NOW]`` with the groups of ``s [RANGE …]``; a frame of n preceding rows one with those of
``s [ROWS n + 1]``. Rows of one partition and time have no order: each has the aggregate of the newest rows up to all of
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, timezone
from typing import Any

import pyarrow as pa
import pyarrow.types as patypes
from sqlglot import exp

from ...conf.errors import SchemaError
from ..expressions.nodes import Constant, Expression, Field, all_of
from ..expressions.typing import call
from ..relations.aggregates import is_aggregate
from ..relations.nodes import (
    Aggregate,
    Changes,
    Join,
    Now,
    Range,
    Relation,
    Rows,
    Stream,
    Unbounded,
    Where,
    Window,
    Windowed,
)
from .context import Context
from .froms import Filtered
from .literals import count, length_us
from .places import Text
from .scalars import Scalars
from .shapes import renamed_aggregation

__all__ = ["bind_over"]

_USAGE = "SUM(x) OVER (PARTITION BY k ORDER BY t RANGE BETWEEN INTERVAL '10' MINUTES PRECEDING AND CURRENT ROW)"
_ROWS_USAGE = "SUM(x) OVER (PARTITION BY k ORDER BY t ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)"


def bind_over(items: Sequence[exp.Expr], filtered: Filtered, context: Context) -> tuple[Relation, dict[int, Field]]:
    """Return a stream's rows with their aggregates, which stay, and the column of each ``OVER`` by its node's id."""
    windows = [each for item in items for each in item.find_all(exp.Window)]
    stream = filtered.source.bare
    if stream is None or filtered.joined:
        raise context.text.error(
            windows[0],
            "OVER is supported over a stream alone",
            expected=f"{_USAGE} FROM s",
            hint="aggregate s [RANGE 10 MINUTES] or s [PARTITION BY k ROWS n] with GROUP BY, and join with s [NOW]",
        )
    condition = all_of(list(filtered.conditions))
    source = filtered.source.relation
    assert isinstance(source, Windowed)

    def rows(window: Window) -> Relation:
        if isinstance(window, Rows):  # the condition comes before the cut
            return Windowed(source.stream, replace(window, where=condition))
        made = Windowed(source.stream, window)
        return made if condition is None else Where(made, condition)

    relation = rows(Now())
    columns: dict[int, Field] = {}
    for node in windows:
        by, window = _frame(node, stream, filtered, context)
        scalars = Scalars(context.text, filtered.source.scope, aggregates=True, where="in OVER")
        scalars.bind(node.this)
        names = [context.fresh("group") for _ in by]
        value = context.fresh("over")
        made = renamed_aggregation(scalars.found[0], value)
        groups = Aggregate(rows(window), tuple(zip(names, by, strict=True)), (made,))
        pairs = [
            pair
            for name, each in zip(names, by, strict=True)
            for pair in _same(node, each, Field(name, each.type), context)
        ]
        relation = context.noted(Join(relation, groups, "inner", tuple(pairs)), node)
        columns[id(node)] = Field(value, made.type)
    # Each row stays with its aggregates. Without this, a row would vanish that equals one of the microsecond before.
    return context.noted(Windowed(Changes(relation, "istream"), Unbounded()), windows[0]), columns


def _frame(node: exp.Window, stream: Stream, filtered: Filtered, context: Context) -> tuple[list[Expression], Window]:
    text = context.text
    function = node.this.this if isinstance(node.this, exp.Filter) else node.this
    if not isinstance(function, exp.Anonymous) or not is_aggregate(function.this.lower()):
        name = function.this if isinstance(function, exp.Anonymous) else "this function"
        raise text.error(
            node,
            f"{name} OVER (…) is not supported here",
            expected=_USAGE,
            hint="the first n of each group: QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY x) <= n",
        )
    inner = Scalars(text, filtered.source.scope, where="in OVER")
    by = [inner.bind(each) for each in node.args.get("partition_by") or []]
    order = node.args.get("order")
    time = Field(stream.event_time, stream.schema.field(stream.event_time).type)
    keys = order.expressions if order is not None else []
    if len(keys) != 1 or keys[0].args.get("desc") or inner.bind(keys[0].this) != time:
        raise text.error(
            order or node, f"OVER goes by the event time of '{stream.name}'", expected=f"ORDER BY {stream.event_time}"
        )
    spec = node.args.get("spec")
    if spec is None:
        return by, Unbounded()
    start, side = spec.args["start"], spec.args.get("start_side")
    if spec.args["kind"] == "ROWS":
        return by, _rows(node, spec, by, text)
    if spec.args["end"] != "CURRENT ROW" or side != "PRECEDING":
        raise text.error(spec, "a frame goes from a time before the row to the row", expected=_USAGE)
    if start == "UNBOUNDED":
        return by, Unbounded()
    if not isinstance(start, exp.Interval):
        raise text.error(spec, "this frame has no length of time", expected=_USAGE)
    # A frame holds both of its ends, a window only the later one.
    return by, Range(length_us(start, text, "RANGE") + 1)


def _rows(node: exp.Window, spec: exp.Expr, by: list[Expression], text: Text) -> Window:
    """Return the window of ``ROWS BETWEEN n PRECEDING AND CURRENT ROW``: n + 1 rows with the row itself."""
    start, side = spec.args["start"], spec.args.get("start_side")
    if spec.args["end"] != "CURRENT ROW" or side == "FOLLOWING":
        raise text.error(spec, "a frame goes from rows before the row to the row", expected=_ROWS_USAGE)
    if start == "UNBOUNDED":
        return Unbounded()
    if start == "CURRENT ROW":
        n = 0
    elif isinstance(start, exp.Literal) and not start.is_string:
        n = count(start, text, "ROWS", least=0)
    else:
        raise text.error(spec, "this frame has no number of rows", expected=_ROWS_USAGE)
    columns = [each.name for each in by if isinstance(each, Field)]
    if len(columns) < len(by):
        place = next(at for at, each in zip(node.args["partition_by"], by, strict=True) if not isinstance(each, Field))
        raise text.error(
            place,
            "PARTITION BY of a frame of rows is of columns",
            hint="partition by columns, or by time: RANGE BETWEEN INTERVAL '10' MINUTES PRECEDING AND CURRENT ROW",
        )
    return Rows(n + 1, tuple(dict.fromkeys(columns)))


def _same(node: exp.Expr, one: Expression, other: Expression, context: Context) -> list[tuple[Expression, Expression]]:
    """Return pairs that are equal if both values are, or if both are null."""
    nothing = Constant(_some(node, one.type, context), one.type)
    try:
        filled = [call("coalesce", [each, nothing]) for each in (one, other)]
        empty = [call("is_null", [each]) for each in (one, other)]
    except SchemaError as error:
        raise context.text.error(node, error.problem, expected=error.expected, hint=error.hint) from None
    return [(filled[0], filled[1]), (empty[0], empty[1])]


def _some(node: exp.Expr, kind: pa.DataType, context: Context) -> Any:
    if patypes.is_string(kind) or patypes.is_large_string(kind):
        return ""
    if patypes.is_boolean(kind):
        return False
    if patypes.is_integer(kind) or patypes.is_decimal(kind):
        return 0
    if patypes.is_floating(kind):
        return 0.0
    if patypes.is_date(kind):
        return date(1970, 1, 1)
    if patypes.is_timestamp(kind):
        return datetime(1970, 1, 1, tzinfo=timezone.utc if kind.tz else None)
    raise context.text.error(node, f"PARTITION BY of {kind} is not supported", hint="partition by a text or a number")
