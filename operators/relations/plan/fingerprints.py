"""Fingerprints of plans: equal for plans with the same rows, so that these can share results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from ....expressions.nodes import Expression
from .expression_rules import canonical_text, conjunct_texts
from .nodes import (
    Aggregate,
    Changes,
    Copies,
    Distinct,
    Hop,
    Join,
    Node,
    Project,
    RowWindow,
    Sample,
    SetOperation,
    Stream,
    Top,
    Where,
    WindowOver,
)


@dataclass(frozen=True)
class Canonical:
    """A plan without names."""

    key: str  # Equal for plans with the same rows, whatever the order and names of columns.
    columns: tuple[int, ...]  # By column of the plan: its position in the canonical plan.
    width: int  # The canonical plan's number of columns.


def fingerprint(node: Node) -> str:
    """Return a text that is equal for normalized plans of equal rows and order of columns, whatever their aliases."""
    made = canonical(node)
    return _short(f"{made.key}{made.columns}")


def canonical(node: Node, known: dict[Node, Canonical] | None = None) -> Canonical:
    """Return a normalized plan without names. ``known`` caches results for parts of other plans."""
    memory: dict[Node, Canonical] = {} if known is None else known
    found = memory.get(node)
    if found is None:
        found = memory[node] = _canonical(node, memory)
    return found


def _short(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:24]


def _keyed(kind: str, *parts: object) -> str:
    return f"{kind}:" + _short("\x1f".join(str(each) for each in parts))


def _positions(node: Node, made: Canonical, side: str = "") -> Mapping[str, str]:
    return {name: f"{side}#{at}" for name, at in zip(node.schema.names, made.columns, strict=True)}


def _texts(expressions: tuple[Expression, ...], names: Mapping[str, str]) -> list[str]:
    return [canonical_text(each, names.__getitem__) for each in expressions]


def _canonical(node: Node, memory: dict[Node, Canonical]) -> Canonical:
    if isinstance(node, Stream):
        width = len(node.schema)
        kind = node.event_time, node.updates, node.static, repr(node.table)
        key = _keyed("stream", node.name, node.key, *kind, node.schema)
        return Canonical(key, tuple(range(width)), width)
    if isinstance(node, Join):
        return _join(node, memory)
    if isinstance(node, SetOperation):
        sides = [canonical(each, memory) for each in node.inputs]
        texts = [f"{each.key}{each.columns}" for each in sides]
        if node.kind != "except":
            texts.sort()
        return Canonical(_keyed(node.kind, node.all, *texts), tuple(range(len(node.schema))), len(node.schema))
    below = node.inputs[0]
    inner = canonical(below, memory)
    names = _positions(below, inner)
    if isinstance(node, Sample):
        return Canonical(_keyed("sample", inner.key, node.percent, node.seed), inner.columns, inner.width)
    if isinstance(node, WindowOver):
        return _windowed(node, inner, names)
    if isinstance(node, Where):
        texts = conjunct_texts(node.condition, names.__getitem__)
        return Canonical(_keyed("where", inner.key, *texts), inner.columns, inner.width)
    if isinstance(node, Project):
        return _project(node, inner, names)
    if isinstance(node, Aggregate):
        return _aggregate(node, inner, names)
    if isinstance(node, Distinct):
        return Canonical(_keyed("distinct", inner.key), inner.columns, inner.width)
    if isinstance(node, Copies):
        return Canonical(_keyed("copies", inner.key), (*inner.columns, inner.width), inner.width + 1)
    if isinstance(node, Top):
        orders = [
            f"{canonical_text(each.expression, names.__getitem__)} {each.descending} {each.nulls_first}"
            for each in node.order
        ]
        # Ties go by all columns in their order.
        by = sorted(set(_texts(node.by, names)))
        return Canonical(_keyed("top", inner.key, inner.columns, orders, node.n, by), inner.columns, inner.width)
    assert isinstance(node, Changes)
    return Canonical(_keyed(node.kind, inner.key, node.every_us), inner.columns, inner.width)


def _windowed(node: WindowOver, inner: Canonical, names: Mapping[str, str]) -> Canonical:
    window = node.window
    if isinstance(window, RowWindow):
        partition = sorted(names[each] for each in window.partition)
        where = conjunct_texts(window.where, names.__getitem__)
        return Canonical(_keyed("rows", inner.key, window.n, partition, where), inner.columns, inner.width)
    key = _keyed("window", inner.key, window)
    if isinstance(window, Hop) and window.columns:
        return Canonical(key, (*inner.columns, inner.width, inner.width + 1), inner.width + 2)
    return Canonical(key, inner.columns, inner.width)


def _project(node: Project, inner: Canonical, names: Mapping[str, str]) -> Canonical:
    texts = [canonical_text(expression, names.__getitem__) for _, expression in node.columns]
    distinct = sorted(set(texts))
    if set(texts) == {f"#{at}" for at in range(inner.width)}:
        # The same columns under other names or in another order.
        return Canonical(inner.key, tuple(int(each[1:]) for each in texts), inner.width)
    place = {each: at for at, each in enumerate(distinct)}
    key = _keyed("project", inner.key, *distinct)
    return Canonical(key, tuple(place[each] for each in texts), len(distinct))


def _aggregate(node: Aggregate, inner: Canonical, names: Mapping[str, str]) -> Canonical:
    by = [canonical_text(expression, names.__getitem__) for _, expression in node.by]
    made = [
        f"{each.function} {each.distinct} {_texts(each.arguments, names)} "
        f"{conjunct_texts(each.where, names.__getitem__)} {each.type}"
        for each in node.aggregates
    ]
    groups, values = sorted(set(by)), sorted(set(made))
    columns = [groups.index(each) for each in by] + [len(groups) + values.index(each) for each in made]
    key = _keyed("aggregate", inner.key, groups, values)
    return Canonical(key, tuple(columns), len(groups) + len(values))


def _join(node: Join, memory: dict[Node, Canonical]) -> Canonical:
    left, right = canonical(node.left, memory), canonical(node.right, memory)
    how = node.how
    straight = _join_key(node, left, right, how, swapped=False)
    if how not in {"inner", "full", "right"}:
        width = left.width + (right.width if how == "left" else 0)
        return Canonical(straight, _side_by_side(left, right, how), width)
    crossed = _join_key(node, right, left, "left" if how == "right" else how, swapped=True)
    if how == "right" or (right.key, crossed) < (left.key, straight):
        columns = (*(at + right.width for at in left.columns), *right.columns)
        return Canonical(crossed, columns, left.width + right.width)
    return Canonical(straight, _side_by_side(left, right, how), left.width + right.width)


def _side_by_side(left: Canonical, right: Canonical, how: str) -> tuple[int, ...]:
    if how in {"semi", "anti", "null_aware_anti"}:
        return left.columns
    return (*left.columns, *(at + left.width for at in right.columns))


def _join_key(node: Join, first: Canonical, second: Canonical, how: str, *, swapped: bool) -> str:
    one, other = (node.right, node.left) if swapped else (node.left, node.right)
    names = {**_positions(one, first, "a"), **_positions(other, second, "b")}
    pairs = [f"{canonical_text(x, names.__getitem__)}={canonical_text(y, names.__getitem__)}" for x, y in node.on]
    if swapped:
        pairs = [f"{canonical_text(y, names.__getitem__)}={canonical_text(x, names.__getitem__)}" for x, y in node.on]
    compared = pairs[:1] if how == "null_aware_anti" else []
    rest = sorted(set(pairs[1:] if compared else pairs))
    condition = conjunct_texts(node.condition, names.__getitem__)
    return _keyed("join", how, first.key, second.key, compared, rest, condition)
