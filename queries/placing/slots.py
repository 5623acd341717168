"""The slot of each row: a function of some of its values, the same in every process and version."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from ...core.rows.exact_integers import Int64s
from ..deltas.numbers import key_numbers, mixed

__all__ = ["slots_of"]

# Pages of the state go by the same hash. Without this, a slot would use every n-th of its pages only.
_SALT = 0x51075


def slots_of(columns: Sequence[pl.Series], slots: int) -> Int64s:
    """Return each row's slot, from 0 to ``slots`` - 1.

    Rows of equal values go to one slot: null with null, NaN with NaN, -0.0 with 0.0. Widths of integers and floats and
    units of timestamps do not matter. Unhashable values (lists, maps, intervals) are ignored.
    """
    if not columns:
        raise ValueError("what has no columns is gathered: its slot does not depend on rows")
    frame = pl.DataFrame([_plain(each).alias(str(at)) for at, each in enumerate(columns)])
    numbers = key_numbers(frame, frame.columns)
    return (mixed(numbers, _SALT) % np.uint64(slots)).astype(np.int64)


def _plain(values: pl.Series) -> pl.Series:
    dtype = values.dtype
    if isinstance(dtype, pl.Datetime):
        return values.dt.epoch("us")
    if isinstance(dtype, pl.Duration):
        return values.dt.total_microseconds()
    if dtype == pl.UInt64:
        return values.reinterpret(signed=True)
    if dtype.is_integer():
        return values.cast(pl.Int64)
    if dtype == pl.Float32:
        return values.cast(pl.Float64)
    return values
