"""Windows over relations by a column of time, and the results of queries as their windows close."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ..expressions.compile import folded
from ..expressions.kinds import BOOLEAN, DURATION, LONG, TIMESTAMP, UTC
from ..expressions.nodes import Call, Constant, Expression, Field
from ..expressions.types import call
from ..expressions.zones import in_zone
from ..operators.relations.plan.bounds import Growth, UnboundedError, growth_of
from ..operators.relations.plan.nodes import (
    Changes,
    Explode,
    GroupAggregates,
    Hop,
    Join,
    Lifetime,
    Node,
    Now,
    Project,
    Relation,
    SetOperation,
    Stream,
    Top,
    UnboundedWindow,
    Where,
    WindowOver,
    walk,
)
from ..operators.relations.plan.normalize import normalized, rewriter
from ..operators.relations.plan.properties import never_null
from .scope import Context

_END = "window_end"


def time_of(rows: Relation) -> str | None:
    """Return the column with the event time of a stream's rows, which never leave; None for other relations."""
    if isinstance(rows, Where):
        return time_of(rows.source)
    if isinstance(rows, Project):
        time = time_of(rows.source)
        return next((name for name, each in rows.columns if isinstance(each, Field) and each.name == time), None)
    if not isinstance(rows, WindowOver) or not isinstance(rows.window, UnboundedWindow):
        return None
    return rows.origin.event_time or None if isinstance(rows.origin, Stream) else None


def in_windows(rows: Relation, window: Hop | Now) -> Relation:
    """Return a stream's rows in windows, which conditions and projections do not change."""
    if isinstance(rows, Where):
        return Where(in_windows(rows.source, window), rows.condition)
    if isinstance(rows, Project):
        source = in_windows(rows.source, window)
        bounds = list(source.schema)[-2:] if isinstance(window, Hop) and window.columns else []
        return Project(source, (*rows.columns, *((each.name, Field(each.name, each.type)) for each in bounds)))
    assert isinstance(rows, WindowOver)
    return WindowOver(rows.stream, window)


def rows_that_stay(relation: Relation, function: exp.Expr, context: Context, *, streams: bool) -> Relation:
    """Return a relation whose rows stay, or else the stream of the rows that come as a relation."""
    if not any(isinstance(each, Lifetime) or _leaves(each) for each in nodes_at_once(relation)):
        return relation
    if not streams:
        raise context.text.error(
            function.this,
            f"{function.args['kind']} needs a stream, and rows leave this relation",
            hint="make it a stream: ISTREAM(SELECT …)",
        )
    return WindowOver(Changes(relation, "istream"), UnboundedWindow())


def _leaves(node: Node) -> bool:
    return isinstance(node, WindowOver) and not isinstance(node.window, UnboundedWindow)


def nodes_at_once(node: Node) -> Iterator[Node]:
    """Yield the nodes of a relation, without those below a stream of its changes."""
    below = {id(inner) for each in walk(node) if isinstance(each, Changes) for inner in walk(each)}
    return (each for each in walk(node) if id(each) not in below)


def growth_at(relation: Relation, at: exp.Expr, context: Context) -> Growth:
    """Return the growth of a relation; raise QueryRefusedError where its state is not bounded."""
    zone = context.catalog.time_zone
    evaluated = rewriter(lambda each: folded(each if zone == UTC else in_zone(each, zone)))
    try:
        return growth_of(normalized(evaluated(relation)))
    except UnboundedError as error:
        raise pointed(error, relation, at, context) from None


def pointed(error: UnboundedError, plan: Node, at: Any, context: Context) -> Exception:
    """Point at the clause without a bound: the source that grows, or the operator that keeps it."""
    for wanted in (error.source, error.node, plan):
        if wanted is not None and wanted in context.places:
            text, place = context.places[wanted]
            return text.error(place, error.problem, hint=error.hint)
    return context.text.error(at, error.problem, hint=error.hint)


