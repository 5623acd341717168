"""Rewrite plans so that parts of the same meaning are equal nodes, which an evaluation shares."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from ....expressions.nodes import Expression, Field, all_of, renamed
from . import nodes
from .aggregates import RANKS
from .expression_rules import conjuncts_in_order, ordered
from .identity import content, digest, identity, remembered

_Plan = TypeVar("_Plan", bound="nodes.Relation | nodes.Changes")
_Names = Mapping[str, str]
_LONG = 10_000
_MADE = re.compile(r"\b[xga]:[0-9a-f]{16}")


def shareable(plan: _Plan) -> _Plan:
    """Return a plan with the same columns and rows, of nodes that queries of the same meaning have too.

    Columns of a normalized plan are named by their meaning and occur once; conditions and the sides of joins are
    ordered. A last projection restores the query's names.
    """
    if isinstance(plan, nodes.Changes):
        return replace(plan, source=_named(plan.source))
    return _named(plan)  # type: ignore[return-value]


@remembered
def part_key(node: nodes.Node) -> str:
    """Return the identity of a plan's part in a shareable plan: the names and the order of its columns do not count."""
    return identity(
        _stream(node)[0] if isinstance(node, nodes.Stream | nodes.Sample | nodes.Changes) else _relation(node)[0]
    )


def in_words(text: str, plan: nodes.Node) -> str:
    """Replace the column names of a shareable plan in a text, such as an error, by their expressions."""
    meant: dict[str, str] = {}
    for node in nodes.walk(plan):
        columns = node.by if isinstance(node, nodes.GroupAggregates) else ()
        columns = node.columns if isinstance(node, nodes.Project | nodes.ConstantRow) else columns
        meanings = [(name, str(expression)) for name, expression in columns]
        if isinstance(node, nodes.GroupAggregates):
            meanings += [(aggregate.name, aggregate_text(aggregate)) for aggregate in node.aggregates]
        if isinstance(node, nodes.WindowFunctions):
            meanings += [(function.call.name, function_text(function)) for function in node.functions]
        for name, written in meanings:
            if name != written:
                meant.setdefault(name, written)

    words: dict[str, str] = {}

    def write(name: str) -> str:
        if name not in words:
            words[name] = _MADE.sub(lambda match: write(match[0]), meant[name]) if name in meant else name
            if len(words[name]) > _LONG:  # each level of views may double it
                words[name] = f"{words[name][:_LONG]} …"
        return words[name]

    return _MADE.sub(lambda match: write(match[0]), text)


def aggregate_text(aggregate: nodes.Aggregation) -> str:
    """Return an aggregate in readable form."""
    arguments = ", ".join(map(str, aggregate.arguments[: 1 if len(aggregate.order) > 1 else None])) or "*"
    where = f" where {aggregate.where}" if aggregate.where is not None else ""
    keys = (*aggregate.arguments[1:], *aggregate.arguments[:1])[-len(aggregate.order) :] if aggregate.order else ()
    order = ", ".join(f"{key}{' desc' if down else ''}" for key, (down, _) in zip(keys, aggregate.order, strict=True))
    order = f" order by {order}" if order else ""
    return f"{aggregate.function}({'distinct ' if aggregate.distinct else ''}{arguments}{order}){where}"


def function_text(function: nodes.WindowFunction) -> str:
    """Return a window function in readable form."""
    call, frame = function.call, function.frame
    if call.function in RANKS:
        return f"{call.function}({function.number or ''})"
    if call.function in {"lag", "lead"}:
        return f"{call.function} {function.number} of {', '.join(map(str, call.arguments))}"
    ends = [f"{'all' if end is None else f'{end:+d}' if end else 'its own'}" for end in (frame.start, frame.end)]
    return f"{aggregate_text(call)} over {frame.kind} {ends[0]} to {ends[1]}"


def _named(plan: nodes.Relation) -> nodes.Relation:
    made, names = _relation(plan)
    return _projected(made, [(field.name, Field(names[field.name], field.type)) for field in plan.schema])


def _projected(source: nodes.Relation, columns: Sequence[tuple[str, Expression]]) -> nodes.Relation:
    same = tuple((field.name, Field(field.name, field.type)) for field in source.schema)
    return source if tuple(columns) == same else nodes.Project(source, tuple(columns))


def _name(expression: Expression, kind: str) -> str:
    return expression.name if isinstance(expression, Field) else f"{kind}:{digest(expression)}"


