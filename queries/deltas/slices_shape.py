"""Recognize the aggregates of sliding windows that slices can compute, and the parts that several plans share."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from ...operators.aggregates.sketches import sketchable
from ..expressions.nodes import Expression, Field, substituted
from ..relations.nodes import (
    Aggregate,
    Aggregation,
    Hop,
    Node,
    Project,
    Range,
    StreamNode,
    Where,
    Windowed,
    walk,
)
from .functions import DISTINCT_COUNT, added, extreme
from .remembered import remembered

__all__ = ["Shape", "family_key", "is_family", "narrowest", "shape_of", "takes", "width_among"]

_MARK = "-slices-"
_MOST = 1024


@dataclass(frozen=True)
class Shape:
    """An aggregate of a sliding window, in terms of the stream's own columns."""

    windowed: Windowed
    shift_us: int  # Added to each row's time: 1 for windows that contain their start and not their end.
    range_us: int
    slide_us: int
    conditions: tuple[Expression, ...]  # Conjuncts, in the order of evaluation.
    by: tuple[Expression, ...]  # The group's expressions, in an order that does not depend on the query.
    names: tuple[tuple[str, int], ...]  # The result's columns that belong to the group, and their places in `by`.
    aggregates: tuple[Aggregation, ...]

    @property
    def stream(self) -> StreamNode:
        return self.windowed.stream

    @property
    def sketches(self) -> bool:
        """True if an aggregate is a sketch: computed from rows it would be exact, a different value."""
        return any(each.function == DISTINCT_COUNT for each in self.aggregates)

    @property
    def width(self) -> int:
        """The greatest slice width that divides all windows."""
        return math.gcd(self.range_us, self.slide_us)


def shape_of(node: Node, given: Collection[Node] = ()) -> Shape | None:
    """Return the shape of an aggregate of a sliding window; None for other plans and ``given`` relations."""
    return _shape_of(node, given) if given else _shape_alone(node)


def _shape_of(node: Node, given: Collection[Node]) -> Shape | None:
    if not isinstance(node, Aggregate) or not all(_is_sliced(each) for each in node.aggregates):
        return None
    below: list[Where | Project] = []
    source = node.source
    while isinstance(source, Where | Project) and source not in given:
        below.append(source)
        source = source.source
    if not isinstance(source, Windowed) or source in given:
        return None
    window = source.window
    if isinstance(window, Range) and window.slide_us is not None:
        range_us, slide_us, shift_us = window.range_us, window.slide_us, 0
    elif isinstance(window, Hop) and not window.columns:
        range_us, slide_us, shift_us = window.size_us, window.slide_us, 1
    else:
        return None
    if range_us < slide_us:  # some rows are in no window, and are not to be looked at
        return None
    columns: dict[str, Expression] = {each.name: Field(each.name, each.type) for each in source.schema}
    conditions: list[Expression] = []
    for each in reversed(below):
        if isinstance(each, Where):
            conditions.append(substituted(each.condition, columns))
        else:
            columns = {name: substituted(expression, columns) for name, expression in each.columns}
    named = [(name, substituted(expression, columns)) for name, expression in node.by]
    by = sorted({expression for _, expression in named}, key=repr)
    names = tuple((name, by.index(expression)) for name, expression in named)
    aggregates = tuple(
        replace(
            each,
            arguments=tuple(substituted(argument, columns) for argument in each.arguments),
            where=None if each.where is None else substituted(each.where, columns),
        )
        for each in node.aggregates
    )
    return Shape(source, shift_us, range_us, slide_us, tuple(conditions), tuple(by), names, aggregates)


@remembered
def _shape_alone(node: Node) -> Shape | None:
    return _shape_of(node, ())


def family_key(shape: Shape, identify: Callable[[Node], str]) -> str:
    """Return a name for the stream, conditions and groups of a shape, independent of widths, windows and aggregates."""
    text = repr((identify(shape.stream), shape.shift_us, shape.conditions, shape.by))
    return hashlib.sha256(text.encode()).hexdigest()[:20] + _MARK


def is_family(key: str) -> bool:
    """Return whether the operator of this name keeps slices."""
    return _MARK in key


@remembered
def narrowest(plan: Node) -> int:
    """Return the least slice width that a plan needs by itself; 0 if none. Plans with narrow slices begin first."""
    shapes = (shape_of(each) for each in walk(plan))
    return min((each.width for each in shapes if each is not None), default=0)


def width_among(family: str, shape: Shape, keys: Iterable[str]) -> int:
    """Return the greatest existing slice width that fits the shape, or else the shape's own."""
    there = (int(key.removeprefix(family)) for key in keys if key.startswith(family))
    return max((each for each in there if takes(shape, each)), default=shape.width)


def takes(shape: Shape, width_us: int) -> bool:
    """Return whether existing slices of a width fit the windows: at most 1,024 in each."""
    return shape.width % width_us == 0 and shape.range_us // width_us <= _MOST


def _is_sliced(each: Aggregation) -> bool:
    if each.distinct:
        return False
    if each.function == DISTINCT_COUNT:
        return sketchable(each.arguments[0].type)
    return added(each.function) is not None or extreme(each.function) is not None
