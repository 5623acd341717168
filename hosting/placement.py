"""The division of a plan between two stages, and the routes of its rows to their slots.

A slot of the first stage sees some rows of the streams, and evaluates a fragment of the plan over them. The second
stage evaluates, over the fragments' changes, the parts that need rows of several first-stage slots together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ..expressions.nodes import Call, Constant, Expression, Field, fields, substituted
from ..operators.relations.plan.bounds import UnboundedError, growth_of
from ..operators.relations.plan.expression_rules import never_fails
from ..operators.relations.plan.identity import content, remembered
from ..operators.relations.plan.nodes import (
    Changes,
    Copies,
    Distinct,
    Explode,
    GroupAggregates,
    Join,
    Latest,
    Lifetime,
    Node,
    Project,
    RowWindow,
    Sample,
    Session,
    SetOperation,
    Stream,
    Top,
    Where,
    WindowFunctions,
    WindowOver,
    walk,
)
from ..operators.relations.plan.properties import key_of
from ..operators.relations.zsets import is_hashable


@dataclass(frozen=True)
class Route:
    """The expressions by which a stream's rows go to the slots of the first stage. They never fail.

    Rows of equal values go to one slot (:func:`.slots.slots_of`). Without expressions, all rows go to
    :meth:`Fragment.gathered_in`.
    """

    stream: Stream
    by: tuple[Expression, ...]


@dataclass(frozen=True)
class Fragment:
    """A part of a plan that the slots of the first stage evaluate, each over its rows.

    There is one route for each stream it reads. Unless it needs no rows together, all have as many expressions, with
    the same meaning in the same place. Without ``onward``, its changes are the result.
    """

    plan: Node
    routes: tuple[Route, ...]
    # Routes its changes to the second stage; () means all to `Placement.gathered_in`.
    onward: tuple[Expression, ...] | None
    every_change: bool = False  # Operators above need each change point; otherwise a step's net change is enough.

    def gathered_in(self, slots: int) -> int:
        """Return the first-stage slot for gathered rows: by the streams, so queries gather a stream only once."""
        names = sorted({each.name for each in walk(self.plan) if isinstance(each, Stream)})
        return _chosen(repr(names), slots)


@dataclass(frozen=True)
class Placement:
    """A divided plan.

    Unless ``together``, one slot can retract a key's row in a batch while another emits its new one, which wins.
    """

    fragments: tuple[Fragment, ...]
    second: Node | None  # The second stage's plan, with the fragments' plans given; None if one fragment is the plan.
    together: bool = True  # One slot has all changes of the rows of one key.

    def gathered_in(self, slots: int) -> int:
        """Return the second-stage slot for gathered changes. It depends on the plan, so queries use different slots."""
        return _chosen(content(self.second), slots)


def _chosen(text: str, slots: int) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % slots


Tracks = list[tuple[Node, Expression]]
"""The nodes where tracking has ended, and the expression over the rows of each."""

_Way = Mapping[Node, tuple[Expression, ...]]
"""The expressions by which the rows of each cut go to slots; ``()`` if the rows of all cuts are gathered."""


class Cut:
    """The nodes where tracking ends: parts that are computed elsewhere, or streams of the catalog.

    It caches results, since a plan can have a node in many places.
    """

    def __init__(self, ends: Callable[[Node], bool]) -> None:
        self._ends = ends
        self.tracks: dict[tuple[Node, str], Tracks | None] = {}
        self.ways: dict[Node, _Way | None] = {}

    def __call__(self, node: Node) -> bool:
        return self._ends(node)


def tracked(node: Node, expression: Expression, cut: Cut) -> Tracks | None:
    """Return the expression over the rows of each cut below a node; None if there is none.

    If the cuts' rows go to slots by these, each slot can compute the node's rows alone. They are in the slot of the
    expression's value.
    """
    place = node, content(expression)
    if place not in cut.tracks:
        can = bool(fields(expression)) and _can_place(expression)
        cut.tracks[place] = _tracked(node, expression, cut) if can else None
    return cut.tracks[place]


def _tracked(node: Node, expression: Expression, cut: Cut) -> Tracks | None:
    if cut(node):
        # A change that leaves has columns equal to those that came, but for the sign of a zero.
        fits = isinstance(node, Stream) or _replaced(expression, _own(node)) is not None
        return [(node, expression)] if fits else None
    match node:
        case Where(source, _) | Lifetime(source):
            return tracked(source, expression, cut)
        case Project(source):
            return tracked(source, substituted(expression, _columns_of(node)), cut)
        case WindowOver():
            return _through_window(node, expression, cut)
        case Sample(source, _, _):
            # The choice of a change depends on all changes of its time.
            return None if isinstance(source, Changes) else tracked(source, expression, cut)
        case GroupAggregates(source, by, _):
            return _through(source, expression, {Field(name, each.type): each for name, each in by}, cut)
        case Explode(source):
            return tracked(source, expression, cut) if fields(expression) <= _names_of(source) else None
        case Distinct(source) | Copies(source):
            return _through(source, expression, _own(source), cut)
        case Top(source, _, _, by) | WindowFunctions(source, _, by, _):
            return _through(source, expression, _same(by), cut)
        case SetOperation(left, right, _, _):
            places = list(zip(all_fields(left), all_fields(right), strict=True))
            if any(one.type != other.type for one, other in places):
                return None
            return _both(
                _through(left, expression, _own(left), cut),
                _through(right, expression, dict[Expression, Expression](places), cut),
            )
        case Join():
            return _through_join(node, expression, cut)
        case Changes(source, kind, every):
            if kind == "rstream" and every is None:
                return None
            return _through(source, expression, _own(source), cut)
        case _:
            return None


def pairs_of(node: Join) -> tuple[tuple[Expression, Expression], ...]:
    """Return the pairs that are equal in all rows of both sides that affect each other."""
    pairs = node.on[1:] if node.how == "null_aware_anti" else node.on
    return tuple((one, other) for one, other in pairs if one.type == other.type)


@remembered
def all_fields(node: Node) -> tuple[Field, ...]:
    """Return the columns of a node."""
    return tuple(Field(each.name, each.type) for each in node.schema)


@remembered
def _own(node: Node) -> Mapping[Expression, Expression]:
    return _same(all_fields(node))


@remembered
def _names_of(node: Node) -> frozenset[str]:
    return frozenset(node.schema.names)


@remembered
def _columns_of(node: Node) -> Mapping[str, Expression]:
    return dict(node.columns) if isinstance(node, Project) else {}


@remembered
def _partition_of(node: Node) -> Mapping[Expression, Expression] | None:
    """Return the columns of a stream by whose values a window keeps rows; None if it keeps each row for itself."""
    match node:
        case WindowOver(stream, RowWindow(_, partition, _) | Session(_, partition)):
            names = partition
        case WindowOver(stream, Latest()):
            assert isinstance(node.origin, Stream)
            names = node.origin.key
        case _:
            return None
    return _same(each for each in all_fields(stream) if each.name in names)


def loses_rows(node: Node) -> bool:
    """Return whether rows of a relation may leave it."""
    try:
        return growth_of(node).retracts
    except UnboundedError:
        return True


def _can_place(expression: Expression) -> bool:
    return is_hashable(expression.type) and never_fails(expression)


def _same(expressions: Iterable[Expression]) -> Mapping[Expression, Expression]:
    return {each: each for each in expressions}


def _both(one: Tracks | None, other: Tracks | None) -> Tracks | None:
    return None if one is None or other is None else one + [each for each in other if each not in one]


def _through(source: Node, expression: Expression, by: Mapping[Expression, Expression], cut: Cut) -> Tracks | None:
    """Track below an operator that needs rows of equal expressions together."""
    below = _replaced(expression, by)
    return None if below is None else tracked(source, below, cut)


def _replaced(expression: Expression, by: Mapping[Expression, Expression]) -> Expression | None:
    """Return the expression in terms of others, or None. Functions of a float do not count: 0.0 equals -0.0."""
    if expression in by:
        return by[expression]
    if isinstance(expression, Constant):
        return expression
    if isinstance(expression, Field) or any(_has_float(each.type) for each in expression.arguments):
        return None
    arguments: list[Expression] = []
    for each in expression.arguments:
        made = _replaced(each, by)
        if made is None:
            return None
        arguments.append(made)
    return Call(expression.function, tuple(arguments), expression.type)


def _has_float(kind: pa.DataType) -> bool:
    if pa.types.is_floating(kind):
        return True
    return any(_has_float(kind.field(at).type) for at in range(kind.num_fields))


def _through_window(node: WindowOver, expression: Expression, cut: Cut) -> Tracks | None:
    if not fields(expression) <= _names_of(node.stream):
        return None  # the window's start or end
    by = _partition_of(node)
    return tracked(node.stream, expression, cut) if by is None else _through(node.stream, expression, by, cut)


def _through_join(node: Join, expression: Expression, cut: Cut) -> Tracks | None:
    to_left: dict[Expression, Expression] = {}
    to_right: dict[Expression, Expression] = {}
    for one, other in pairs_of(node):
        names: list[Expression] = []
        if node.how == "full":
            # One of them is null in a row without a partner.
            names = [Call("coalesce", pair, one.type) for pair in ((one, other), (other, one))]
        if node.how in {"inner", "left", "semi", "anti", "null_aware_anti"}:
            names.append(one)
        if node.how in {"inner", "right"}:
            names.append(other)
        for each in names:
            to_left.setdefault(each, one)
            to_right.setdefault(each, other)
    return _both(_through(node.left, expression, to_left, cut), _through(node.right, expression, to_right, cut))


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
    cut = Cut(lambda node: isinstance(node, Stream))
    if _mixed(plan):
        return _in_second(plan, wanted, cut, keyed=bool(key))
    at_once = _combined(plan, wanted, cut)
    if at_once is not None:
        return _in_first(plan, at_once, together=True)
    apart = _spread(plan, cut)
    if apart is not None:
        if wanted and any(apart.values()):
            return Placement((Fragment(plan, _routes(apart), wanted),), plan)
        return _in_first(plan, apart, together=not key or not any(apart.values()))
    return _in_second(plan, wanted, cut, keyed=bool(key))


def _hashable(columns: Iterable[Field]) -> tuple[Expression, ...]:
    return tuple(each for each in columns if is_hashable(each.type))


def _in_first(plan: Node, way: _Way, *, together: bool) -> Placement:
    return Placement((Fragment(plan, _routes(way), None),), None, together)


def _in_second(plan: Node, wanted: Sequence[Expression], streams_of: Cut, *, keyed: bool) -> Placement:
    parts: dict[Node, bool] = {}
    for part, every_change in _parts(plan, streams_of, set(), every_change=False):
        parts[part] = every_change or parts.get(part, False)
    ways = {part: _spread(part, streams_of) or {} for part in parts}
    cut = Cut(parts.__contains__)
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


def _parts(
    node: Node, streams_of: Cut, seen: set[tuple[Node, bool]], *, every_change: bool
) -> Iterator[tuple[Node, bool]]:
    """Yield the largest relations that the first stage can evaluate; True marks those below a stream of changes."""
    if (node, every_change) in seen:
        return
    seen.add((node, every_change))
    alone = not isinstance(node, Stream | Sample | Changes) and not _mixed(node)
    if alone and _spread(node, streams_of) is not None:
        yield node, every_change
        return
    for each in node.inputs:
        yield from _parts(each, streams_of, seen, every_change=every_change or isinstance(node, Changes))


@remembered
def _mixed(node: Node) -> bool:
    """Return whether newest rows meet a stored relation. In the second stage, they survive its new versions."""
    nodes = list(walk(node))
    newest = any(isinstance(each, WindowOver) and isinstance(each.window, Latest | RowWindow) for each in nodes)
    return newest and any(isinstance(each, Stream) and each.static for each in nodes)


def _routes(way: _Way) -> tuple[Route, ...]:
    found = [Route(each, by) for each, by in way.items() if isinstance(each, Stream)]
    return tuple(sorted(found, key=lambda route: route.stream.name))


def _spread(node: Node, cut: Cut) -> _Way | None:
    """Return one way to compute a node in slots, wherever its rows end up."""
    if node not in cut.ways:
        cut.ways[node] = _spread_below(node, cut)
    return cut.ways[node]


def _spread_below(node: Node, cut: Cut) -> _Way | None:
    if cut(node):
        return {node: _all_columns(node)}
    match node:
        case Where(source) | Lifetime(source) | Project(source) | Explode(source):
            return _spread(source, cut)
        case Sample(source):
            return None if isinstance(source, Changes) else _spread(source, cut)
        case WindowOver(stream, RowWindow(_, (), _)):
            # The first stage gathers only streams, the second relations.
            origin = node.origin
            return {origin: ()} if cut(origin) and isinstance(stream, Stream | Sample) else None
        case WindowOver(stream, window) if not isinstance(window, RowWindow | Session | Latest):
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
        case GroupAggregates(_, by, _):
            return [Field(name, each.type) for name, each in by]
        case Top(_, _, _, by) | WindowFunctions(_, _, by, _):
            return by
        case Copies(source):
            return all_fields(source)
        case WindowOver(stream, RowWindow(_, partition, _) | Session(_, partition)):
            return [each for each in all_fields(stream) if each.name in partition]
        case WindowOver():
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
    found: dict[frozenset[tuple[Node, Expression]], dict[Node, Expression]] = {}
    for each in candidates:
        tracks = tracked(node, each, cut)
        if tracks is None:
            continue
        way = dict(tracks)
        # A stream or part has one route only.
        if all(way[leaf] == expression for leaf, expression in tracks):
            found.setdefault(frozenset(tracks), way)
    if all(_has_few_values(each) for way in found.values() for each in way.values()):
        return None
    ways = _by_keys([*found.values()])
    return {leaf: tuple(each[leaf] for each in ways) for leaf in ways[0]}


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
