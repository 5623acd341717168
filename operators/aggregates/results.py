"""Results from sums, as Spark defines them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from . import exact, floats
from .numbers import SCALE, float_pair
from .parts import State

__all__ = ["average", "decimal_average", "exact_average", "exact_sum", "float_sum", "spread", "where"]

Doubles = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]


def where(mask: npt.NDArray[np.bool_], values: pa.Array | Doubles) -> pa.Array:
    """Return the values, or null where the mask is not set."""
    array = pa.array(values) if isinstance(values, np.ndarray) else values
    return pc.if_else(pa.array(mask), array, pa.scalar(None, array.type))


def exact_sum(count: State, total: State, kind: pa.DataType, text: str) -> pa.Array:
    """Return a sum of integers or decimals; null for a group without values."""
    return where(_counts(count) > 0, _fitting(total[0], kind, text))


def exact_average(count: State, total: State) -> pa.Array:
    """Return the mean of integers."""
    rows = _counts(count)
    return where(rows > 0, exact.doubles(exact.limbs_of(total[0])) / np.maximum(rows, 1))


def decimal_average(count: State, total: State, kind: pa.DataType, text: str) -> pa.Array:
    """Return the mean of decimals, rounded half away from zero."""
    rows, scale = _counts(count), total[0].type.scale
    if len(rows) and int(rows.max()) >= 1 << 31:
        raise NotImplementedError(f"{text} of {rows.max()} rows in one group: at most 2^31 - 1 can be divided by")
    limbs = exact.divided(exact.limbs_of(total[0]), 10 ** (kind.scale - scale), np.maximum(rows, 1))
    return where(rows > 0, _fitting(exact.packed(limbs, pa.decimal256(76, kind.scale)), kind, text))


def float_sum(count: State, total: State) -> pa.Array:
    """Return a sum of doubles."""
    return where(_counts(count) > 0, _finite_or_not(total))


def average(count: State, total: State) -> pa.Array:
    """Return the mean of doubles."""
    rows = _counts(count)
    return where(rows > 0, _finite_or_not(total) / np.maximum(rows, 1))


def spread(count: State, total: State, squares: State, sample: bool, root: bool) -> pa.Array:
    """Return the variance or standard deviation, of the population or estimated from a sample."""
    rows = _counts(count)
    huge = squares[2].to_numpy() > 0
    some = np.maximum(rows, 1).astype(np.float64)
    high, low = (np.where(huge, 0, part) / SCALE for part in float_pair(total))
    # Σ (v - mean)² = Σ v² - (Σ v)² / n: the difference that doubles cannot take, but pairs can.
    pair = floats.minus(float_pair(squares), floats.times(floats.over((high, low), some), (high, low)))
    about = np.maximum(pair[0] + pair[1], 0.0)
    about = np.where(huge, np.inf, about)
    about = np.where(rows == 1, 0.0, about)
    about = np.where(_specials(total).any(axis=0), np.nan, about)
    about = about / (np.maximum(rows - 1, 1) if sample else some)
    return where(rows > sample, np.sqrt(about) if root else about)


def _counts(count: State) -> Int64s:
    return count[0].to_numpy()


def _specials(total: State) -> npt.NDArray[np.bool_]:
    """Return two masks of a FloatSum: groups with positive, and with negative, infinities."""
    return np.stack([total[2].to_numpy() > 0, total[3].to_numpy() > 0])


def _finite_or_not(total: State) -> Doubles:
    high, low = float_pair(total)
    positive, negative = _specials(total)
    with np.errstate(over="ignore"):
        plain = (high + low) / SCALE  # beyond the greatest double it is infinite, as in Spark
    return np.select([positive & negative, positive, negative], [np.nan, np.inf, -np.inf], plain)


def _fitting(sums: pa.Array, kind: pa.DataType, text: str) -> pa.Array:
    try:
        return sums.cast(kind)
    except pa.ArrowInvalid:
        exact.overflow(text, kind, max(sums.to_pylist(), key=abs))
