"""Times and sequences of any type as int64 in the same order, so that operators compare only numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .exact_integers import Int64s

_MOST = 1 << 62


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


def places(columns: Sequence[pa.ChunkedArray]) -> Int64s:
    """Return the ranks of rows in the order of some columns, the first one before the next; structs count as their
    fields.

    The ranks by one column of times or numbers are its :func:`ordered` values. Others are comparable only among these
    rows.
    """
    leaves = _leaves(columns)
    if len(leaves) == 1 and _is_number(leaves[0].type):
        return ordered(leaves[0])
    found, size = _codes(leaves[0])
    for leaf in leaves[1:]:
        codes, count = _codes(leaf)
        if size * count > _MOST:
            (found, size), (codes, count) = _dense(found), _dense(codes)
        # Dense, both are at most the rows: their product overflows from two billion rows on, which no batch has.
        found, size = found * count + codes, size * count
    return found


def places_of_both(
    columns: Sequence[pa.ChunkedArray], at: Int64s, others: Sequence[pa.ChunkedArray], other: Int64s
) -> tuple[Int64s, Int64s]:
    """Return the :func:`places` of rows of two tables, comparable with each other; `at` and `other` are positions."""
    if len(columns) == 1 and _is_number(columns[0].type):
        return ordered(columns[0])[at], ordered(others[0])[other]
    pairs = zip(columns, others, strict=True)
    both = [pa.chunked_array([*one.take(at).chunks, *two.take(other).chunks], one.type) for one, two in pairs]
    found = places(both)
    return found[: len(at)], found[len(at) :]


def _leaves(columns: Sequence[pa.ChunkedArray]) -> list[pa.ChunkedArray]:
    return [leaf for each in columns for leaf in (_leaves(each.flatten()) if pa.types.is_struct(each.type) else [each])]


def _is_number(kind: pa.DataType) -> bool:
    return (
        pa.types.is_integer(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_date(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
    )


def _codes(column: pa.ChunkedArray) -> tuple[Int64s, int]:
    """Return codes from 0 in the order of the values, and one more than the largest possible code."""
    if len(column) == 0:
        return np.empty(0, dtype=np.int64), 1
    if _is_number(column.type):
        values = ordered(column)
        low, high = int(values.min()), int(values.max())
        return (values - low, high - low + 1) if high - low < _MOST else _dense(values)
    encoded = column.combine_chunks().dictionary_encode()
    rank = np.empty(len(encoded.dictionary), dtype=np.int64)
    rank[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(rank))
    return rank[encoded.indices.to_numpy()], len(rank)


def _dense(values: Int64s) -> tuple[Int64s, int]:
    distinct, codes = np.unique(values, return_inverse=True)
    return codes.reshape(-1), len(distinct)


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
