"""Express values of a relation's rows by the rows below it.

Slots can compute a relation's rows independently if all rows below that affect one of them are in one slot. So a
routing value has to be equal for these: a function of a group's expressions, or of a join's equal ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa

from ..deltas.numbers import is_hashable
from ..expressions.nodes import Call, Constant, Expression, Field, fields, substituted
from ..relations.bounds import UnboundedError, growth_of
from ..relations.nodes import (
    Aggregate,
    Changes,
    Copies,
    Distinct,
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
)
from ..relations.rewriting import never_fails

__all__ = ["Cut", "Tracks", "all_fields", "loses_rows", "pairs_of", "tracked"]

Cut = Callable[[Node], bool]
"""True for a node where tracking ends: a part that is computed elsewhere, or a stream of the catalog."""

Tracks = list[tuple[Node, Expression]]
"""The nodes where tracking has ended, and the expression over the rows of each."""


def tracked(node: Node, expression: Expression, cut: Cut) -> Tracks | None:
    """Return the expression over the rows of each cut below a node; None if there is none.

    If the cuts' rows go to slots by these, each slot can compute the node's rows alone. They are in the slot of the
    expression's value.
    """
    if not fields(expression) or not _can_place(expression):
        return None
    if cut(node):
        # A change that leaves has columns equal to those that came, but for the sign of a zero.
        fits = isinstance(node, Stream) or _replaced(expression, _same(all_fields(node))) is not None
        return [(node, expression)] if fits else None
    match node:
        case Where(source, _):
            return tracked(source, expression, cut)
        case Project(source, columns):
            return tracked(source, substituted(expression, dict(columns)), cut)
        case Windowed():
            return _through_window(node, expression, cut)
        case Sample(source, _, _):
            # The choice of a change depends on all changes of its time.
            return None if isinstance(source, Changes) else tracked(source, expression, cut)
        case Aggregate(source, by, _):
            return _through(source, expression, {Field(name, each.type): each for name, each in by}, cut)
        case Distinct(source) | Copies(source):
            return _through(source, expression, _same(all_fields(source)), cut)
        case Top(source, _, _, by):
            return _through(source, expression, _same(by), cut)
        case SetOperation(left, right, _, _):
            places = list(zip(all_fields(left), all_fields(right), strict=True))
            if any(one.type != other.type for one, other in places):
                return None
            return _both(
                _through(left, expression, _same(all_fields(left)), cut),
                _through(right, expression, dict[Expression, Expression](places), cut),
            )
        case Join():
            return _through_join(node, expression, cut)
        case Changes(source, kind, every):
            if kind == "rstream" and every is None:
                return None
            return _through(source, expression, _same(all_fields(source)), cut)
        case _:
            return None


def pairs_of(node: Join) -> tuple[tuple[Expression, Expression], ...]:
    """Return the pairs that are equal in all rows of both sides that affect each other."""
    pairs = node.on[1:] if node.how == "null_aware_anti" else node.on
    return tuple((one, other) for one, other in pairs if one.type == other.type)


def all_fields(node: Node) -> tuple[Field, ...]:
    """Return the columns of a node."""
    return tuple(Field(each.name, each.type) for each in node.schema)


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
    return None if one is None or other is None else one + other


def _through(source: Node, expression: Expression, by: Mapping[Expression, Expression], cut: Cut) -> Tracks | None:
    """Track below an operator that needs rows of equal expressions together."""
    below = _replaced(expression, by)
    return None if below is None else tracked(source, below, cut)


def _replaced(expression: Expression, by: Mapping[Expression, Expression]) -> Expression | None:
    """Return the expression in terms of others; None if it is not a function of them.

    A function of a float does not count: 0.0 and -0.0 are equal, but their texts, for example, are not.
    """
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


def _through_window(node: Windowed, expression: Expression, cut: Cut) -> Tracks | None:
    if not fields(expression) <= set(node.stream.schema.names):
        return None  # the window's start or end
    match node.window:
        case Rows(_, partition, _):
            names = partition
        case Latest():
            assert isinstance(node.origin, Stream)
            names = node.origin.key
        case _:
            return tracked(node.stream, expression, cut)
    return _through(node.stream, expression, _same(each for each in all_fields(node.stream) if each.name in names), cut)


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
