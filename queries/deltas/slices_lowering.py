"""Translate the shape of a plan into its slices and the windows over them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from ...operators.aggregates.algebra import Aggregates
from ..expressions.nodes import Expression
from ..relations.aggregates import error_of
from ..relations.nodes import Aggregation, Node
from .columns import Columns
from .computing import computed
from .functions import DISTINCT_COUNT, Call
from .operator import Computed
from .remembered import remembered
from .slices import Measure, Slices, Wanted
from .slices_shape import Shape, family_key, shape_of, width_among
from .slices_windows import WindowAggregates
from .state import State

__all__ = ["Families", "Sliced", "sliced"]

_CHOSEN = "slices"


@dataclass
class Families:
    """The running operators, as far as plans choose between slices by them."""

    # Return an operator's small values; None if it neither runs nor is saved.
    values: Callable[[str], Mapping[str, object] | None] = lambda _: None
    begun: Callable[[str], bool] = lambda _: False  # True if the operator of this name has made a step.
    keys: set[str] = field(default_factory=set)  # The names of the operators with slices.

    def chosen(self, shape: Shape, key: str, identify: Callable[[Node], str]) -> str | None:
        """Return the name of the slices for a plan; None if it uses none.

        A plan that ran keeps its choice. A new one uses slices, existing ones if they fit. If only the rows of its
        window are kept already, it starts from those, unless it has a sketch.
        """
        ran = self.values(key)
        if ran is not None:
            slices = ran.get(_CHOSEN)
            assert slices is None or isinstance(slices, str)
            return slices
        family = family_key(shape, identify)
        slices = f"{family}{width_among(family, shape, self.keys)}"
        if not shape.sketches and not self.begun(slices) and self.begun(identify(shape.windowed)):
            return None
        return slices


@dataclass(frozen=True)
class Sliced:
    """The operators that evaluate a plan from slices."""

    shape: Shape
    key: str  # The name of the operator with the slices.
    slices: Callable[[State], Slices]  # Make the operator with the slices from its state.
    windows: Callable[[State], WindowAggregates]  # Make the plan's operator from its state.


def sliced(
    node: Node,
    compile_: Callable[[Expression, pa.Schema], Computed],
    identify: Callable[[Node], str],
    given: Collection[Node],
    families: Families,
) -> Sliced | None:
    """Return the operators that evaluate a plan from slices; None if it uses none."""
    shape = shape_of(node, given)
    if shape is None:
        return None
    key = families.chosen(shape, identify(node), identify)
    if key is None:
        return None
    families.keys.add(key)
    below = shape.stream.schema
    measures = _usual_measures(node) if compile_ is computed else _measures(shape, compile_)

    def slices(state: State) -> Slices:
        conditions = [compile_(each, below) for each in shape.conditions]
        by = [compile_(each, below) for each in shape.by]
        return Slices(int(key.rpartition("-")[2]), shape.shift_us, conditions, by, state)

    def windows(state: State) -> WindowAggregates:
        state.values[_CHOSEN] = key
        return WindowAggregates(node.schema, shape.names, Wanted(shape.range_us, shape.slide_us, measures), state)

    return Sliced(shape, key, slices, windows)


def _measures(shape: Shape, compile_: Callable[[Expression, pa.Schema], Computed]) -> tuple[Measure, ...]:
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


def _measure(each: Aggregation, compile_: Callable[[Expression, pa.Schema], Computed], below: pa.Schema) -> Measure:
    name = _short((each.function, each.arguments, each.where, each.type))
    # Counts read whether a row counts, all others a value.
    kind = each.function if each.function in {"count", "count_if"} else ""
    column = _short((kind, each.arguments, each.where))
    call = Call(
        name,
        each.function,
        tuple(compile_(argument, below) for argument in each.arguments),
        each.type,
        where=None if each.where is None else compile_(each.where, below),
        error=error_of(each) if each.function == DISTINCT_COUNT else None,
    )
    return Measure(name, column, Columns([call], [column]))


def _short(what: object) -> str:
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]
