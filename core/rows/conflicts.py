"""Rows that conflict: one key and one time, but different contents. No function loops over rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["differing", "ties_within"]

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def ties_within(codes: Int64s, keys: int, time: Int64s | None, newest: Int64s) -> Int64s:
    """Return pairs of a batch's rows with one key and one time: the key's newest row, and one that it supersedes.

    `codes` and `keys` are from :func:`~upstream.core.rows.newest.key_codes`; `newest` has the positions of the newest
    rows. Without times there are no ties.
    """
    if time is None:
        return np.empty((0, 2), dtype=np.int64)
    winner = np.zeros(keys, dtype=np.int64)
    winner[codes[newest]] = newest
    mine = winner[codes]
    tied = np.flatnonzero((time == time[mine]) & (mine != np.arange(len(codes))))
    return np.stack([mine[tied], tied], axis=1)


def differing(left: pa.Table, at: Int64s, right: pa.Table, other: Int64s, names: Sequence[str]) -> Mask:
    """Return which pairs of rows, at `at` in `left` and at `other` in `right`, differ in any column of `names`.

    A null equals a null, and NaN equals NaN.
    """
    differ = np.zeros(len(at), dtype=np.bool_)
    if len(at) == 0:
        return differ
    one, two = left.select(names).take(pa.array(at)), right.select(names).take(pa.array(other))
    for name in names:
        differ |= _unequal(_one_array(one.column(name)), _one_array(two.column(name)))
    return differ


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _unequal(one: pa.Array, two: pa.Array) -> Mask:
    here, there = (array.is_valid().to_numpy(zero_copy_only=False) for array in (one, two))
    differ = np.asarray(here != there, dtype=np.bool_)
    kind = one.type
    if pa.types.is_struct(kind):
        for left, right in zip(one.flatten(), two.flatten(), strict=True):
            differ |= _unequal(left, right)
    elif pa.types.is_nested(kind):
        differ |= _unequal_lists(one, two, here & there)
    else:
        unequal = pc.fill_null(pc.not_equal(one, two), False)
        if pa.types.is_floating(kind):
            unequal = pc.and_not(unequal, pc.fill_null(pc.and_(pc.is_nan(one), pc.is_nan(two)), False))
        differ |= unequal.to_numpy(zero_copy_only=False)
    return differ


def _unequal_lists(one: pa.Array, two: pa.Array, both: Mask) -> Mask:
    """Return which lists or maps differ in length or in any element. Spark keeps the order of a map's entries."""
    differ = np.zeros(len(one), dtype=np.bool_)
    sizes = [pc.fill_null(pc.list_value_length(_as_list(array)), 0).to_numpy() for array in (one, two)]
    differ[both & (sizes[0] != sizes[1])] = True
    rows = np.flatnonzero(both & (sizes[0] == sizes[1]))
    left, right = (_as_list(array.take(pa.array(rows))).flatten() for array in (one, two))
    parent = np.repeat(rows, sizes[0][rows])
    differ[parent[_unequal(left, right)]] = True
    return differ


def _as_list(array: pa.Array) -> pa.Array:
    if not pa.types.is_map(array.type):
        return array
    entries = pa.list_(pa.struct([array.type.key_field, array.type.item_field]))
    return array.cast(entries)
