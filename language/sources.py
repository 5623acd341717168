"""The items of FROM: streams with windows, stored relations, views, subqueries, table functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from ..expressions.literals import count, length_us
from ..expressions.nodes import Call, Expression, Field, all_of, conjuncts, fields
from ..expressions.places import near
from ..expressions.scalars import Visible, visible_columns
from ..expressions.types import call
from ..operators.relations.plan.nodes import (
    AsOf,
    Changes,
    Hop,
    Join,
    JoinKind,
    Latest,
    Now,
    Project,
    Relation,
    RowWindow,
    Sample,
    Session,
    Stream,
    StreamNode,
    TimeRange,
    UnboundedWindow,
    Where,
    Window,
    WindowOver,
)
from ..operators.relations.plan.normalize import newest
from .arrays import array_function, bind_elements, constant_elements
from .grammar import ArrayFunction, StreamWindow, TableFunction
from .scalars import Scalars
from .scope import Bound, Context, Scope, is_outer
from .time_windows import in_windows, in_windows_by, rows_that_stay, time_of

_MOST_WINDOWS = 10_000


@dataclass(frozen=True)
class FromItem:
    """One item of FROM. The newest row of each update key is a relation, however it is spelled."""

    relation: Relation
    alias: str
    streams: bool  # A stream with a window, so a query without aggregates is an ISTREAM by default.
    bare: Stream | None = None  # The stream, if it has neither window nor sample.


def bind_source(node: exp.Expr, context: Context, *, hop_columns: bool) -> FromItem:
    """Return an item of FROM. ``hop_columns``: the query reads window_start, window_end or ``*``."""
    alias = node.alias
    if isinstance(node.this, ArrayFunction):
        return FromItem(constant_elements(node, node.this, context), alias, streams=False)
    if isinstance(node.this, TableFunction):
        return _function(node, node.this, context, alias, hop_columns=hop_columns)
    if isinstance(node, exp.Subquery):
        bound = context.query(node.this, context, None)
        return _derived(node, bound, context, alias, "this subquery")
    name = node.name
    cte = next((each for key, each in context.ctes.items() if key.lower() == name.lower()), None)
    if cte is not None:
        return _derived(node, cte, context, alias or name, f"'{name}'")
    view = context.catalog.view(name)
    if view is not None:
        if view[0] in context.views:
            chain = " -> ".join([*context.views, view[0]])
            raise context.text.error(node.this, f"the view '{view[0]}' reads itself: {chain}")
        return _derived(node, context.view(view[0], view[1], context), context, alias or name, f"the view '{name}'")
    return _named(node, _stream(node, context), context, alias or name)


def _stream(node: exp.Expr, context: Context) -> Stream:
    found = context.catalog.stream(node.name)
    if found is None:
        known = [*context.catalog.names(), *context.ctes]
        hint = near(node.name, known, all_of="there are") or "register a stream first, or wait for the start of its job"
        raise context.text.error(node.this, f"there is no stream, relation or view '{node.name}'", hint=hint)
    return found


def _named(node: exp.Expr, stream: Stream, context: Context, alias: str) -> FromItem:
    window, sample = node.args.get("stream_window"), node.args.get("sample")
    if stream.static:
        if sample is not None:
            raise context.text.error(sample, f"'{stream.name}' is a stored relation; a sample is of a stream")
        if window is not None and (
            not window.args.get("unbounded") or any(window.args.get(each) for each in ("where", "slide"))
        ):
            raise context.text.error(
                window, f"'{stream.name}' is a stored relation, which has no window", hint="leave the window out"
            )
        relation = context.noted(WindowOver(stream, UnboundedWindow()), node)
        return FromItem(relation, alias, streams=False)
    source = _sampled(stream, sample, context)
    if window is None:
        bare = stream if sample is None else None
        return FromItem(context.noted(WindowOver(source, UnboundedWindow()), node), alias, streams=True, bare=bare)
    relation = _windowed(source, stream, window, context, alias)
    return FromItem(relation, alias, streams=not holds_newest(relation))


def _derived(node: exp.Expr, bound: Bound, context: Context, alias: str, what: str) -> FromItem:
    """Return a subquery, a view or a CTE as a relation, or as a stream if a window or a sample follows."""
    window, sample = node.args.get("stream_window"), node.args.get("sample")
    inner = bound.node
    if window is None and sample is None:
        if isinstance(inner, Changes):
            return FromItem(context.noted(WindowOver(inner, UnboundedWindow()), node), alias, streams=True)
        return FromItem(inner, alias, streams=bound.streams)
    if not isinstance(inner, Changes):
        if not bound.streams:
            kind = "a window" if window is not None else "a sample"
            raise context.text.error(
                window if window is not None else sample,
                f"{what} is a relation, and {kind} is of a stream",
                hint="make it a stream: ISTREAM(SELECT …)",
            )
        inner = Changes(inner, "istream")
    source = _sampled(inner, sample, context)
    if window is None:
        return FromItem(context.noted(WindowOver(source, UnboundedWindow()), node), alias, streams=True)
    return FromItem(_windowed(source, None, window, context, alias), alias, streams=True)


def _sampled(stream: StreamNode, sample: exp.Expr | None, context: Context) -> StreamNode:
    if sample is None:
        return stream
    literal = sample.args["percent"]
    percent = float(literal.name)
    if not 0 < percent <= 100:
        raise context.text.error(
            literal, f"{literal.name} % is not a share of the rows", expected="more than 0, at most 100"
        )
    seed = sample.args.get("seed")
    number = 0 if seed is None else count(seed, context.text, "REPEATABLE", least=0)
    if percent == 100:
        return stream
    return context.noted(Sample(stream, percent, number), sample)


def _columns(nodes: Sequence[exp.Expr], schema: Any, context: Context, alias: str) -> tuple[str, ...]:
    names = {each.lower(): each for each in schema.names}
    found: list[str] = []
    for each in nodes:
        table = each.text("table")
        if table and table.lower() != alias.lower():
            raise context.text.error(each, f"PARTITION BY is of the columns of '{alias}' alone")
        name = names.get(each.name.lower()) if isinstance(each, exp.Column) else None
        if name is None:
            hint = near(each.name, schema.names, all_of="its columns are")
            raise context.text.error(each, f"the stream has no column '{each.name}'", hint=hint)
        if name not in found:
            found.append(name)
    return tuple(found)


def _windowed(
    source: StreamNode, stream: Stream | None, window: StreamWindow, context: Context, alias: str
) -> Relation:
    partition = _columns(window.args.get("partition") or [], source.schema, context, alias)
    where: Expression | None = None
    if window.args.get("where") is not None:
        scope = Scope(visible_columns(source.schema, alias))
        where = Scalars(context.text, scope, where="in a window").condition(window.args["where"])
    made: Window
    if window.args.get("rows") is not None:
        slide = 1 if window.args.get("slide") is None else count(window.args["slide"], context.text, "SLIDE")
        made = newest(stream, count(window.args["rows"], context.text, "ROWS"), partition, where)
        if slide > 1:
            made = RowWindow(count(window.args["rows"], context.text, "ROWS"), partition, where, slide)
        return context.noted(WindowOver(source, made), window)
    if window.args.get("now"):
        made = Now()
    elif window.args.get("unbounded") and window.args.get("slide") is None:
        made = UnboundedWindow()
    else:
        slide, length = window.args.get("slide"), window.args.get("range")
        made = TimeRange(
            None if length is None else length_us(length, context.text, "RANGE"),
            None if slide is None else length_us(slide, context.text, "SLIDE"),
        )
    # Each of these takes a row by its own time: partitions and the predicate commute with it.
    relation: Relation = context.noted(WindowOver(source, made), window)
    return relation if where is None else Where(relation, where)


def holds_newest(relation: Relation) -> bool:
    """Return whether the relation is the newest row of each key of its stream."""
    if not isinstance(relation, WindowOver):
        return False
    window, stream = relation.window, relation.stream
    if isinstance(window, RowWindow) and window == RowWindow(1, window.partition) and isinstance(stream, Stream):
        return bool(stream.key) and set(window.partition) == set(stream.key)
    return isinstance(window, Latest)


# --- table functions ------------------------------------------------------------------------------------------------


def _function(node: exp.Expr, function: TableFunction, context: Context, alias: str, *, hop_columns: bool) -> FromItem:
    kind = function.args["kind"]
    for clause, what in (("stream_window", "window"), ("sample", "sample")):
        if node.args.get(clause) is not None:
            hint = (
                "sample its stream: LATEST(s TABLESAMPLE (1 PERCENT))"
                if clause == "sample"
                else "leave one of them out"
            )
            raise context.text.error(
                node.args[clause], f"{kind}(…) is a relation, and a {what} is of a stream", hint=hint
            )
    if kind == "LATEST":
        return FromItem(_latest(function, context), alias or function.this.name, streams=False)
    item = bind_source(function.this, context, hop_columns=False)
    lengths = _lengths(function, item, context)
    if kind == "SESSION":
        return FromItem(_session(function, item, lengths[0], context), alias or item.alias, streams=True)
    return FromItem(_hop(function, item, lengths, context, hop_columns=hop_columns), alias or item.alias, streams=True)


def _latest(function: TableFunction, context: Context) -> Relation:
    inner = function.this
    if function.expressions:
        raise context.text.error(function.expressions[0], "LATEST takes a stream alone", hint="LATEST(s)")
    if isinstance(inner, exp.Subquery):
        raise context.text.error(inner, "LATEST needs a stream with an update key", hint="[PARTITION BY k ROWS 1]")
    stream = _stream(inner, context) if context.catalog.view(inner.name) is None else None
    if stream is None or stream.static:
        raise context.text.error(
            inner, f"LATEST needs a stream, and '{inner.name}' is a relation", hint="name the stream below it"
        )
    if not stream.key:
        problem = f"LATEST needs an update key, and '{stream.name}' has no update key"
        raise context.text.error(function, problem, hint="[PARTITION BY k ROWS 1]")
    plain = _sampled(stream, inner.args.get("sample"), context)
    return context.noted(WindowOver(plain, newest(stream, 1, stream.key, None)), function)


_USAGES = {
    "TUMBLE": "TUMBLE(s, t, INTERVAL '1' HOUR)",
    "HOP": "HOP(s, t, INTERVAL '1' MINUTE, INTERVAL '10' MINUTES)",
    "SESSION": "SESSION(s PARTITION BY k, t, INTERVAL '5' MINUTES)",
}


def _lengths(function: TableFunction, item: FromItem, context: Context) -> list[int]:
    """Return the lengths of time of a window's function, whose rows are those of a stream."""
    kind = function.args["kind"]
    arguments = function.expressions
    usage = _USAGES[kind]
    if len(arguments) != (3 if kind == "HOP" else 2):
        raise context.text.error(function, f"{kind} got {len(arguments) + 1} arguments", expected=usage)
    time, name = arguments[0], item.alias or "this subquery"
    event_time = time_of(item.relation)
    if event_time is None and kind == "SESSION":
        raise context.text.error(
            function.this,
            f"{kind} needs a stream, and {name} is not rows of one with their event time",
            expected="a stream, or a subquery or view of its rows with t: (SELECT k, t FROM s WHERE x > 1)",
        )
    if event_time is not None and (not isinstance(time, exp.Column) or time.name.lower() != event_time.lower()):
        raise context.text.error(
            time, f"{kind} goes by the event time of {name}", expected=f"{kind}({name}, {event_time}, …)"
        )
    for each in arguments[1:]:
        if not isinstance(each, exp.Interval):
            raise context.text.error(each, "this is not a length of time", expected=usage)
    return [length_us(each, context.text, kind) for each in arguments[1:]]


