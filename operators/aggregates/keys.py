"""Values of any ordered type as int64 in Spark's order, so that extremes are found by comparing integers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.rows.sort_keys import ordered
from .exact import packed, unscaled
from .groups import Groups

__all__ = ["from_keys", "has_keys", "is_ordered", "outermost", "sort_keys", "taken"]

Int64s = npt.NDArray[np.int64]


def has_keys(kind: pa.DataType) -> bool:
    """Return whether values of this type have int64 keys that :func:`from_keys` can convert back."""
    types = pa.types
    return (
        types.is_signed_integer(kind)
        or types.is_float32(kind)
        or types.is_float64(kind)
        or types.is_boolean(kind)
        or types.is_date32(kind)
        or (types.is_timestamp(kind) and kind.unit == "us")
        or types.is_time64(kind)
        or types.is_duration(kind)
        or (types.is_decimal128(kind) and kind.precision <= 18)
    )


def is_ordered(kind: pa.DataType) -> bool:
    """Return whether :func:`sort_keys` can compare values of this type."""
    types = pa.types
    return (
        has_keys(kind)
        or types.is_decimal128(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
    )


def sort_keys(array: pa.Array) -> Int64s:
    """Return integers in the order of the values, which are not null.

    As in Spark, NaN is greater than any number, all NaNs are equal, -0.0 equals 0.0, and strings compare by bytes. Keys
    of strings, binaries and long decimals are ranks, not comparable with those of another array.
    """
    kind = array.type
    if not has_keys(kind):
        return pc.rank(array, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    if pa.types.is_decimal(kind):
        short = unscaled(array)
        assert short is not None
        return short
    if pa.types.is_floating(kind):
        values = array.to_numpy(zero_copy_only=False).astype(np.float64)
        array = pa.array(np.where(np.isnan(values), np.nan, values))  # a NaN may have a sign
    return ordered(pa.chunked_array([array]))


def from_keys(keys: Int64s, kind: pa.DataType) -> pa.Array:
    """Return the values from which :func:`sort_keys` made `keys`; -0.0 becomes 0.0."""
    if pa.types.is_decimal(kind):
        return packed([keys & 0xFFFFFFFF, keys >> 32], kind)
    if pa.types.is_floating(kind):
        bits = np.where(keys < 0, np.int64(-(2**63)) - keys - 1, keys)
        return pa.array(bits.view(np.float64)).cast(kind)
    if pa.types.is_date(kind):
        return pa.array(keys.astype(np.int32)).view(kind)
    return pa.array(keys).cast(kind)


def outermost(groups: Groups, keys: Sequence[Int64s], last: bool) -> Int64s:
    """Return the position of each group's first (or last) row by `keys`, the most important key first; -1 without rows.

    Among rows that are equal in all keys, it is the first (or last) in their given order.
    """
    rows, codes = np.arange(len(groups.codes)), groups.codes
    for key in keys:
        mine = key[rows]
        best = np.full(groups.size, np.iinfo(np.int64).min if last else np.iinfo(np.int64).max)
        (np.maximum if last else np.minimum).at(best, codes, mine)
        equal = np.flatnonzero(mine == best[codes])
        rows, codes = rows[equal], codes[equal]
    place = np.full(groups.size, -1, dtype=np.int64)
    step = 1 if last else -1
    place[codes[::step]] = rows[::step]  # the last of equal indices is the one that stays
    return place


def taken(array: pa.Array, positions: Int64s) -> pa.Array:
    """Return the values at some positions; null at -1."""
    return array.take(pa.array(positions, mask=positions < 0))
