"""Times of any type as int64 in the same order, so that operators compare numbers only."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["in_order", "ordered"]

Int64s = npt.NDArray[np.int64]


def ordered(column: pa.ChunkedArray) -> Int64s:
    """Return times of any ordered type as int64 in that order: microseconds, days, whole numbers, or a float's bits."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).to_numpy()
    if pa.types.is_date(kind):
        return column.cast(pa.date32()).cast(pa.int32()).to_numpy().astype(np.int64)
    if pa.types.is_floating(kind):
        bits = (column.to_numpy().astype(np.float64) + 0.0).view(np.int64)
        return np.where(bits < 0, np.int64(-(2**63)) - bits - 1, bits)
    return column.cast(pa.int64()).to_numpy()


def in_order(value: int, kind: pa.DataType) -> pa.Scalar:
    """Return the time of type `kind` that :func:`ordered` converted to `value`."""
    if pa.types.is_timestamp(kind):
        return pa.scalar(value, pa.timestamp("us", kind.tz)).cast(kind)
    if pa.types.is_date(kind):
        return pa.scalar(value, pa.int32()).cast(pa.date32()).cast(kind)
    if pa.types.is_floating(kind):
        bits = value if value >= 0 else -(2**63) - value - 1
        return pa.scalar(float(np.array([bits], dtype=np.int64).view(np.float64)[0]), kind)
    return pa.scalar(value, pa.int64()).cast(kind)