def _session(function: TableFunction, item: FromItem, gap_us: int, context: Context) -> Relation:
    rows = item.relation
    stream: StreamNode = rows.stream if isinstance(rows, WindowOver) else Changes(rows, "istream")
    by, origin = function.args["partition"], rows.origin if isinstance(rows, WindowOver) else None
    key = origin.key if isinstance(origin, Stream) else ()
    partition = _columns(by, stream.schema, context, item.alias) if by else key
    if not partition:
        what = f"'{item.alias}'" if item.alias else "a subquery"
        raise context.text.error(
            function, f"SESSION needs a partition, and {what} has no update key", expected=_USAGES["SESSION"]
        )
    _check_bounds(function, item, context)
    return context.noted(WindowOver(stream, Session(gap_us, partition)), function)


def _hop(
    function: TableFunction, item: FromItem, lengths: list[int], context: Context, *, hop_columns: bool
) -> Relation:
    kind, arguments = function.args["kind"], function.expressions
    slide, size = (lengths[0], lengths[0]) if kind == "TUMBLE" else (lengths[0], lengths[1])
    if size > slide * _MOST_WINDOWS:
        raise context.text.error(
            arguments[1],
            f"each row would be in {-(-size // slide)} windows",
            expected=f"at most {_MOST_WINDOWS}",
            hint="give a longer slide",
        )
    if slide > size:
        raise context.text.error(
            arguments[1],
            "the slide is longer than the window, so rows would be lost",
            expected="slide, then size: " + _USAGES[kind],
        )
    if hop_columns:
        _check_bounds(function, item, context)
    if not context.phase and time_of(item.relation) is not None:
        return context.noted(in_windows(item.relation, Hop(size, slide, hop_columns)), function)
    (name,) = _columns(arguments[:1], item.relation.schema, context, arguments[0].text("table"))
    rows = rows_that_stay(item.relation, function, context, streams=item.streams)
    return in_windows_by(rows, name, Hop(size, slide, hop_columns), function, context)