def _stream(node: nodes.StreamNode) -> tuple[nodes.StreamNode, _Names]:
    if isinstance(node, nodes.Stream):
        return node, {name: name for name in node.schema.names}
    if isinstance(node, nodes.Sample):
        source, names = _stream(node.source)
        return replace(node, source=source), names
    made, names = _relation(node.source)
    return replace(node, source=made), names


@remembered
def _relation(node: nodes.Relation) -> tuple[nodes.Relation, _Names]:
    """Return the node with canonical names, and the new names."""
    if isinstance(node, nodes.WindowOver):
        return _windowed(node)
    if isinstance(node, nodes.ConstantRow):
        columns = {name: ordered(expression) for name, expression in node.columns}
        names = {name: f"x:{digest(expression)}" for name, expression in columns.items()}
        return nodes.ConstantRow(
            tuple(sorted((names[name], expression) for name, expression in columns.items()))
        ), names
    if isinstance(node, nodes.Join):
        return _join(node)
    if isinstance(node, nodes.SetOperation):
        left, right = _positions(node.left), _positions(node.right)
        if node.kind != "except" and identity(right) < identity(left):
            left, right = right, left
        names = {name: str(at) for at, name in enumerate(node.schema.names)}
        return nodes.SetOperation(left, right, node.kind, node.all), names
    if isinstance(node, nodes.Top):
        # Ties go by all columns in their order, which stays.
        source = _positions(node.source)
        names = {name: str(at) for at, name in enumerate(node.schema.names)}
        return nodes.Top(source, _orders(node.order, names), node.n, _partition(node.by, names)), names
    if isinstance(node, nodes.WindowFunctions):
        source = _positions(node.source)
        names = {name: str(at) for at, name in enumerate(node.source.schema.names)}
        functions: dict[str, nodes.WindowFunction] = {}
        for function in node.functions:
            call = _aggregation(function.call, names)
            bare = replace(function, call=call)
            names[function.call.name] = f"a:{digest(bare)}"
            functions[names[function.call.name]] = replace(bare, call=replace(call, name=names[function.call.name]))
        some = tuple(function for _, function in sorted(functions.items()))
        return nodes.WindowFunctions(source, _orders(node.order, names), _partition(node.by, names), some), names
    source, names = _relation(node.source)
    if isinstance(node, nodes.Where):
        condition = all_of(conjuncts_in_order(renamed(node.condition, names)))
        assert condition is not None
        return nodes.Where(source, condition), names
    if isinstance(node, nodes.Distinct):
        return nodes.Distinct(source), names
    if isinstance(node, nodes.Lifetime):
        times = (
            sorted({(ordered(renamed(time, names)), us) for time, us in some}, key=content)
            for some in (node.begins, node.ends)
        )
        return nodes.Lifetime(source, *map(tuple, times)), names
    if isinstance(node, nodes.Copies):
        made = _free("copy", source)
        return nodes.Copies(source, made), {**names, node.name: made}
    if isinstance(node, nodes.Explode):
        made = replace(node, source=source, array=ordered(renamed(node.array, names)), name=_free("element", source))
        added = {node.name: made.name}
        if node.position is not None:
            made = replace(made, position=_free("position", source))
            added[node.position] = _free("position", source)
        return made, {**names, **added}
    if isinstance(node, nodes.Project):
        return _project(node, source, names)
    return _aggregate(node, source, names)


def _orders(order: Sequence[nodes.Order], names: _Names) -> tuple[nodes.Order, ...]:
    return tuple(replace(key, expression=ordered(renamed(key.expression, names))) for key in order)


def _partition(by: Sequence[Expression], names: _Names) -> tuple[Expression, ...]:
    return tuple(sorted({ordered(renamed(expression, names)) for expression in by}, key=content))


def _aggregation(aggregate: nodes.Aggregation, names: _Names) -> nodes.Aggregation:
    """Return an aggregate over columns with new names, without its own."""
    where = all_of(conjuncts_in_order(renamed(aggregate.where, names))) if aggregate.where is not None else None
    arguments = tuple(ordered(renamed(argument, names)) for argument in aggregate.arguments)
    return replace(aggregate, name="", arguments=arguments, where=where)


@remembered
def _positions(node: nodes.Relation) -> nodes.Relation:
    made, names = _relation(node)
    return _projected(made, [(str(at), Field(names[field.name], field.type)) for at, field in enumerate(node.schema)])


