"""Divide a plan between the two stages, and route its rows to their slots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from ..deltas.numbers import is_hashable
from ..expressions.nodes import Call, Constant, Expression, Field
from ..relations.keys import key_of
from ..relations.nodes import (
    Aggregate,
    Changes,
    Copies,
    Join,
    Latest,
    Node,
    Project,
    Rows,
    Sample,
    SetOperation,
    Stream,
    Top,
    Where,
    Windowed,
    walk,
)
from .placement import Fragment, Placement, Route
from .tracking import Cut, all_fields, loses_rows, pairs_of, tracked

__all__ = ["placed"]

_Way = Mapping[Node, tuple[Expression, ...]]
"""The expressions by which the rows of each cut go to slots; ``()`` if the rows of all cuts are gathered."""


def placed(plan: Node) -> Placement:
    """Divide a shareable plan between the two stages, so that many slots compute as much as possible.

    The first stage evaluates the largest parts that need rows together by one set of values, such as a group's column
    or a join's. The second stage evaluates the rest by another set. One of its slots gathers the parts that would need
    a third set or all rows.

    Rows get their sequence before they go to slots, since the order of equal times and samples depend on it. Gathered
    parts run in their slot alone: there, a count without rows is 0.
    """
    key = None if isinstance(plan, Changes) else key_of(plan)
    wanted = _hashable(each for each in all_fields(plan) if key is not None and each.name in key)
    if _mixed(plan):
        return _in_second(plan, wanted, keyed=bool(key))
    at_once = _combined(plan, wanted, _is_stream)
    if at_once is not None:
        return _in_first(plan, at_once, together=True)
    apart = _spread(plan, _is_stream)
    if apart is not None:
        if wanted and any(apart.values()):
            return Placement((Fragment(plan, _routes(apart), wanted),), plan)
        return _in_first(plan, apart, together=not key or not any(apart.values()))
    return _in_second(plan, wanted, keyed=bool(key))


def _hashable(columns: Iterable[Field]) -> tuple[Expression, ...]:
    return tuple(each for each in columns if is_hashable(each.type))


def _in_first(plan: Node, way: _Way, *, together: bool) -> Placement:
    return Placement((Fragment(plan, _routes(way), None),), None, together)


def _in_second(plan: Node, wanted: Sequence[Expression], *, keyed: bool) -> Placement:
    parts: dict[Node, bool] = {}
    for part, every_change in _parts(plan, every_change=False):
        parts[part] = every_change or parts.get(part, False)
    ways = {part: _spread(part, _is_stream) or {} for part in parts}
    cut: Cut = parts.__contains__
    together = True
    way = _combined(plan, wanted, cut)
    if way is None:
        way = _spread(plan, cut)
        together = not keyed or way is None
    if way is None:
        streams = {stream: by for each in ways.values() for stream, by in each.items()}
        if not _mixed(plan) and not any(by for each in ways.values() for by in each.values()):
            return _in_first(plan, streams, together=True)
        way = dict.fromkeys(parts, ())
    fragments = [Fragment(part, _routes(ways[part]), way[part], every_change) for part, every_change in parts.items()]
    return Placement(tuple(fragments), plan, together)


def _parts(node: Node, *, every_change: bool) -> Iterator[tuple[Node, bool]]:
    """Yield the largest relations that the first stage can evaluate; True marks those below a stream of changes."""
    alone = not isinstance(node, Stream | Sample | Changes) and not _mixed(node)
    if alone and _spread(node, _is_stream) is not None:
        yield node, every_change
        return
    for each in node.inputs:
        yield from _parts(each, every_change=every_change or isinstance(node, Changes))


def _mixed(node: Node) -> bool:
    """Return whether newest rows of a stream meet a stored relation, which is left to the second stage.

    So all queries share the first stage's newest rows, and these survive a new version of the relation.
    """
    nodes = list(walk(node))
    newest = any(isinstance(each, Windowed) and isinstance(each.window, Latest | Rows) for each in nodes)
    return newest and any(isinstance(each, Stream) and each.static for each in nodes)


def _routes(way: _Way) -> tuple[Route, ...]:
    found = {each.name: by for each, by in way.items() if isinstance(each, Stream)}
    return tuple(Route(name, found[name]) for name in sorted(found))


def _is_stream(node: Node) -> bool:
    return isinstance(node, Stream)


def _spread(node: Node, cut: Cut) -> _Way | None:
    """Return one way to compute a node in slots, wherever its rows end up."""
    if cut(node):
        return {node: _all_columns(node)}
    match node:
        case Where(source) | Project(source):
            return _spread(source, cut)
        case Sample(source):
            return None if isinstance(source, Changes) else _spread(source, cut)
        case Windowed(stream, Rows(_, (), _)):
            # The first stage gathers only streams, the second relations.
            origin = node.origin
            return {origin: ()} if cut(origin) and isinstance(stream, Stream | Sample) else None
        case Windowed(stream, window) if not isinstance(window, Rows | Latest):
            return _spread(stream, cut)
        case Changes(source, "rstream", every):
            return None if every is None else _spread(source, cut)
        case Changes(source) if not loses_rows(source):
            # No row leaves as an equal one comes, so they need not be together.
            return _spread(source, cut)
        case SetOperation(left, right, "union", True):
            return _side_by_side(_spread(left, cut), _spread(right, cut)) or _combined(node, all_fields(node), cut)
        case _:
            return _combined(node, _candidates(node), cut)


def _side_by_side(one: _Way | None, other: _Way | None) -> _Way | None:
    if one is None or other is None or any(one[each] != other[each] for each in one.keys() & other.keys()):
        return None
    both = {**one, **other}
    return both if all(both.values()) or not any(both.values()) else None


def _candidates(node: Node) -> Iterable[Expression]:
    """Return the expressions that are equal in rows which a node needs together."""
    match node:
        case Aggregate(_, by, _):
            return [Field(name, each.type) for name, each in by]
        case Top(_, _, _, by):
            return by
        case Copies(source):
            return all_fields(source)
        case Windowed(stream, Rows(_, partition, _)):
            return [each for each in all_fields(stream) if each.name in partition]
        case Windowed():
            origin = node.origin
            return [each for each in all_fields(node) if isinstance(origin, Stream) and each.name in origin.key]
        case Join(_, _, how):
            if how == "full":
                return [Call("coalesce", (one, other), one.type) for one, other in pairs_of(node)]
            return [other if how == "right" else one for one, other in pairs_of(node)]
        case _:
            return all_fields(node)


def _combined(node: Node, candidates: Iterable[Expression], cut: Cut) -> _Way | None:
    """Return the way by all those expressions that can be tracked to every cut."""
    found: list[dict[Node, Expression]] = []
    for each in candidates:
        tracks = tracked(node, each, cut)
        if tracks is None:
            continue
        way = dict(tracks)
        # A stream or part has one route only.
        if all(way[leaf] == expression for leaf, expression in tracks) and way not in found:
            found.append(way)
    if all(_has_few_values(each) for way in found for each in way.values()):
        return None
    found = _by_keys(found)
    return {leaf: tuple(each[leaf] for each in found) for leaf in found[0]}


def _by_keys(ways: list[dict[Node, Expression]]) -> list[dict[Node, Expression]]:
    """Keep only the ways by streams' keys, if these suffice: each further way of a stream sends its rows again."""
    fewer = [way for way in ways if all(_is_key(leaf, each) for leaf, each in way.items())]
    for leaf in ways[0]:
        if not isinstance(leaf, Stream) or len({each[leaf] for each in fewer}) < max(len(leaf.key), 1):
            return ways
    return fewer


def _has_few_values(expression: Expression) -> bool:
    """Return whether an expression has few values, two or one for each constant, so that most slots would idle."""
    if isinstance(expression, Call) and expression.function in {"case", "if"}:
        values = [*expression.arguments[1::2], expression.arguments[-1]]
        return all(_has_few_values(each) for each in values)
    return isinstance(expression, Constant) or pa.types.is_boolean(expression.type)


def _is_key(leaf: Node, expression: Expression) -> bool:
    return isinstance(leaf, Stream) and isinstance(expression, Field) and expression.name in leaf.key


def _all_columns(node: Node) -> tuple[Expression, ...]:
    key = node.key if isinstance(node, Stream) else ()
    return _hashable(each for each in all_fields(node) if each.name in key) or _hashable(all_fields(node))