def _check_bounds(function: TableFunction, item: FromItem, context: Context) -> None:
    taken = {each.lower() for each in item.relation.schema.names} & {"window_start", "window_end"}
    if taken:
        name = item.alias or "this subquery"
        raise context.text.error(function, f"{name} has a column '{min(taken)}' itself", hint="rename it in the stream")


_HOW: dict[tuple[str, str], JoinKind] = {
    ("LEFT", ""): "left",
    ("RIGHT", ""): "right",
    ("FULL", ""): "full",
    ("LEFT", "SEMI"): "semi",
    ("LEFT", "ANTI"): "anti",
}


@dataclass(frozen=True)
class From:
    """The relation of FROM."""

    relation: Relation
    scope: Scope
    streams: bool  # A source is a stream.
    bare: Stream | None  # The stream, if it is the only source and has no window.
    # Conditions of inner joins that read the outer query's columns, with their places.
    outer: tuple[tuple[Expression, exp.Expr], ...] = ()


@dataclass(frozen=True)
class FilteredFrom:
    """FROM and WHERE of a SELECT."""

    source: From
    relation: Relation
    conditions: tuple[Expression, ...]  # Those of the relation's own WHERE.
    outer: tuple[tuple[Expression, exp.Expr], ...]  # Those that read the outer query's columns, with their places.
    joined: bool


