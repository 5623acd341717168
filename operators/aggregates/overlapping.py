"""The minimum or maximum of ranges of numbers, each in constant time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.rows.exact_integers import HIGHEST, LOWEST
from .groups import valid_mask
from .keys import from_keys, has_keys, sort_keys

__all__ = ["Overlapping"]

Int64s = npt.NDArray[np.int64]


class Overlapping:
    """Numbers prepared for many range minimum (or maximum) queries: a sparse table.

    The extremes of 2, 4, 8, … numbers from each place are computed when a range first needs them. Any range consists of
    two of these, which overlap. The array's type must satisfy :func:`~.keys.has_keys`; nulls do not count.
    """

    MOST = 1 << 23
    """The maximum number of stored numbers, over all lengths."""

    def __init__(self, array: pa.Array, greatest: bool) -> None:
        assert has_keys(array.type)
        self._kind = array.type
        there = valid_mask(array)
        self._before = None if array.null_count == 0 else np.concatenate([[0], np.cumsum(there)])
        if pa.types.is_floating(array.type):
            # As in Spark, NaN is the greatest of all. Null, which NumPy has as NaN, is never what is found.
            values = array.to_numpy(zero_copy_only=False).astype(np.float64)
            if greatest and self._before is not None:
                values[~there] = -np.inf
            self._outer: np.ufunc = np.maximum if greatest else np.fmin
        else:
            values = np.full(len(array), LOWEST if greatest else HIGHEST)
            values[there] = sort_keys(array.drop_null())
            self._outer = np.maximum if greatest else np.minimum
        self._levels: list[npt.NDArray[np.int64] | npt.NDArray[np.float64]] = [values]
        self._flat, self._offsets = values, np.zeros(1, dtype=np.int64)

    def fits(self, longest: int) -> bool:
        """Return whether ranges of this length fit into the memory limit."""
        return len(self._levels[0]) * max(longest, 1).bit_length() <= self.MOST

    def of(self, low: Int64s, high: Int64s) -> pa.Array:
        """Return the extreme of each range ``low[i] <= place < high[i]``; null if all are null."""
        some = low < high
        if not some.any():
            return pa.nulls(len(low), self._kind)
        low = np.where(some, low, 0)
        high = np.where(some, high, 1)
        level = np.frexp(high - low)[1].astype(np.int64) - 1
        self._reach(int(level.max()))
        base = self._offsets[level]
        found = self._outer(self._flat[base + low], self._flat[base + high - (1 << level)])
        if self._before is not None:
            some &= self._before[high] > self._before[low]
        if found.dtype == np.float64:
            values = pa.array(found).cast(self._kind)
        else:
            # The placeholder of a null may be outside the type.
            values = from_keys(np.where(some, found, 0), self._kind)
        return values if some.all() else pc.if_else(pa.array(some), values, pa.scalar(None, self._kind))

    def _reach(self, level: int) -> None:
        if level < len(self._levels):
            return
        while len(self._levels) <= level:
            last, apart = self._levels[-1], 1 << (len(self._levels) - 1)
            self._levels.append(self._outer(last[:-apart], last[apart:]))
        self._flat = np.concatenate(self._levels)
        self._offsets = np.cumsum([0, *(len(each) for each in self._levels[:-1])])
