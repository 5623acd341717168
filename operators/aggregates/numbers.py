"""Differential parts for counts, sums and squares."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.rows.exact_integers import Int64s
from . import exact, floats
from .groups import GroupedRows, Groups
from .parts import State, StatePart

Doubles = npt.NDArray[np.float64]

SCALE = 2.0**-64
"""The factor of stored sums of doubles: they overflow only when lowered, and a retraction can still prevent that."""

_HUGE = 2.0**450  # beyond it a square, or what is computed with it, might overflow

_DOUBLE, _LONG = pa.float64(), pa.int64()


class Count(StatePart):
    """The number of rows if `column` is None, otherwise of a column's values that are not null."""

    differential = True
    exact = True

    def __init__(self, column: str | None) -> None:
        self.key = "rows@1()" if column is None else f"count@1({column})"
        self.inputs = () if column is None else (column,)
        self.fields = (pa.field("rows", _LONG),)

    def lift(self, rows: GroupedRows) -> State:
        groups = rows.valid(self.inputs[0])[1] if self.inputs else rows.groups
        return [pa.array(groups.counts)]

    def combine(self, state: State, groups: Groups) -> State:
        return [_added(state[0], groups)]

    def retract(self, state: State, other: State) -> State:
        left = _less(state[0], other[0])
        if (left.to_numpy() < 0).any():
            raise ValueError(f"{self.key}: the retracted state has rows that the other lacks")
        return [left]

    def running(self, state: State) -> Sequence[Int64s]:
        return [_running(state[0].to_numpy())]

    def between(self, running: Sequence[Int64s], low: Int64s, high: Int64s) -> State:
        return [pa.array(running[0][high] - running[0][low])]


class ExactSum(StatePart):
    """The exact sum of integers, as DECIMAL(38, 0), or of decimals DECIMAL(p, s), as DECIMAL(76, s)."""

    differential = True
    exact = True

    def __init__(self, column: str, kind: pa.DataType) -> None:
        self.key = f"sum@1({column})"
        self.inputs = (column,)
        self.type = pa.decimal128(38, 0) if pa.types.is_integer(kind) else pa.decimal256(76, kind.scale)
        self.fields = (pa.field("sum", self.type),)

    def lift(self, rows: GroupedRows) -> State:
        values, groups = rows.valid(self.inputs[0])
        return [exact.packed(exact.summed(values, groups), self.type)]

    def combine(self, state: State, groups: Groups) -> State:
        return [exact.packed(exact.summed(state[0], groups), self.type)]

    def retract(self, state: State, other: State) -> State:
        return [exact.packed(exact.minus(exact.limbs_of(state[0]), exact.limbs_of(other[0])), self.type)]

    def running(self, state: State) -> Sequence[Int64s]:
        # Limbs have 32 bits, and the last is signed: sums of 2^31 of them have room.
        return [_running(limb) for limb in exact.limbs_of(state[0])]

    def between(self, running: Sequence[Int64s], low: Int64s, high: Int64s) -> State:
        return [exact.packed([each[high] - each[low] for each in running], self.type)]


class FloatSum(StatePart):
    """The sum of numbers as doubles to about 100 bits, and counts of the infinities of each sign.

    A NaN counts as one infinity of each sign, which add up to NaN. So two counts determine a sum that is not finite,
    even after retractions.
    """

    differential = True

    def __init__(self, column: str) -> None:
        self.key = f"float_sum@1({column})"
        self.inputs = (column,)
        names = {"high": _DOUBLE, "low": _DOUBLE, "positive": _LONG, "negative": _LONG}
        self.fields = tuple(pa.field(name, kind) for name, kind in names.items())

    def lift(self, rows: GroupedRows) -> State:
        array, groups = rows.valid(self.inputs[0])
        values = as_doubles(array)
        finite = np.isfinite(values)
        if finite.all():
            none = pa.array(np.zeros(groups.size, dtype=np.int64))
            return [*_pair(floats.summed(values * SCALE, groups)), none, none]
        nan = np.isnan(values)
        signs = [groups.at(nan | (values == infinite)).counts for infinite in (np.inf, -np.inf)]
        return [
            *_pair(floats.summed(values[finite] * SCALE, groups.at(finite))),
            *(pa.array(count) for count in signs),
        ]

    def combine(self, state: State, groups: Groups) -> State:
        return [*_pair(_pairs_added(state, groups)), _added(state[2], groups), _added(state[3], groups)]

    def retract(self, state: State, other: State) -> State:
        pair = floats.minus(float_pair(state), float_pair(other))
        return [*_pair(pair), _less(state[2], other[2]), _less(state[3], other[3])]


class Squares(StatePart):
    """The sum of squares of numbers as doubles to about 100 bits. A FloatSum beside it counts NaN and infinities.

    Values beyond 2^450 are only counted, because their squares may not be finite.
    """

    differential = True

    def __init__(self, column: str) -> None:
        self.key = f"squares@1({column})"
        self.inputs = (column,)
        self.fields = (pa.field("high", _DOUBLE), pa.field("low", _DOUBLE), pa.field("huge", _LONG))

    def lift(self, rows: GroupedRows) -> State:
        array, groups = rows.valid(self.inputs[0])
        values = as_doubles(array)
        usual = np.abs(values) <= _HUGE
        huge = groups.at(np.isfinite(values) & ~usual).counts
        if not usual.all():
            values, groups = values[usual], groups.at(usual)
        high, low = floats.squares(values)
        pair = floats.plus(floats.summed(high, groups), floats.summed(low, groups))
        return [*_pair(pair), pa.array(huge)]

    def combine(self, state: State, groups: Groups) -> State:
        return [*_pair(_pairs_added(state, groups)), _added(state[2], groups)]

    def retract(self, state: State, other: State) -> State:
        return [*_pair(floats.minus(float_pair(state), float_pair(other))), _less(state[2], other[2])]


def as_doubles(array: pa.Array) -> Doubles:
    """Return numbers without nulls as doubles."""
    if pa.types.is_decimal(array.type):
        array = array.cast(_DOUBLE)
    return array.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)


def float_pair(state: State) -> floats.Pair:
    """Return the pair of the state of a FloatSum or of Squares."""
    return state[0].to_numpy(), state[1].to_numpy()


def _pair(pair: floats.Pair) -> list[pa.Array]:
    return [pa.array(pair[0]), pa.array(pair[1])]


def _pairs_added(state: State, groups: Groups) -> floats.Pair:
    high, low = float_pair(state)
    return floats.plus(floats.summed(high, groups), floats.summed(low, groups))


def _added(counts: pa.Array, groups: Groups) -> pa.Array:
    total = np.zeros(groups.size, dtype=np.int64)
    np.add.at(total, groups.codes, counts.to_numpy())
    return pa.array(total)


def _running(values: Int64s) -> Int64s:
    return np.concatenate([[0], np.cumsum(values)])


def _less(left: pa.Array, right: pa.Array) -> pa.Array:
    return pa.array(left.to_numpy() - right.to_numpy())
