"""The items of FROM: streams with windows, stored relations, views, subqueries, table functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from ..expressions.nodes import Expression, Field
from ..relations.nodes import (
    Changes,
    Hop,
    Latest,
    Now,
    Range,
    Relation,
    Rows,
    Sample,
    Stream,
    StreamNode,
    Unbounded,
    Where,
    Window,
    Windowed,
)
from .context import Bound, Context
from .literals import count, length_us
from .places import near
from .scalars import Scalars
from .scope import Scope, Visible
from .syntax import StreamWindow, TableFunction

__all__ = ["Source", "bind_source", "holds_newest", "newest", "visible"]

_MOST_WINDOWS = 10_000


@dataclass(frozen=True)
class Source:
    """One item of FROM. The newest row of each update key is a relation, however it is spelled."""

    relation: Relation
    alias: str
    streams: bool  # A stream with a window, so a query without aggregates is an ISTREAM by default.
    bare: Stream | None = None  # The stream, if it has neither window nor sample.


def visible(source: Source) -> list[Visible]:
    """Return the source's columns for a scope."""
    return [Visible(source.alias, each.name, Field(each.name, each.type)) for each in source.relation.schema]


def bind_source(node: exp.Expr, context: Context, *, hop_columns: bool) -> Source:
    """Return an item of FROM. ``hop_columns``: the query reads window_start, window_end or ``*``."""
    alias = node.alias
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
        hint = near(node.name, known, all_of="there are") or "register a stream first"
        raise context.text.error(node.this, f"there is no stream, relation or view '{node.name}'", hint=hint)
    return found


def _named(node: exp.Expr, stream: Stream, context: Context, alias: str) -> Source:
    window, sample = node.args.get("stream_window"), node.args.get("sample")
    if stream.static:
        if sample is not None:
            raise context.text.error(sample, f"'{stream.name}' is a stored relation; a sample is of a stream")
        if window is not None and not (window.args.get("unbounded") and not window.args.get("where")):
            raise context.text.error(
                window, f"'{stream.name}' is a stored relation, which has no window", hint="leave the window out"
            )
        relation = context.noted(Windowed(stream, Unbounded()), node)
        return Source(relation, alias, streams=False)
    source = _sampled(stream, sample, context)
    if window is None:
        bare = stream if sample is None else None
        return Source(context.noted(Windowed(source, Unbounded()), node), alias, streams=True, bare=bare)
    relation = _windowed(source, stream, window, context, alias)
    return Source(relation, alias, streams=not holds_newest(relation))


def _derived(node: exp.Expr, bound: Bound, context: Context, alias: str, what: str) -> Source:
    """Return a subquery, a view or a CTE as a relation, or as a stream if a window or a sample follows."""
    window, sample = node.args.get("stream_window"), node.args.get("sample")
    inner = bound.node
    if window is None and sample is None:
        if isinstance(inner, Changes):
            return Source(context.noted(Windowed(inner, Unbounded()), node), alias, streams=True)
        return Source(inner, alias, streams=bound.streams)
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
        return Source(context.noted(Windowed(source, Unbounded()), node), alias, streams=True)
    return Source(_windowed(source, None, window, context, alias), alias, streams=True)


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
        scope = Scope(Visible(alias, each.name, Field(each.name, each.type)) for each in source.schema)
        where = Scalars(context.text, scope, where="in a window").condition(window.args["where"])
    made: Window
    if window.args.get("rows") is not None:
        made = newest(stream, count(window.args["rows"], context.text, "ROWS"), partition, where)
        return context.noted(Windowed(source, made), window)
    if window.args.get("now"):
        made = Now()
    elif window.args.get("unbounded"):
        made = Unbounded()
    else:
        slide = window.args.get("slide")
        length = length_us(window.args["range"], context.text, "RANGE")
        made = Range(length, length_us(slide, context.text, "SLIDE") if slide is not None else None)
    # Each of these takes a row by its own time: partitions and the predicate commute with it.
    relation: Relation = context.noted(Windowed(source, made), window)
    return relation if where is None else Where(relation, where)