def equalities(
    condition: Expression | None, left: set[str], right: set[str]
) -> tuple[list[tuple[Expression, Expression]], list[Expression]]:
    """Split a condition into pairs that must be equal, one of each side, and the rest."""
    pairs: list[tuple[Expression, Expression]] = []
    rest: list[Expression] = []
    for each in conjuncts(condition):
        if isinstance(each, Call) and each.function == "eq":
            one, other = each.arguments
            if fields(one) and fields(other) and one.type == other.type:
                if fields(one) <= left and fields(other) <= right:
                    pairs.append((one, other))
                    continue
                if fields(one) <= right and fields(other) <= left:
                    pairs.append((other, one))
                    continue
        rest.append(each)
    return pairs, rest


def made_distinct(relation: Relation, taken: set[str], alias: str, context: Context) -> tuple[Relation, dict[str, str]]:
    """Rename the columns whose names are taken; return the relation and the new names."""
    names: dict[str, str] = {}
    for each in relation.schema.names:
        name = each
        if name in taken:
            name = f"{alias}.{each}"
            if name in taken or name in relation.schema.names:
                name = context.fresh(name)
        names[each] = name
    if all(old == new for old, new in names.items()):
        return relation, names
    columns = tuple((names[each.name], Field(each.name, each.type)) for each in relation.schema)
    return Project(relation, columns), names


