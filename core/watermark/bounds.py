"""Bounds of feeds, which are exclusive int64 numbers, and the punctuation rows that carry them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..rows.exact_integers import Int64s

BEFORE_ALL = int(np.iinfo(np.int64).min)
"""The bound of a feed that has shown a row but has no low-watermark yet: it holds back all others."""

AFTER_ALL = int(np.iinfo(np.int64).max)
"""The bound of a feed that has ended."""

# 1700-01-01: pandas holds no earlier time in nanoseconds than 1677, Python none before the year 1 in any zone, and no
# stream is so old.
_BEGINNING_US = -8_520_336_000_000_000
_DAY_US = 86_400_000_000


def is_finite(bound: int | None) -> bool:
    """Return whether a bound is a point in time."""
    return bound is not None and BEFORE_ALL < bound < AFTER_ALL


def beginning(kind: pa.DataType) -> pa.Scalar:
    """Return the time that encodes :data:`BEFORE_ALL` in a column of this type; null if the type has none."""
    if pa.types.is_timestamp(kind):
        return pa.scalar(_BEGINNING_US, pa.timestamp("us", kind.tz)).cast(kind)
    if pa.types.is_date(kind):
        return pa.scalar(_BEGINNING_US // _DAY_US, pa.int32()).cast(pa.date32()).cast(kind)
    if pa.types.is_floating(kind):
        return pa.scalar(float(np.finfo(kind.to_pandas_dtype()).min), kind)
    if pa.types.is_integer(kind):
        return pa.scalar(int(np.iinfo(kind.to_pandas_dtype()).min), kind)
    return pa.scalar(None, kind)


def times_of_bounds(bounds: Sequence[int], kind: pa.DataType, finite: Callable[[int], pa.Scalar]) -> pa.Array:
    """Return the times of punctuation rows for some bounds; `finite` converts the bounds that are points in time.

    :data:`BEFORE_ALL` becomes :func:`beginning`, the least time that every reader can hold, and :data:`AFTER_ALL` a
    null.
    """

    def value(bound: int) -> Any:
        if bound == AFTER_ALL:
            return None
        # Not by way of Python's times, which end with the year 9999.
        return beginning(kind) if bound == BEFORE_ALL else finite(bound)

    return pa.array([value(bound) for bound in bounds], kind)


def bounds_in(column: pa.Array | pa.ChunkedArray, finite: Callable[[pa.ChunkedArray], Int64s]) -> Int64s:
    """Return the bounds in the times of punctuation rows: the inverse of :func:`times_of_bounds`."""
    column = pa.chunked_array([column]) if isinstance(column, pa.Array) else column
    ended = column.is_null().to_numpy()
    begun = pc.fill_null(pc.equal(column, beginning(column.type)), False).to_numpy(zero_copy_only=False)
    found = np.where(ended, AFTER_ALL, BEFORE_ALL)
    points = ~(ended | begun)
    if points.any():
        found[points] = finite(column.filter(pa.array(points)))
    return found


def embedded_punctuation(
    table: pa.Table, key: Sequence[str], time: str | None, deleted: npt.NDArray[np.bool_] | None = None
) -> npt.NDArray[np.bool_]:
    """Return which rows are punctuation of the feed itself.

    Such a row is not a tombstone, and has a time if there is a time column. All other columns are null;
    if there are none, the key is null.
    """
    others = [name for name in table.column_names if name != time and name not in key]
    mask = np.ones(table.num_rows, dtype=np.bool_) if deleted is None else ~deleted
    for name in others:
        mask &= table.column(name).is_null().to_numpy()
    if time is not None:
        mask &= table.column(time).is_valid().to_numpy()
    if not others:
        for name in key:
            mask &= table.column(name).is_null().to_numpy()
    return mask