def in_windows_by(rows: Relation, name: str, hop: Hop, at: exp.Expr, context: Context) -> Relation:
    """Return the rows of the last windows by a column of time that get no more rows, or of the open ones."""
    growth = growth_at(rows, at, context)
    late = growth.clocks.get(name)
    if late is None or not pa.types.is_timestamp(rows.schema.field(name).type):
        columns = [each for each in rows.schema.names if each in growth.clocks]
        raise context.text.error(
            at.expressions[0],
            f"rows may come at any time after their '{name}', so no window would ever close",
            expected=f"an event time, {' or '.join(columns)}" if columns else "the event time of a stream",
            hint="join by both times: b.t BETWEEN a.t - INTERVAL '5' MINUTES AND a.t, or windows: s [RANGE 5 MINUTES]",
        )
    # A row that is late corrects the window that has closed last.
    late = max(late - max(each.lateness_us for each in walk(rows) if isinstance(each, Stream)), 0)
    size, slide = hop.size_us, hop.slide_us
    time = Field(name, rows.schema.field(name).type)
    first, last = _bound(time, slide, slide), _bound(_bound(time, 1, size), slide, 0)
    relation, ends, leaves = rows, (first, late), (last, late + slide)
    if hop.columns:
        own = [(each.name, Field(each.name, each.type)) for each in rows.schema]
        end = Field(_END, TIMESTAMP)
        if size == slide:
            relation = Project(rows, (*own, ("window_start", _bound(time, slide, 0)), (_END, first)))
        else:
            step = Constant(timedelta(microseconds=slide), DURATION)
            made = Explode(rows, call("sequence", [first, last, step]), _END)
            relation = Project(made, (*own, ("window_start", _bound(end, 1, -size)), (_END, end)))
        ends, leaves = (end, late), (end, late + slide)
    made = Lifetime(relation, (), (ends,)) if context.phase == "open" else Lifetime(relation, (ends,), (leaves,))
    context.closes[made] = slide, late
    return context.noted(made, at)


def _bound(time: Expression, slide_us: int, shift_us: int) -> Expression:
    return Call("window_bound", (time, Constant(slide_us, LONG), Constant(shift_us, LONG)), TIMESTAMP)


def names_window(relation: Relation) -> bool:
    """Return whether each group of a relation is of one window, and its rows name it."""
    groups = [each for each in nodes_at_once(relation) if isinstance(each, GroupAggregates)]
    ends = [{name for name, by in each.by if isinstance(by, Field) and by.name == _END} for each in groups]
    top = relation
    while isinstance(top, Where | Top):
        top = top.source
    columns = [each.name for _, each in top.columns if isinstance(each, Field)] if isinstance(top, Project) else None
    return all(ends) and not {_END}.union(*ends).isdisjoint(top.schema.names if columns is None else columns)


def of_open_windows(opened: Relation | Changes, closed: Relation | Changes, at: exp.Expr, context: Context) -> Relation:
    """Return the results of the open windows and of the last ones that have closed, with a column ``final``."""
    if isinstance(closed, Changes) or isinstance(opened, Changes):
        raise context.text.error(at, "EMIT is of a relation, and this query is a stream already")
    if not any(each in context.closes for each in nodes_at_once(closed)):
        raise context.text.error(at, "no window of this query is open before it closes", hint="write HOP or TUMBLE")
    if not names_window(closed):
        raise context.text.error(
            at,
            "a result of an open window is replaced by the one that is final, and these rows do not name their window",
            hint="SELECT window_end, and GROUP BY the key and window_end",
        )
    if "final" in closed.schema.names:
        raise context.text.error(at, "EMIT EARLY adds the column 'final', and the query has one", hint="rename it")
    own = tuple((each.name, Field(each.name, each.type)) for each in closed.schema)
    sides = [(*own, ("final", Constant(value, BOOLEAN))) for value in (False, True)]
    made = SetOperation(Project(opened, sides[0]), Project(closed, sides[1]), "union", True)
    return context.noted(made, at)


def as_sessions_end(relation: Relation, at: exp.Expr, context: Context) -> Changes:
    """Return the rows of sessions as a stream.

    A row that does not name its window may come as an equal one leaves. So it is computed from the stream of those
    that do, which never leave.
    """
    above: list[Project | Where] = []
    while not names_window(relation):
        if not isinstance(relation, Project | Where):
            raise context.text.error(
                at, "rows of sessions that close at different times are combined", hint="SELECT window_end"
            )
        above.append(relation)
        relation = relation.source
    rows: Relation = WindowOver(Changes(relation, "istream"), UnboundedWindow()) if above else relation
    for each in reversed(above):
        rows = replace(each, source=rows)
    return context.noted(Changes(rows, "istream"), at)


def as_rows_settle(relation: Relation, at: exp.Expr, context: Context) -> Changes | None:
    """Return the rows that stay, once they do not change any more; None for a relation without such a time."""
    growth = growth_at(relation, at, context)
    times = sorted((lag, name) for name, lag in growth.clocks.items())
    outer = any(isinstance(each, Join) and each.how in {"left", "right", "full"} for each in walk(relation))
    times = [each for each in times if not outer or each[1] in never_null(relation)]
    if not growth.grows or not growth.retracts or not times:
        return None
    lag, name = times[0]
    settled = Lifetime(relation, ((Field(name, relation.schema.field(name).type), lag),), ())
    return context.noted(Changes(settled, "istream"), at)