def bind_from(select: exp.Select, context: Context, around: Scope | None) -> From:
    """Return the sources of a SELECT, joined from left to right."""
    hop_columns = _reads_window(select)
    source = bind_source(select.args["from_"].this, context, hop_columns=hop_columns)
    relation, streams = source.relation, source.streams
    scope = Scope(visible_columns(source.relation.schema, source.alias), around)
    joins: list[exp.Join] = select.args.get("joins") or []
    aliases = {source.alias.lower()}
    clock = _event_time(source)
    commas = False
    outer: list[tuple[Expression, exp.Expr]] = []
    for join in joins:
        function = array_function(join)
        if function is not None:
            relation, scope = bind_elements(join, function, relation, scope, context)
            clock = None
            continue
        other = bind_source(join.this, context, hop_columns=hop_columns)
        if other.alias.lower() in aliases and other.alias:
            raise context.text.error(
                join.this,
                f"two sources are named '{other.alias}'",
                hint=f"give this one another name: AS {other.alias}2",
            )
        aliases.add(other.alias.lower())
        how = _HOW.get((join.text("side"), join.text("kind")), "inner")
        plain = not join.args.get("on") and not join.args.get("using")
        if commas and how in {"right", "full"}:
            raise context.text.error(
                join, "a comma before this join leaves its left side open", hint="write CROSS JOIN"
            )
        commas = commas or (plain and not join.text("kind"))
        if join.args.get("method"):
            relation, scope, clock = _as_of(join, relation, scope, other, clock, context)
            more: list[tuple[Expression, exp.Expr]] = []
        else:
            relation, scope, more = _joined(join, how, relation, scope, other, context)
            clock = None
        outer += more
        if outer and how != "inner" and (more or how in {"right", "full"}):
            raise context.text.error(
                outer[-1][1],
                f"a column of the query around is not supported in ON of {how.upper()} JOIN, nor before RIGHT and FULL",
                hint="write the condition into the subquery's WHERE, or join with the subquery in FROM",
            )
        # Rows of a relation that a join keeps, with or without a partner, make a relation: they may leave.
        kept = {"inner": streams or other.streams, "right": other.streams, "full": streams and other.streams}
        streams = kept.get(how, streams)
    return From(relation, scope, streams, source.bare if not joins else None, tuple(outer))


def _reads_window(select: exp.Select) -> bool:
    for item in select.expressions:
        inner = item.this if isinstance(item, exp.Alias) else item
        if isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)):
            return True
    return any(each.name.lower() in {"window_start", "window_end"} for each in select.find_all(exp.Column))


def _joined(
    join: exp.Join, how: JoinKind, left: Relation, scope: Scope, other: FromItem, context: Context
) -> tuple[Relation, Scope, list[tuple[Expression, exp.Expr]]]:
    right, names = made_distinct(other.relation, set(left.schema.names), other.alias or "right", context)
    columns = [
        replace(each, expression=Field(names[each.name], each.expression.type))
        for each in visible_columns(other.relation.schema, other.alias)
    ]
    both = scope.joined(columns)
    lefts, rights = set(left.schema.names), set(right.schema.names)
    if join.args.get("using"):
        return *_using(join, how, left, right, scope, columns, context), []
    condition: Expression | None = None
    if join.args.get("on") is not None:
        condition = Scalars(context.text, both.mapped(both.columns), where="in ON").condition(join.args["on"])
    every = conjuncts(condition)
    outer = [each for each in every if any(map(is_outer, fields(each)))]
    pairs, rest = equalities(all_of([each for each in every if each not in outer]), lefts, rights)
    if how in {"semi", "anti"} and condition is None:
        raise context.text.error(join, "this join needs a condition", hint="write ON")
    made = context.noted(Join(left, right, how, tuple(pairs), all_of(rest)), join)
    at: exp.Expr = join.args.get("on") or join
    return made, scope if how in {"semi", "anti"} else both, [(each, at) for each in outer]


def _event_time(item: FromItem) -> Field | None:
    """Return the time of the rows of a stream without a window."""
    name = time_of(item.relation)
    return None if name is None else Field(name, item.relation.schema.field(name).type)


_AS_OF = "ASOF JOIN r ON l.k = r.k AND l.t >= r.t"


