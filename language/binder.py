"""Bind a query's text to a plan over a catalog."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

import pyarrow as pa
from sqlglot import exp

from ..conf.deep_stack import on_deep_stack
from ..conf.errors import OptionError, QueryRefusedError, SchemaError
from ..conf.options import duration_argument
from ..core.feedback.control import AUTO, QueueBudget
from ..expressions.bind import OptionText, bind_value
from ..expressions.compile import compiled, folded
from ..expressions.kinds import UTC, is_number
from ..expressions.literals import length_us
from ..expressions.logic import needed_constants
from ..expressions.nodes import Call, Expression, Field, all_of, conjuncts, substituted
from ..expressions.nodes import walk as walk_parts
from ..expressions.places import Text
from ..expressions.python_functions import is_python
from ..expressions.scalars import Visible
from ..expressions.types import cast, common
from ..expressions.zones import in_zone
from ..operators.queue.queue import Policy
from ..operators.relations.plan.bounds import UnboundedError, only_grows, state_of
from ..operators.relations.plan.identity import NODES
from ..operators.relations.plan.nodes import (
    Changes,
    GroupAggregates,
    Hop,
    Latest,
    Node,
    Project,
    QueueProject,
    Relation,
    Session,
    SetOperation,
    Stream,
    TimeRange,
    Where,
    WindowOver,
    expressions_of,
    walk,
)
from ..operators.relations.plan.normalize import normalized, rewriter
from ..operators.relations.plan.properties import clock_of
from .arrays import bind_generators
from .catalog import FREE_NAMES, Catalog, by_position, reserved_name
from .grammar import Emit, StreamOperator
from .groups import bind_groups
from .over import WindowColumns, bind_first, bind_over, of_stream
from .predicates import Values, bind_where, terms
from .scalars import Scalars, has_aggregate, has_window
from .scope import Bound, Context, Scope, unseen
from .select_list import Item, bare, bind_order, finished, is_star, item_of, named_items, no_outer, starred
from .sources import holds_newest
from .time_windows import as_rows_settle, as_sessions_end, names_window, nodes_at_once, of_open_windows, pointed

_LEAST_PERIOD_US = 100_000
_KINDS: Mapping[str, Literal["istream", "dstream", "rstream"]] = {
    "ISTREAM": "istream",
    "DSTREAM": "dstream",
    "RSTREAM": "rstream",
}


@dataclass(frozen=True)
class Query:
    """A bound query."""

    text: str
    plan: Relation | Changes  # A relation, kept as a table, or `Changes`, a stream.
    reads: tuple[str, ...]  # Streams and stored relations, also those of views.
    views: tuple[str, ...] = ()  # The views that it names, directly or through other views.
    functions: tuple[str, ...] = ()  # The functions in Python that it calls, or its views do.

    @property
    def schema(self) -> pa.Schema:
        return self.plan.schema


def bind(text: str, catalog: Catalog) -> Query:
    """Return a query with its normalized plan and bounded state, or raise QueryRefusedError at the place in its text.

    The defaults are CQL's (Motwani et al., CIDR 2003, §2.2). A stream without a window is ``[RANGE UNBOUNDED]``. A
    query without aggregates over a stream in its outermost FROM is an ISTREAM. In a subquery, it is one only if a
    window or a sample follows; otherwise it is a relation.
    """
    return on_deep_stack(lambda: _bound(text, catalog))


def _bound(text: str, catalog: Catalog) -> Query:
    context = _context(Text(text), catalog)
    bound = _outermost(context.parsed(text), context)
    _check_names(bound, context)
    _check_newest(bound, context)
    if catalog.time_zone != UTC:
        bound = _rewritten(bound, lambda each: in_zone(each, catalog.time_zone), context)
    _check_constants(bound, context)
    bound = _rewritten(bound, folded, context)
    plan = normalized(bound)
    try:
        state_of(plan)
    except UnboundedError as error:
        raise pointed(error, bound, (0, 0), context) from None
    reads = sorted({each.name for each in walk(plan) if isinstance(each, Stream)})
    return Query(text, plan, tuple(reads), tuple(sorted(context.viewed)), tuple(sorted(context.called)))


def _rewritten(
    plan: Relation | Changes, change: Callable[[Expression], Expression], context: Context
) -> Relation | Changes:
    """Change the expressions of a plan, and of the nodes whose places in the text are known."""
    rewrite = rewriter(change)
    context.places.update({rewrite(node): place for node, place in [*context.places.items()]})
    return rewrite(plan)


def _check_names(plan: Relation | Changes, context: Context) -> None:
    for node in walk(plan):
        name = reserved_name(node.schema)
        if name is not None:
            text, place = context.places.get(node, (context.text, (0, 0)))
            raise text.error(place, f"a column is named {name}", expected=FREE_NAMES, hint="write AS and another name")


def _check_constants(plan: Relation | Changes, context: Context) -> None:
    """Refuse a query with an expression of constants that has a value in no row, such as CAST('x' AS INT)."""
    for node in walk(plan):
        for constant in (each for some in expressions_of(node) for each in needed_constants(some)):
            try:
                failure = compiled(constant, pa.schema([])).constant_failure()
            except SchemaError:
                continue  # the plan is refused when it is compiled, with the reason
            if failure is not None:
                text, place = context.places.get(node, (context.text, (0, 0)))
                texts = (text, context.text, *(text for text, _ in context.places.values()))
                parts = (failure.of, *walk_parts(constant))
                found = ((each, each.constants[part]) for each in texts for part in parts if part in each.constants)
                text, place = next(found, (text, place))
                hint = failure.hint or "use a try_ form, such as try_cast or try_divide, which gives null"
                raise text.error(place, f"{failure.of} has a value in no row: {failure.reason}", hint=hint)


def _check_newest(plan: Relation | Changes, context: Context) -> None:
    """Refuse a query that needs rows which a source leaves out for newer ones of their keys, or their event times."""
    for node in walk(plan):
        source = node.origin if isinstance(node, WindowOver) else None
        if not isinstance(source, Stream) or not (source.newest or by_position(source)):
            continue
        if clock_of(plan) == "event" or not isinstance(node.inputs[0], Stream):
            text, place = context.places.get(node, (context.text, (0, 0)))
            problem = f"'{source.name}' has a queue, or coalesces, and so lacks rows that newer ones supersede"
            hint = "declare the source once more under another name, without the queue"
            if not source.newest:
                problem = (
                    f"the rows of '{source.name}' have no event time: '{source.event_time}' is a position in a log"
                )
                hint = (
                    "declare the source once more under another name, with an event_time that is a timestamp, such as "
                    "select = '…, timestamp_millis(t) AS t'"
                )
            raise text.error(
                place,
                problem,
                expected=f"LATEST({source.name}), in a query that reads only newest rows and stored relations, without "
                "EMIT PERIODIC",
                hint=hint,
            )


def _context(text: Text, catalog: Catalog) -> Context:
    return Context(text, catalog, _query, _view)


def _outermost(tree: exp.Expr, context: Context) -> Relation | Changes:
    emit = tree if isinstance(tree, Emit) else None
    if emit is not None and emit.args["kind"] == "EARLY":
        opened = replace(context, phase="open", viewed={})
        some = [_query(emit.this, each, None) for each in (opened, replace(context, phase="closed"))]
        return of_open_windows(some[0].node, some[1].node, emit, context)
    bound = _query(tree.this if emit is not None else tree, context, None)
    if emit is None:
        if isinstance(bound.node, Changes) or not bound.streams:
            return bound.node
        return Changes(bound.node, "istream")
    inner = bound.node
    if isinstance(inner, Changes):
        raise context.text.error(emit, "EMIT is of a relation, and this query is a stream already")
    kind = emit.args["kind"]
    if kind == "CHANGES":
        return inner
    if kind == "PERIODIC":
        every = length_us(emit.args["every"], context.text, "PERIODIC")
        return _periodic(inner, every, emit, context)
    return _as_windows_close(inner, emit, context)


def _as_windows_close(inner: Relation, emit: exp.Expr, context: Context) -> Changes:
    own, others = _windows_of(inner, context)
    windows = [each for each in nodes_at_once(inner) if isinstance(each, WindowOver)]
    if any(isinstance(each.window, Session) for each in windows):
        return _of_sessions(inner, windows, emit, context)
    closings = {(_slide(each), 0) for each in others if isinstance(each.window, TimeRange | Hop)}
    closings |= {context.closes[each] for each in own}
    closing = next((slide for slide, _ in closings if slide is not None), None)
    if closing is None:
        settled = as_rows_settle(inner, emit, context)
        if settled is not None:
            return settled
        raise context.text.error(
            emit, "no window of this query closes", hint="write HOP, TUMBLE, or [RANGE 10 MINUTES SLIDE 1 MINUTE]"
        )
    if len(closings) > 1:
        raise context.text.error(
            emit, "the windows of this query close at different times", hint="give them one SLIDE, or EMIT PERIODIC"
        )
    if own and not others and names_window(inner):
        return context.noted(Changes(inner, "istream"), emit)
    return _periodic(inner, closing, emit, context)


def _windows_of(relation: Relation, context: Context) -> tuple[list[Node], list[WindowOver]]:
    """Return the windows over relations, and those over streams that are not below one of them."""
    nodes = [*nodes_at_once(relation)]
    own = [each for each in nodes if each in context.closes]
    below = [inner for each in own for inner in walk(each)]
    windows = [each for each in nodes if isinstance(each, WindowOver) and each not in below]
    return own, [each for each in windows if not _static(each)]


def _of_sessions(inner: Relation, windows: list[WindowOver], emit: exp.Expr, context: Context) -> Changes:
    """Return the rows of sessions as a stream: those of one end come together, then."""
    sessions = [each for each in windows if isinstance(each.window, Session)]
    if len(sessions) > 1 or any(not _static(each) and each not in walk(sessions[0]) for each in windows):
        raise context.text.error(
            emit, "the windows of this query close at different times", hint="EMIT CHANGES, or one SESSION alone"
        )
    for each in walk(inner):
        if isinstance(each, GroupAggregates) and "window_end" not in {
            by.name for _, by in each.by if isinstance(by, Field)
        }:
            raise context.text.error(
                emit, "a group has sessions that close at different times", hint="GROUP BY the key and window_end"
            )
    return as_sessions_end(inner, emit, context)


def _periodic(inner: Relation, every_us: int, at: exp.Expr, context: Context) -> Changes:
    if every_us < _LEAST_PERIOD_US:
        raise context.text.error(
            at, f"the result is due every {every_us} µs", expected=f"a period of at least {_LEAST_PERIOD_US} µs"
        )
    return context.noted(Changes(inner, "rstream", every_us), at)


def _query(tree: exp.Expr, context: Context, around: Scope | None) -> Bound:
    if tree.args.get("with_") is not None:
        context = _with(tree.args["with_"], context)
    if isinstance(tree, StreamOperator):
        return _stream(tree, context)
    if isinstance(tree, exp.Select):
        return bind_select(tree, context, around)
    if isinstance(tree, exp.SetOperation):
        return _set_operation(tree, context)
    if isinstance(tree, exp.Subquery):
        bound = _query(tree.this, context, None)
        if tree.args.get("order") is None and tree.args.get("limit") is None:
            return bound
        if isinstance(bound.node, Changes):
            raise context.text.error(tree, "a stream has no order", hint="order inside of the stream operator")
        return Bound(bind_order(tree, bound.node, context), bound.streams)
    raise context.text.error(tree, "this is not a query")


def _stream(tree: StreamOperator, context: Context) -> Bound:
    inner = _query(tree.this, context, None).node
    kind = tree.args["kind"]
    if isinstance(inner, Changes):
        raise context.text.error(tree, f"{kind} is of a relation, and the query inside is a stream")
    # RSTREAM of windows that all slide together comes at each slide.
    own, others = _windows_of(inner, context)
    slides = {context.closes[each][0] for each in own} | {_slide(each) for each in others}
    every = next(iter(slides)) if kind == "RSTREAM" and len(slides) == 1 else None
    if every is not None:
        return Bound(_periodic(inner, every, tree, context))
    return Bound(context.noted(Changes(inner, _KINDS[kind]), tree))


def _slide(node: WindowOver) -> int | None:
    return node.window.slide_us if isinstance(node.window, TimeRange | Hop) else None


def _static(node: WindowOver) -> bool:
    return isinstance(node.stream, Stream) and node.stream.static


def _with(node: exp.Expr, context: Context) -> Context:
    for each in node.expressions:
        name = each.alias
        if any(name.lower() == other.lower() for other in context.ctes):
            raise context.text.error(each, f"two subqueries of WITH are named '{name}'")
        context = context.within({name: _query(each.this, context, None)})
    return context


def _view(name: str, sql: str, context: Context) -> Bound:
    if name in context.viewed:
        return context.viewed[name]
    text = Text(sql, name)
    inner = replace(context, text=text, ctes={}, views=(*context.views, name))
    tree = inner.parsed(sql)
    if isinstance(tree, Emit):
        raise text.error(tree, "EMIT is for the query that is registered, not for a view", hint="leave it out")
    context.viewed[name] = _query(tree, inner, None)
    return context.viewed[name]


def _set_operation(tree: exp.SetOperation, context: Context) -> Bound:
    kind = "union" if isinstance(tree, exp.Union) else "except" if isinstance(tree, exp.Except) else "intersect"
    left, right = _query(tree.this, context, None), _query(tree.expression, context, None)
    sides: list[Relation] = []
    for each, node in ((left, tree.this), (right, tree.expression)):
        if isinstance(each.node, Changes):
            raise context.text.error(node, f"{kind.upper()} is of relations, and this is a stream")
        sides.append(each.node)
    one, two = _aligned(tree, kind, sides[0], sides[1], context)
    made = context.noted(SetOperation(one, two, kind, not tree.args.get("distinct")), tree)
    return Bound(bind_order(tree, made, context), left.streams or (right.streams and kind != "except"))


def _aligned(
    tree: exp.SetOperation, kind: str, left: Relation, right: Relation, context: Context
) -> tuple[Relation, Relation]:
    """Cast both sides to common types by position."""
    if len(left.schema) != len(right.schema):
        raise context.text.error(
            tree.expression, f"{kind.upper()} of {len(left.schema)} and {len(right.schema)} columns", expected="as many"
        )
    types: list[pa.DataType] = []
    for at, (one, two) in enumerate(zip(left.schema, right.schema, strict=True), 1):
        try:
            types.append(one.type if one.type == two.type else common([one.type, two.type]))
        except SchemaError as error:
            raise context.text.error(
                tree.expression,
                f"column {at} of {kind.upper()}: {error.problem}",
                expected=error.expected,
                hint=error.hint,
            ) from None
    return _cast_to(left, types), _cast_to(right, types)


def _cast_to(relation: Relation, types: list[pa.DataType]) -> Relation:
    if [each.type for each in relation.schema] == types:
        return relation
    columns: list[tuple[str, Expression]] = [
        (each.name, cast(Field(each.name, each.type), kind)) for each, kind in zip(relation.schema, types, strict=True)
    ]
    return Project(relation, tuple(columns))


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
    qualify = select.args.get("qualify")
    ranked = [each for each in select.expressions if has_window(each)]
    functions = WindowColumns(context, Scalars(context.text, filtered.source.scope, where="in OVER"))
    over: dict[int, Expression] = {}
    streams = filtered.source.streams
    first = bind_first(qualify, filtered, context) if qualify is not None and not ranked else None
    relation: Relation = filtered.relation
    if first is not None:
        relation, qualify = first, None
    elif qualify is None and ranked and of_stream(ranked, filtered):
        relation, columns_over = bind_over(ranked, filtered, context)
        over |= columns_over
    elif ranked or qualify is not None:
        over |= functions.read([*ranked, *terms(None if qualify is None else qualify.this)])
        if not over:
            raise context.text.error(
                qualify, "QUALIFY has no function with OVER", hint="a plain condition belongs into WHERE"
            )
        relation = functions.joined(relation)
        streams = streams and only_grows(relation)
    below = relation
    while isinstance(below, Where):
        below = below.source
    streams = streams and not holds_newest(below)
    values = Values(context, filtered.source.scope, bind_where)
    over |= values.read(select.expressions)
    relation = values.joined(relation)
    arrays = Scalars(context.text, filtered.source.scope, where="in an array function")
    relation, elements = bind_generators(select.expressions, relation, arrays, context)
    scalars = Scalars(context.text, filtered.source.scope, where="in SELECT", over=over)
    found: list[Item] = []
    for node in select.expressions:
        if is_star(node):
            found += starred(node, filtered.source.scope, context)
        else:
            found.append(item_of(node, elements.get(id(bare(node))) or scalars.bind(bare(node))))
    no_outer(found, context)
    named = [Visible("", each.name, each.expression) for each in found if isinstance(each.node, exp.Alias)]
    inside = Scalars(
        context.text, filtered.source.scope.joined(unseen(named, filtered.source.scope)), where="in QUALIFY", over=over
    )
    for node in terms(qualify.this if qualify is not None else None):
        relation = context.noted(Where(relation, inside.condition(node)), node)
    columns = named_items(found, context)
    ordering = Scalars(context.text, filtered.source.scope, where="in ORDER BY")
    return Bound(finished(select, relation, columns, ordering, None, context), streams)


_POLICIES = [each for each in get_args(Policy) if each not in ("append", "shed")]


@dataclass(frozen=True)
class ViewQueue:
    """The queue of a view."""

    policy: Policy
    budget: QueueBudget
    interval_us: int
    key_weight: str | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ViewQueue | None:
        """Return the queue with the options that :class:`~.statements.Create` has of it; None if there are none."""
        if not options:
            return None
        policy = next((each for each in _POLICIES if each == options.get("queue")), None)
        if policy is None:
            raise OptionError(
                f"queue = {options['queue']!r}" if "queue" in options else f"{next(iter(options))} without a queue",
                expected="queue = " + ", ".join(f"'{each}'" for each in _POLICIES),
            )
        interval = options.get("access_interval")
        return cls(
            policy,
            QueueBudget.parse(options.get("budget", AUTO)),
            0 if interval is None else duration_argument("access_interval", interval),
            options.get("key_weight"),
        )

    @classmethod
    def put(cls, query: Query, name: str, options: Mapping[str, str], time_zone: str = UTC) -> Query:
        """Return a view's query with its queue: before what costs time, and behind what drops rows at no cost.

        Raise QueryRefusedError unless the query is a list of columns over the newest rows of one stream.
        """
        queue = cls.of(options)
        if queue is None:
            return query
        conditions: list[Expression] = []
        columns = {each.name: Field(each.name, each.type) for each in query.schema}
        node = query.plan
        while isinstance(node, Project | Where):
            if isinstance(node, Where):
                conditions = [*conjuncts(node.condition), *conditions]
            else:
                below = dict(node.columns)
                columns = {column: substituted(each, below) for column, each in columns.items()}
                conditions = [substituted(each, below) for each in conditions]
            node = node.source
        origin = node.origin if isinstance(node, WindowOver) and isinstance(node.window, Latest) else None
        if not isinstance(node, WindowOver) or not isinstance(origin, Stream) or node.stream is not origin:
            raise QueryRefusedError(
                f"the queue of '{name}' is over the operator '{NODES[type(node).__name__]}'",
                expected="SELECT columns FROM LATEST(stream) WHERE …: a queue holds the newest row of each key",
                hint="give this part a view of its own with the queue, and read its table by another source",
            )
        absent = [key for key in origin.key if not any(_is(each, key) for each in columns.values())]
        if absent:
            raise QueryRefusedError(
                f"'{name}' has a queue, and its columns lack the key {', '.join(absent)}",
                expected=f"{', '.join(origin.key)} among the columns of SELECT",
            )
        # An earlier condition may guard a later one.
        costly = next((at for at, each in enumerate(conditions) if _calls_python(each)), len(conditions))
        below, above = all_of(conditions[:costly]), all_of(conditions[costly:])
        source: Relation = node if below is None else Where(node, below)
        weight = None if queue.key_weight is None else _key_weight(queue.key_weight, node.schema, time_zone)
        made = (*columns.items(),)
        plan = QueueProject(source, made, origin.key, queue.policy, name, queue.interval_us, above, weight)
        return replace(query, plan=plan)


def _key_weight(text: str, schema: pa.Schema, time_zone: str) -> Expression:
    weight = folded(bind_value(OptionText(text, "key_weight"), schema, time_zone))
    if not is_number(weight.type):
        raise OptionError(f"key_weight={text!r} is of {weight.type}", expected="a number by a row's columns")
    return weight


def _is(expression: Expression, column: str) -> bool:
    return isinstance(expression, Field) and expression.name == column


def _calls_python(expression: Expression) -> bool:
    return any(isinstance(each, Call) and is_python(each) for each in walk_parts(expression))