def _windowed(node: nodes.WindowOver) -> tuple[nodes.Relation, _Names]:
    stream, names = _stream(node.stream)
    window = node.window
    if isinstance(window, nodes.RowWindow):
        where = all_of(conjuncts_in_order(renamed(window.where, names))) if window.where is not None else None
        window = replace(window, partition=tuple(sorted({names[column] for column in window.partition})), where=where)
    if isinstance(window, nodes.Session):
        window = nodes.Session(window.gap_us, tuple(sorted({names[column] for column in window.partition})))
    added = {name: name for name in node.schema.names if name not in names}
    return nodes.WindowOver(stream, window), {**names, **added}


def _project(node: nodes.Project, source: nodes.Relation, names: _Names) -> tuple[nodes.Relation, _Names]:
    if isinstance(node, nodes.QueueProject):
        columns = tuple((name, ordered(renamed(expression, names))) for name, expression in node.columns)
        where = None if node.where is None else ordered(renamed(node.where, names))
        weight = None if node.weight is None else ordered(renamed(node.weight, names))
        key = tuple(names[column] for column in node.key)
        changed = replace(node, source=source, columns=columns, key=key, where=where, weight=weight)
        return changed, {name: name for name in node.schema.names}
    made: dict[str, Expression] = {}
    new_names: dict[str, str] = {}
    for name, expression in node.columns:
        canonical = ordered(renamed(expression, names))
        new_names[name] = _name(canonical, "x")
        made[new_names[name]] = canonical
    if set(made) == set(source.schema.names) and all(isinstance(column, Field) for column in made.values()):
        return source, new_names
    return nodes.Project(source, tuple(sorted(made.items()))), new_names


def _free(name: str, source: nodes.Relation) -> str:
    while name in source.schema.names:
        name += "|"
    return name


def _aggregate(node: nodes.GroupAggregates, source: nodes.Relation, names: _Names) -> tuple[nodes.Relation, _Names]:
    by: dict[str, Expression] = {}
    new_names: dict[str, str] = {}
    for name, expression in node.by:
        canonical = ordered(renamed(expression, names))
        new_names[name] = _name(canonical, "g")
        by[new_names[name]] = canonical
    aggregates = {}
    for aggregate in node.aggregates:
        bare = _aggregation(aggregate, names)
        made_name = f"a:{digest(bare)}"
        while made_name in by:  # a group of what the same aggregate gives below
            made_name += "|"
        new_names[aggregate.name] = made_name
        aggregates[new_names[aggregate.name]] = replace(bare, name=new_names[aggregate.name])
    made = nodes.GroupAggregates(
        source, tuple(sorted(by.items())), tuple(aggregate for _, aggregate in sorted(aggregates.items()))
    )
    return made, new_names


def _join(node: nodes.Join) -> tuple[nodes.Relation, _Names]:
    left, left_names = _relation(node.left)
    right, right_names = _relation(node.right)
    how, swapped = node.how, False
    if node.as_of is not None:
        # As for the first rows of an order, ties go by all columns.
        right, right_names = _positions(node.right), {name: str(at) for at, name in enumerate(node.right.schema.names)}
    elif how == "right" or (how in {"inner", "full"} and identity(right) < identity(left)):
        left, right, left_names, right_names = right, left, right_names, left_names
        how, swapped = "left" if how == "right" else how, True
    taken = set(left.schema.names)
    other = {name: f"{name}|" if name in taken else name for name in right.schema.names}
    while len({*taken, *other.values()}) < len(taken) + len(other):
        other = {name: f"{new}|" if new in taken or name != new else new for name, new in other.items()}
    right = _projected(right, [(other[field.name], Field(field.name, field.type)) for field in right.schema])
    right_names = {name: other[new] for name, new in right_names.items()}
    names = {**left_names, **right_names}
    pairs = [(two, one) if swapped else (one, two) for one, two in node.on]
    on = [(ordered(renamed(one, names)), ordered(renamed(two, names))) for one, two in pairs]
    compared = on[:1] if how == "null_aware_anti" else []
    rest = sorted(set(on[len(compared) :]), key=content)
    condition = all_of(conjuncts_in_order(renamed(node.condition, names))) if node.condition is not None else None
    as_of = node.as_of
    if as_of is not None:
        as_of = nodes.AsOf(as_of.function, ordered(renamed(as_of.left, names)), ordered(renamed(as_of.right, names)))
    made = nodes.Join(left, right, how, (*compared, *rest), condition, as_of)
    return made, left_names if how in {"semi", "anti", "null_aware_anti"} else names