def _as_of(
    join: exp.Join, left: Relation, scope: Scope, other: FromItem, clock: Field | None, context: Context
) -> tuple[Relation, Scope, Field | None]:
    """Bind an ASOF join with Snowflake's MATCH_CONDITION; ``clock`` has the time of left rows that never leave."""
    matching = join.args.get("match_condition")
    how: JoinKind = "left" if join.text("side") or matching is not None else "inner"
    made, both, outer = _joined(join, how, left, scope, other, context)
    assert isinstance(made, Join)
    at: exp.Expr = matching or join.args.get("on") or join
    lefts, rights = set(left.schema.names), set(made.right.schema.names)
    pairs = list(made.on)
    rest = list(conjuncts(made.condition))
    if matching is not None:
        columns = visible_columns(other.relation.schema, other.alias)
        names = dict(zip(other.relation.schema.names, made.right.schema.names, strict=True))
        columns = [replace(each, expression=Field(names[each.name], each.expression.type)) for each in columns]
        condition = Scalars(context.text, scope.joined(columns), where="in MATCH_CONDITION").condition(matching)
        rest += conjuncts(condition)
    elif join.args.get("using"):
        one, two = pairs.pop()
        rest.append(call("ge", [one, two]))
    by = _comparison(rest[0], lefts, rights) if len(rest) == 1 and not outer else None
    if by is None:
        raise context.text.error(
            at,
            "ASOF JOIN takes the nearest row by one comparison of a value of each side, beside equal values",
            expected=f"{_AS_OF}, or MATCH_CONDITION (l.t >= r.t) ON l.k = r.k",
        )
    made = replace(made, on=tuple(pairs), condition=None, as_of=by)
    if clock is None or other.bare is None:
        return context.noted(made, join), both, None
    names = dict(zip(made.right.schema.names, other.bare.schema.names, strict=True))
    keys = [names[each.name] for _, each in pairs if isinstance(each, Field)]
    by_time = by.left == clock and isinstance(by.right, Field) and names[by.right.name] == other.bare.event_time
    if not by_time or len(keys) < len(pairs) or by.function != "ge":
        return context.noted(made, join), both, None
    # A row's match never changes: it is the newest one of its key when the row comes.
    newest = WindowOver(other.bare, RowWindow(1, tuple(dict.fromkeys(keys))))
    right, _ = made_distinct(newest, lefts, other.alias or "right", context)
    # Of a step with many rows of a key, an ASOF join pairs each with one, and another join looks at all pairs.
    at_once = replace(made, left=in_windows(left, Now()), right=right)
    return context.noted(WindowOver(Changes(at_once, "istream"), UnboundedWindow()), join), both, clock


_FLIPPED = {"ge": "le", "gt": "lt", "le": "ge", "lt": "gt"}


def _comparison(condition: Expression, left: set[str], right: set[str]) -> AsOf | None:
    if not isinstance(condition, Call) or condition.function not in _FLIPPED:
        return None
    (one, other), function = condition.arguments, condition.function
    if fields(one) <= right and fields(other) <= left:
        one, other, function = other, one, _FLIPPED[function]
    if not (fields(one) and fields(other) and fields(one) <= left and fields(other) <= right):
        return None
    return AsOf(function, one, other)  # pyright: ignore[reportArgumentType]


def _using(
    join: exp.Join,
    how: JoinKind,
    left: Relation,
    right: Relation,
    scope: Scope,
    columns: list[Visible],
    context: Context,
) -> tuple[Relation, Scope]:
    pairs: list[tuple[Expression, Expression]] = []
    merged: list[Visible] = []
    other = Scope(columns)
    for each in join.args["using"]:
        one = scope.mapped(scope.columns).resolve("", each.name, each, context.text)
        two = other.resolve("", each.name, each, context.text)
        equal = call("eq", [one, two])
        assert isinstance(equal, Call)
        pairs.append((equal.arguments[0], equal.arguments[1]))
        value = two if how == "right" else call("coalesce", [one, two]) if how == "full" else one
        merged.append(Visible("", each.name, value))
    made = context.noted(Join(left, right, how, tuple(pairs)), join)
    if how in {"semi", "anti"}:
        return made, scope
    used = {each.name.lower() for each in merged}
    hidden = [
        replace(each, plain=False, starred=False) if each.name.lower() in used and each.plain else each
        for each in (*scope.columns, *columns)
    ]
    # A merged column of an earlier USING has no table: it is gone once it is merged again.
    kept = [each for each in hidden if each.plain or each.table]
    return made, scope.mapped([*merged, *kept])
