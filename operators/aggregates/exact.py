"""Exact sums of integers and decimals, over many groups at once.

A number is held as int64 limbs of 32 bits, so that sums have room for carries. The least significant limb is first, and
the last one is signed. ``np.bincount`` adds doubles, which are exact up to 2^53: it adds 2^20 rows of 32 bits without
error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...conf.errors import AggregateOverflowError
from ...core.rows.exact_integers import Int64s
from .groups import Groups

Limbs = Sequence[Int64s]

_BITS, _MASK = 32, (1 << 32) - 1
_ROWS = 1 << 20
_EXACT = 1 << 53


def overflow(text: str, kind: pa.DataType, largest: object) -> NoReturn:
    """Raise AggregateOverflowError for results whose largest does not fit `kind`."""
    from ...expressions.kinds import spark_name

    raise AggregateOverflowError(
        f"{text} is {largest}, which {spark_name(kind)} cannot hold",
        expected=f"results within the range of {spark_name(kind)}",
        hint="cast the column first: integers to DECIMAL(38, 0), decimals to fewer digits, or to DOUBLE for an "
        "approximate result",
    )


def limbs_of(array: pa.Array) -> Limbs:
    """Return integers or unscaled decimals, without nulls, as limbs."""
    kind = array.type
    if pa.types.is_integer(kind):
        values = array.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        return [values & _MASK, values >> _BITS]
    width = kind.bit_width // _BITS
    data = array.buffers()[1]
    words = np.frombuffer(data, dtype=np.uint32)[array.offset * width : (array.offset + len(array)) * width]
    words = words.reshape(len(array), width)
    low = [words[:, limb].astype(np.int64) for limb in range(width - 1)]
    return [*low, words[:, width - 1].view(np.int32).astype(np.int64)]


def packed(limbs: Limbs, kind: pa.DataType) -> pa.Array:
    """Return limbs as a column of a sufficiently wide decimal type."""
    limbs = _carried(limbs, kind.bit_width // _BITS)
    words = np.stack([limb & _MASK for limb in limbs], axis=1).astype(np.uint32)
    return pa.Array.from_buffers(kind, len(words), [None, pa.py_buffer(np.ascontiguousarray(words))])


def summed(array: pa.Array, groups: Groups) -> Limbs:
    """Return the sum of each group's integers or decimals, without nulls."""
    short = unscaled(array)
    if short is not None and len(short) and max(int(short.max()), -int(short.min())) < _EXACT // len(short):
        total = np.bincount(groups.codes, weights=short, minlength=groups.size).astype(np.int64)
        return [total & _MASK, total >> _BITS]
    limbs = limbs_of(array) if short is None else [short & _MASK, short >> _BITS]
    sums = [np.zeros(groups.size, dtype=np.int64) for _ in limbs]
    for start in range(0, len(array), _ROWS):
        rows = slice(start, start + _ROWS)
        for place, limb in enumerate(limbs):
            part = np.bincount(groups.codes[rows], weights=limb[rows], minlength=groups.size)
            sums[place] += part.astype(np.int64)
    return _carried(sums, len(sums) + 1)


def minus(left: Limbs, right: Limbs) -> Limbs:
    """Subtract numbers, group by group."""
    return [a - b for a, b in zip(left, right, strict=True)]


def doubles(limbs: Limbs) -> npt.NDArray[np.float64]:
    """Return limbs as doubles: the nearest ones if 64 bits hold the number."""
    limbs = _carried(limbs, len(limbs))
    high = limbs[-1].astype(np.float64)
    for limb in reversed(limbs[1:-1]):
        high = high * 2.0**_BITS + limb
    far = high * 2.0**_BITS + limbs[0]
    near = (limbs[1] << _BITS) | limbs[0]
    sign = (near >> 63) & _MASK
    fits = np.ones(len(near), dtype=np.bool_)
    for limb in limbs[2:]:
        fits &= (limb & _MASK) == sign
    return np.where(fits, near.astype(np.float64), far)


def divided(limbs: Limbs, factor: int, divisor: Int64s) -> Limbs:
    """Return ``limbs · factor / divisor``, rounded half away from zero as Spark does.

    The limbs need room for the product; `factor` is at most 10,000. Divisors are from 1 to 2^31 - 1, so that a
    remainder and a limb fit 64 bits.
    """
    negative = limbs[-1] < 0
    limbs = _carried([np.where(negative, -limb, limb) * factor for limb in limbs], len(limbs))
    rest, quotient = np.zeros(len(divisor), dtype=np.int64), list[Int64s]()
    for limb in reversed(limbs):
        step = (rest << _BITS) | limb
        quotient.append(step // divisor)
        rest = step % divisor
    quotient.reverse()
    quotient[0] = quotient[0] + (2 * rest >= divisor)
    return _carried([np.where(negative, -limb, limb) for limb in quotient], len(limbs))


def unscaled(array: pa.Array) -> Int64s | None:
    """Return integers, or unscaled decimals, as int64; None if their type does not guarantee a fit."""
    kind = array.type
    if pa.types.is_integer(kind):
        return array.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    if kind.bit_width == 128 and kind.precision <= 18:
        words = np.frombuffer(array.buffers()[1], dtype=np.int64)
        return words[2 * array.offset : 2 * (array.offset + len(array)) : 2]
    return None


def _carried(limbs: Limbs, width: int) -> Limbs:
    """Return `width` limbs of 32 bits each after carrying; the last holds all that is carried to it."""
    out, carry = list[Int64s](), np.zeros(len(limbs[0]), dtype=np.int64)
    for place in range(width):
        limb = limbs[place] + carry if place < len(limbs) else carry
        last = place == width - 1
        out.append(limb if last else limb & _MASK)
        carry = limb >> _BITS
    return out