def newest(stream: Stream | None, n: int, partition: tuple[str, ...], where: Expression | None) -> Rows | Latest:
    """Return the window of the newest n rows: ``Latest`` if these are the newest of each update key."""
    if stream is not None and stream.updates and n == 1 and where is None and set(partition) == set(stream.key):
        return Latest()
    return Rows(n, partition, where)


def holds_newest(relation: Relation) -> bool:
    """Return whether the relation is the newest row of each key of its stream."""
    if not isinstance(relation, Windowed):
        return False
    window, stream = relation.window, relation.stream
    if isinstance(window, Rows) and window.n == 1 and window.where is None and isinstance(stream, Stream):
        return bool(stream.key) and set(window.partition) == set(stream.key)
    return isinstance(window, Latest)


# --- table functions ------------------------------------------------------------------------------------------------


def _function(node: exp.Expr, function: TableFunction, context: Context, alias: str, *, hop_columns: bool) -> Source:
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
    inner = function.this
    stream: Stream | None = None
    if isinstance(inner, exp.Subquery):
        source = _derived(inner, context.query(inner.this, context, None), context, "", "this subquery").relation
        plain = source.stream if isinstance(source, Windowed) else None
        if plain is None:
            raise context.text.error(inner, f"{kind} needs a stream", hint="make it one: ISTREAM(SELECT …)")
    else:
        stream = _stream(inner, context) if context.catalog.view(inner.name) is None else None
        if stream is None or stream.static:
            raise context.text.error(
                inner, f"{kind} needs a stream, and '{inner.name}' is a relation", hint="name the stream below it"
            )
        plain = _sampled(stream, inner.args.get("sample"), context)
    alias = alias or (inner.name if isinstance(inner, exp.Table) else "")
    if kind == "LATEST":
        return Source(_latest(function, stream, plain, context), alias, streams=False)
    return Source(_hop(function, stream, plain, context, hop_columns=hop_columns), alias, streams=True)


def _latest(function: TableFunction, stream: Stream | None, plain: StreamNode, context: Context) -> Relation:
    if function.expressions:
        raise context.text.error(function.expressions[0], "LATEST takes a stream alone", hint="LATEST(s)")
    if stream is None or not stream.key:
        what = f"'{stream.name}' has no update key" if stream is not None else "a subquery has no update key"
        raise context.text.error(function, f"LATEST needs an update key, and {what}", hint="[PARTITION BY k ROWS 1]")
    return context.noted(Windowed(plain, newest(stream, 1, stream.key, None)), function)


def _hop(
    function: TableFunction, stream: Stream | None, plain: StreamNode, context: Context, *, hop_columns: bool
) -> Relation:
    kind = function.args["kind"]
    arguments = function.expressions
    count = 2 if kind == "TUMBLE" else 3
    usage = "TUMBLE(s, t, INTERVAL '1' HOUR)" if count == 2 else "HOP(s, t, INTERVAL '1' MINUTE, INTERVAL '10' MINUTES)"
    if len(arguments) != count:
        raise context.text.error(function, f"{kind} got {len(arguments) + 1} arguments", expected=usage)
    time = arguments[0]
    if stream is None:
        raise context.text.error(function.this, f"{kind} needs a stream of the catalogue", hint="s [RANGE … SLIDE …]")
    if not isinstance(time, exp.Column) or time.name.lower() != stream.event_time.lower():
        raise context.text.error(
            time,
            f"{kind} goes by the event time of '{stream.name}'",
            expected=f"{kind}({stream.name}, {stream.event_time}, …)",
        )
    for each in arguments[1:]:
        if not isinstance(each, exp.Interval):
            raise context.text.error(each, "this is not a length of time", expected=usage)
    lengths = [length_us(each, context.text, kind) for each in arguments[1:]]
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
            expected="slide, then size: " + usage,
        )
    if hop_columns:
        taken = {each.lower() for each in stream.schema.names} & {"window_start", "window_end"}
        if taken:
            name = min(taken)
            raise context.text.error(
                function, f"'{stream.name}' has a column '{name}' itself", hint="rename it in the stream"
            )
    return context.noted(Windowed(plain, Hop(size, slide, hop_columns)), function)
