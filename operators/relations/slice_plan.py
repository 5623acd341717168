"""Translate the shape of a plan into its slices and the windows over them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from ...expressions.nodes import Expression, Field, substituted
from ..aggregates.algebra import Aggregates
from ..aggregates.sketches import sketchable
from .arrangement import OperatorState
from .functions import ADDED, DISTINCT_COUNT, EXTREME, AggregateCall, Columns
from .operator import Evaluable, computed
from .plan.aggregates import error_of
from .plan.identity import content, digest, identity, remembered
from .plan.nodes import (
    Aggregation,
    GroupAggregates,
    Hop,
    Node,
    Project,
    Stream,
    StreamNode,
    TimeRange,
    Where,
    WindowOver,
    walk,
)
from .slices import Measure, SliceDemand, Slices
from .slices_windows import WindowAggregates

_MARK = "-slices-"
_MOST = 1024


@dataclass(frozen=True)
class SliceShape:
    """An aggregate of a sliding window, in terms of the stream's own columns."""

    windowed: WindowOver
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


def shape_of(node: Node, given: Collection[Node] = ()) -> SliceShape | None:
    """Return the shape of an aggregate of a sliding window; None for other plans and ``given`` relations."""
    return _shape_of(node, given) if given else _shape_alone(node)


def _shape_of(node: Node, given: Collection[Node]) -> SliceShape | None:
    if not isinstance(node, GroupAggregates) or not all(_is_sliced(each) for each in node.aggregates):
        return None
    below: list[Where | Project] = []
    source = node.source
    while isinstance(source, Where | Project) and source not in given:
        below.append(source)
        source = source.source
    if not isinstance(source, WindowOver) or source in given:
        return None
    if isinstance(source.origin, Stream) and source.origin.lateness_us:
        return None  # a slice that a window has left takes no row
    window = source.window
    if isinstance(window, TimeRange) and window.range_us is not None and window.slide_us is not None:
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
    by = sorted({expression for _, expression in named}, key=content)
    names = tuple((name, by.index(expression)) for name, expression in named)
    aggregates = tuple(
        replace(
            each,
            arguments=tuple(substituted(argument, columns) for argument in each.arguments),
            where=None if each.where is None else substituted(each.where, columns),
        )
        for each in node.aggregates
    )
    return SliceShape(source, shift_us, range_us, slide_us, tuple(conditions), tuple(by), names, aggregates)


@remembered
def _shape_alone(node: Node) -> SliceShape | None:
    return _shape_of(node, ())


def family_key(shape: SliceShape) -> str:
    """Return a name for the stream, conditions and groups of a shape, independent of widths, windows and aggregates."""
    return digest((shape.stream, shape.shift_us, shape.conditions, shape.by), 20) + _MARK


def is_family(key: str) -> bool:
    """Return whether the operator of this name keeps slices."""
    return _MARK in key


@remembered
def narrowest(plan: Node) -> int:
    """Return the least slice width that a plan alone needs; 0 if none. Plans with narrow slices begin first."""
    shapes = (shape_of(each) for each in walk(plan))
    return min((each.width for each in shapes if each is not None), default=0)


def width_among(family: str, shape: SliceShape, keys: Iterable[str]) -> int:
    """Return the greatest existing slice width that fits the shape, or else the shape's own."""
    there = (int(key.removeprefix(family)) for key in keys if key.startswith(family))
    return max((each for each in there if takes(shape, each)), default=shape.width)


def takes(shape: SliceShape, width_us: int) -> bool:
    """Return whether existing slices of a width fit the windows: at most 1,024 in each."""
    return shape.width % width_us == 0 and shape.range_us // width_us <= _MOST


def _is_sliced(each: Aggregation) -> bool:
    if each.distinct:
        return False
    if each.function == DISTINCT_COUNT:
        return sketchable(each.arguments[0].type)
    return each.function in ADDED or each.function in EXTREME


_CHOSEN = "slices"


@dataclass
class Families:
    """The running operators, as far as plans choose between slices by them."""

    # Return an operator's small values; None if it neither runs nor is saved.
    values: Callable[[str], Mapping[str, object] | None] = lambda _: None
    begun: Callable[[str], bool] = lambda _: False  # True if the operator of this name has made a step.
    keys: set[str] = field(default_factory=set)  # The names of the operators with slices.

    def chosen(self, shape: SliceShape, key: str) -> str | None:
        """Return the name of the slices for a plan; None if it uses none.

        A plan that ran keeps its choice. A new one uses slices, existing ones if they fit. If only the rows of its
        window are kept already, it starts from those, unless it has a sketch.
        """
        ran = self.values(key)
        if ran is not None:
            slices = ran.get(_CHOSEN)
            assert slices is None or isinstance(slices, str)
            return slices
        family = family_key(shape)
        slices = f"{family}{width_among(family, shape, self.keys)}"
        if not shape.sketches and not self.begun(slices) and self.begun(identity(shape.windowed)):
            return None
        return slices


@dataclass(frozen=True)
class SliceOperators:
    """The operators that evaluate a plan from slices."""

    shape: SliceShape
    key: str  # The name of the operator with the slices.
    slices: Callable[[OperatorState], Slices]  # Make the operator with the slices from its state.
    windows: Callable[[OperatorState], WindowAggregates]  # Make the plan's operator from its state.


def sliced(
    node: Node,
    compile_: Callable[[Expression, pa.Schema], Evaluable],
    given: Collection[Node],
    families: Families,
) -> SliceOperators | None:
    """Return the operators that evaluate a plan from slices; None if it uses none."""
    shape = shape_of(node, given)
    if shape is None:
        return None
    key = families.chosen(shape, identity(node))
    if key is None:
        return None
    families.keys.add(key)
    below = shape.stream.schema
    measures = _usual_measures(node) if compile_ is computed else _measures(shape, compile_)

    def slices(state: OperatorState) -> Slices:
        conditions = [compile_(each, below) for each in shape.conditions]
        by = [compile_(each, below) for each in shape.by]
        return Slices(int(key.rpartition("-")[2]), shape.shift_us, conditions, by, state)

    def windows(state: OperatorState) -> WindowAggregates:
        state.values[_CHOSEN] = key
        return WindowAggregates(node.schema, shape.names, SliceDemand(shape.range_us, shape.slide_us, measures), state)

    return SliceOperators(shape, key, slices, windows)


def _measures(shape: SliceShape, compile_: Callable[[Expression, pa.Schema], Evaluable]) -> tuple[Measure, ...]:
    """Return the measures of a shape's aggregates; raise SchemaError if a type does not fit."""
    found = tuple(_measure(each, compile_, shape.stream.schema) for each in shape.aggregates)
    for each in found:
        Aggregates.of({each.name: each.aggregate}, each.columns.schema)
    return found


@remembered
def _usual_measures(node: Node) -> tuple[Measure, ...]:
    shape = shape_of(node)
    assert shape is not None
    return _measures(shape, computed)


def _measure(each: Aggregation, compile_: Callable[[Expression, pa.Schema], Evaluable], below: pa.Schema) -> Measure:
    name = digest((each.function, each.arguments, each.where, each.type))
    # Counts read whether a row counts, all others a value.
    kind = each.function if each.function == "count" else ""
    column = digest((kind, each.arguments, each.where))
    call = AggregateCall(
        name,
        each.function,
        tuple(compile_(argument, below) for argument in each.arguments),
        each.type,
        where=None if each.where is None else compile_(each.where, below),
        error=error_of(each) if each.function == DISTINCT_COUNT else None,
    )
    return Measure(name, column, Columns([call], [column]))
