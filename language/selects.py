"""SELECT: its sources and conditions, then groups or rows; QUALIFY, and aggregates with OVER."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, timezone
from typing import Any

import pyarrow as pa
import pyarrow.types as patypes
from sqlglot import exp

from ..conf.errors import SchemaError
from ..expressions.literals import count, length_us
from ..expressions.nodes import Constant, Expression, Field, all_of
from ..expressions.places import Text
from ..expressions.scalars import unwrapped
from ..expressions.types import call
from ..operators.relations.plan.aggregates import is_aggregate
from ..operators.relations.plan.nodes import (
    Changes,
    GroupAggregates,
    Join,
    Now,
    Relation,
    RowWindow,
    Stream,
    TimeRange,
    Top,
    UnboundedWindow,
    Where,
    Window,
    WindowOver,
)
from .groups import bind_groups
from .predicates import Values, bind_where, terms
from .scalars import Scalars, call_of, has_aggregate, has_window, renamed_aggregation
from .scope import Bound, Context, Scope
from .select_list import Item, bare, finished, is_star, item_of, named_items, no_outer, orders_of, starred
from .sources import FilteredFrom, holds_newest, newest


def bind_qualify(select: exp.Select, filtered: FilteredFrom, context: Context) -> Relation:
    """Apply ``QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY x) <= n``."""
    qualify = select.args.get("qualify")
    if qualify is None:
        return filtered.relation
    text, scope = context.text, filtered.source.scope
    relation = filtered.relation
    ranked, others = [], []
    for node in terms(qualify.this):
        (ranked if has_window(node) else others).append(node)
    if not ranked:
        raise text.error(qualify, "QUALIFY has no function with OVER", hint="a plain condition belongs into WHERE")
    if len(ranked) > 1:
        raise text.error(ranked[1], "QUALIFY with two functions with OVER is not supported", hint="use a subquery")
    window, n = _ranking(ranked[0], context)
    inner = Scalars(text, scope, where="in OVER")
    by = tuple(inner.bind(each) for each in window.args.get("partition_by") or [])
    order = orders_of(window.args["order"], inner)
    bare = filtered.source.bare
    by_time = (
        len(order) == 1
        and bare is not None
        and order[0].expression == Field(bare.event_time, bare.schema.field(bare.event_time).type)
    )
    if (
        by_time
        and order[0].descending
        and bare is not None
        and not filtered.joined
        and all(isinstance(each, Field) for each in by)
    ):
        # The newest rows of a stream by its event time: the window that CQL has for it.
        where = filtered.conditions
        partition = tuple(each.name for each in by if isinstance(each, Field))

        windowed = filtered.source.relation
        assert isinstance(windowed, WindowOver)
        relation = WindowOver(windowed.stream, newest(bare, n, partition, all_of(list(where))))
    else:
        relation = Top(relation, order, n, by)
    context.noted(relation, qualify)
    for node in others:
        relation = Where(relation, Scalars(text, scope, where="in QUALIFY").condition(node))
    return relation


def _ranking(node: exp.Expr, context: Context) -> tuple[exp.Window, int]:
    usage = "ROW_NUMBER() OVER (PARTITION BY k ORDER BY x DESC) <= n"
    error = context.text.error(node, "this condition on a rank is not supported", expected=usage)
    if not isinstance(node, exp.EQ | exp.LT | exp.LTE):
        raise error
    window, literal = unwrapped(node.this), unwrapped(node.expression)
    if not (isinstance(window, exp.Window) and isinstance(literal, exp.Literal)):
        raise error
    if not isinstance(window.this, exp.Anonymous) or window.this.this != "ROW_NUMBER" or window.this.expressions:
        raise error
    if window.args.get("spec") is not None:
        raise context.text.error(window.args["spec"], "ROW_NUMBER takes no frame")
    if window.args.get("order") is None:
        raise context.text.error(window, "ROW_NUMBER needs ORDER BY", expected=usage)
    n = count(literal, context.text, "a rank of", least=0) - (1 if isinstance(node, exp.LT) else 0)
    if n < 1 or (isinstance(node, exp.EQ) and n != 1):
        raise context.text.error(node, "this keeps no first rows", expected="= 1, or <= n")
    return window, n


_USAGE = "SUM(x) OVER (PARTITION BY k ORDER BY t RANGE BETWEEN INTERVAL '10' MINUTES PRECEDING AND CURRENT ROW)"
_ROWS_USAGE = "SUM(x) OVER (PARTITION BY k ORDER BY t ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)"


def bind_over(
    items: Sequence[exp.Expr], filtered: FilteredFrom, context: Context
) -> tuple[Relation, dict[int, Expression]]:
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
    assert isinstance(source, WindowOver)

    def rows(window: Window) -> Relation:
        if isinstance(window, RowWindow):  # the condition comes before the cut
            return WindowOver(source.stream, replace(window, where=condition))
        made = WindowOver(source.stream, window)
        return made if condition is None else Where(made, condition)

    relation = rows(Now())
    columns: dict[int, Expression] = {}
    for node in windows:
        by, window = _frame(node, stream, filtered, context)
        scalars = Scalars(context.text, filtered.source.scope, aggregates=True, where="in OVER")
        bound = scalars.bind(node.this)
        names = [context.fresh("group") for _ in by]
        value = context.fresh("over")
        made = renamed_aggregation(scalars.found[0], value)
        groups = GroupAggregates(rows(window), tuple(zip(names, by, strict=True)), (made,))
        pairs = [
            pair
            for name, each in zip(names, by, strict=True)
            for pair in _same(node, each, Field(name, each.type), context)
        ]
        relation = context.noted(Join(relation, groups, "inner", tuple(pairs)), node)
        columns[id(node)] = scalars.above(bound, {}, [value])
    # Each row stays with its aggregates. Without this, a row would vanish that equals one of the microsecond before.
    return context.noted(WindowOver(Changes(relation, "istream"), UnboundedWindow()), windows[0]), columns


def _frame(
    node: exp.Window, stream: Stream, filtered: FilteredFrom, context: Context
) -> tuple[list[Expression], Window]:
    text = context.text
    function = call_of(node)
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
        return by, UnboundedWindow()
    start, side = spec.args["start"], spec.args.get("start_side")
    if spec.args["kind"] == "ROWS":
        return by, _rows(node, spec, by, text)
    if spec.args["end"] != "CURRENT ROW" or side != "PRECEDING":
        raise text.error(spec, "a frame goes from a time before the row to the row", expected=_USAGE)
    if start == "UNBOUNDED":
        return by, UnboundedWindow()
    if not isinstance(start, exp.Interval):
        raise text.error(spec, "this frame has no length of time", expected=_USAGE)
    # A frame holds both of its ends, a window only the later one.
    return by, TimeRange(length_us(start, text, "RANGE") + 1)


def _rows(node: exp.Window, spec: exp.Expr, by: list[Expression], text: Text) -> Window:
    """Return the window of ``ROWS BETWEEN n PRECEDING AND CURRENT ROW``: n + 1 rows with the row itself."""
    start, side = spec.args["start"], spec.args.get("start_side")
    if spec.args["end"] != "CURRENT ROW" or side == "FOLLOWING":
        raise text.error(spec, "a frame goes from rows before the row to the row", expected=_ROWS_USAGE)
    if start == "UNBOUNDED":
        return UnboundedWindow()
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
    return RowWindow(n + 1, tuple(dict.fromkeys(columns)))


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


def bind_select(select: exp.Select, context: Context, around: Scope | None) -> Bound:
    """Return a SELECT as a relation."""
    filtered = bind_where(select, context, around)
    if filtered.outer:
        raise context.text.error(
            filtered.outer[0][1],
            "a column of the query around is not supported here",
            hint="join with the subquery in FROM instead",
        )
    items = [each for each in select.expressions if not is_star(each)]
    having = select.args.get("having")
    grouped = select.args.get("group") is not None or having is not None or any(has_aggregate(each) for each in items)
    order: exp.Order | None = select.args.get("order")
    if order is not None and not grouped:
        grouped = any(has_aggregate(each) for each in order.expressions)
    if grouped:
        return bind_groups(select, filtered, context)
    over: dict[int, Expression] = {}
    ranked = [each for each in select.expressions if has_window(each)]
    if ranked:
        if select.args.get("qualify") is not None:
            raise context.text.error(select.args["qualify"], "QUALIFY beside OVER in SELECT is not supported")
        relation, columns_over = bind_over(ranked, filtered, context)
        over |= columns_over
    else:
        relation = bind_qualify(select, filtered, context)
    below = relation
    while isinstance(below, Where):
        below = below.source
    streams = filtered.source.streams and not holds_newest(below)
    values = Values(context, filtered.source.scope, bind_where)
    over |= values.read(select.expressions)
    relation = values.joined(relation)
    scalars = Scalars(context.text, filtered.source.scope, where="in SELECT", over=over)
    found: list[Item] = []
    for node in select.expressions:
        if is_star(node):
            found += starred(node, filtered.source.scope, context)
        else:
            found.append(item_of(node, scalars.bind(bare(node))))
    no_outer(found, context)
    columns = named_items(found, context)
    ordering = Scalars(context.text, filtered.source.scope, where="in ORDER BY")
    return Bound(finished(select, relation, columns, ordering, None, context), streams)
