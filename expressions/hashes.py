"""Spark's ``hash`` (Murmur3) and ``xxhash64``, each value's hash the next one's seed; digests, CRC-32."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from ..core.rows.buckets import spark_hash
from . import kinds
from .coercion import Rule, Signature, misfit
from .columnar import Builder, Kernel, aligned, flat_bytes, on_series
from .nodes import Call, Expression

U64 = npt.NDArray[np.uint64]
_SEED = 42
_LONG_DIGITS = 18
"""Spark keeps and hashes decimals of up to this many digits in 64 bits; it hashes longer ones as bytes."""


def _rule(function: str, arguments: Sequence[Expression]) -> Expression:
    simple = (kinds.BOOLEAN, kinds.FLOAT, kinds.DOUBLE, kinds.TEXT, kinds.BINARY, kinds.DURATION, kinds.NULL)
    for each in arguments:
        kind = each.type
        if not (kind in simple or kinds.is_integral(kind) or kinds.is_decimal(kind) or kinds.is_time(kind)):
            raise misfit(function, arguments, "values that are not arrays, maps, structs or intervals of months")
    if not arguments:
        raise misfit(function, arguments, "one value or more")
    return Call(function, tuple(arguments), kinds.INT if function == "hash" else kinds.LONG)


HASH_RULES: Mapping[str, Rule] = {"hash": _rule, "xxhash64": _rule}


# --- xxHash, of 64 bits -----------------------------------------------------------------------------------------------

_ONE, _TWO, _THREE, _FOUR, _FIVE = (
    np.uint64(each)
    for each in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)


def _read(flat: npt.NDArray[np.uint8], places: npt.NDArray[np.int64], dtype: Any) -> Any:
    """Return the little-endian words at some places."""
    size = np.dtype(dtype).itemsize
    return (
        np.ascontiguousarray(flat[places[:, None] + np.arange(size)])
        .view(np.dtype(dtype).newbyteorder("<"))[:, 0]
        .astype(dtype)
    )


def _rolled(value: U64, by: int) -> U64:
    return (value << np.uint64(by)) | (value >> np.uint64(64 - by))


def _avalanche(state: U64) -> U64:
    state = (state ^ (state >> np.uint64(33))) * _TWO
    state = (state ^ (state >> np.uint64(29))) * _THREE
    return state ^ (state >> np.uint64(32))


def _with_long(state: U64, word: U64) -> U64:
    return _rolled(state ^ (_rolled(word * _TWO, 31) * _ONE), 27) * _ONE + _FOUR


def _with_int(state: U64, word: U64) -> U64:
    return _rolled(state ^ (word * _ONE), 23) * _TWO + _THREE


def _xx_int(values: npt.NDArray[np.int32], seed: U64) -> U64:
    return _avalanche(_with_int(seed + _FIVE + np.uint64(4), values.view(np.uint32).astype(np.uint64)))


def _xx_long(values: npt.NDArray[np.int64], seed: U64) -> U64:
    return _avalanche(_with_long(seed + _FIVE + np.uint64(8), values.view(np.uint64)))


def _xx_bytes(flat: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64], seed: U64) -> U64:
    starts, lengths = ends[:-1].copy(), np.diff(ends)
    state = seed + _FIVE
    long = lengths >= 32
    if long.any():
        state[long] = _stripes(flat, starts[long], lengths[long], seed[long])
    state += lengths.astype(np.uint64)
    starts += lengths // 32 * 32
    rest = lengths % 32
    for at in range(3):
        some = rest // 8 > at
        state[some] = _with_long(state[some], _read(flat, starts[some] + 8 * at, np.uint64))
    starts += rest // 8 * 8
    some = rest % 8 >= 4
    state[some] = _with_int(state[some], _read(flat, starts[some], np.uint32).astype(np.uint64))
    starts += np.where(some, 4, 0)
    for at in range(3):
        some = rest % 4 > at
        byte = flat[starts[some] + at].astype(np.uint64)
        state[some] = _rolled(state[some] ^ (byte * _FIVE), 11) * _ONE
    return _avalanche(state)


def _stripes(
    flat: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], seed: U64
) -> U64:
    lanes = [seed + _ONE + _TWO, seed + _TWO, seed.copy(), seed - _ONE]
    for stripe in range(int((lengths // 32).max())):
        some = lengths // 32 > stripe
        for at, lane in enumerate(lanes):
            word = _read(flat, starts[some] + 32 * stripe + 8 * at, np.uint64)
            lane[some] = _rolled(lane[some] + word * _TWO, 31) * _ONE
    state = sum((_rolled(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)), np.zeros_like(seed))
    for lane in lanes:
        state = (state ^ (_rolled(lane * _TWO, 31) * _ONE)) * _ONE + _FOUR
    return state


# --- of any type ------------------------------------------------------------------------------------------------------


def _decimal_bytes(values: pl.Series) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the fewest big-endian bytes that hold each signed number, as Java's BigInteger does."""
    array: Any = values.rechunk().to_arrow()
    data = np.frombuffer(array.buffers()[1], np.uint8)[16 * array.offset :][: 16 * len(array)].reshape(-1, 16)[:, ::-1]
    sign = np.where(data[:, 0] >= 0x80, 0xFF, 0).astype(np.uint8)
    # A leading byte is omitted if it only repeats the sign of the next one.
    spare = (data[:, :-1] == sign[:, None]) & ((data[:, 1:] >= 0x80) == (sign[:, None] == 0xFF))
    skipped = np.cumprod(spare, axis=1).sum(axis=1)
    kept = np.arange(16)[None, :] >= skipped[:, None]
    return data[kept], np.concatenate([[0], np.cumsum(16 - skipped)])


def _xx(kind: pa.DataType, values: pl.Series, seed: U64) -> U64:
    if kind in (kinds.TEXT, kinds.BINARY):
        return _xx_bytes(*flat_bytes(values.cast(pl.Binary)), seed)
    if kinds.is_decimal(kind) and kind.precision > _LONG_DIGITS:
        zero = pl.Series([0]).cast(values.dtype).item()
        return _xx_bytes(*_decimal_bytes(values.fill_null(zero)), seed)
    if kind in (kinds.FLOAT, kinds.DOUBLE):
        given = values.fill_null(0.0).to_numpy().copy()
        given[given == 0] = 0.0  # of -0.0, too
        given[np.isnan(given)] = np.nan
        return _xx_int(given.view(np.int32), seed) if kind == kinds.FLOAT else _xx_long(given.view(np.int64), seed)
    if kind in (kinds.BOOLEAN, kinds.DATE) or (kinds.is_integral(kind) and kind != kinds.LONG):
        return _xx_int(values.to_physical().cast(pl.Int32).fill_null(0).to_numpy().copy(), seed)
    return _xx_long(values.to_physical().cast(pl.Int64).fill_null(0).to_numpy().copy(), seed)


def _xxhash64(types: Sequence[pa.DataType], columns: Sequence[pl.Series]) -> npt.NDArray[np.int64]:
    state = np.full(len(columns[0]), _SEED, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for kind, column in zip(types, columns, strict=True):
            if kind != kinds.NULL:
                state = np.where(column.is_null().to_numpy(), state, _xx(kind, column, state))
    return state.view(np.int64)


def _murmur3(types: Sequence[pa.DataType], columns: Sequence[pl.Series]) -> npt.NDArray[np.int32]:
    return spark_hash([_in_arrow(kind, column) for kind, column in zip(types, columns, strict=True)])


def _in_arrow(kind: pa.DataType, column: pl.Series) -> pa.Array:
    if kind == kinds.DURATION:
        column = column.to_physical()
    array = column.to_arrow(compat_level=pl.CompatLevel.oldest())
    # Decimals have the precision of the type, by which Spark chooses their form; other columns have its form already.
    return array.cast(kind) if kinds.is_decimal(kind) else array


def _hashed(function: Callable[..., npt.NDArray[Any]], dtype: type[pl.DataType]) -> Kernel:
    def kernel(build: Builder, *values: pl.Expr) -> pl.Expr:
        types = [each.type for each in build.call.arguments]
        return pl.map_batches(
            list(values), lambda series: pl.Series(function(types, aligned(series)), dtype=dtype), return_dtype=dtype
        )

    return kernel


HASHES: Mapping[str, Kernel] = {"hash": _hashed(_murmur3, pl.Int32), "xxhash64": _hashed(_xxhash64, pl.Int64)}


def _digest(name: str, value: bytes) -> str:
    return getattr(hashlib, name)(value, usedforsecurity=False).hexdigest()


def _of(function: Callable[[bytes], Any], value: pl.Expr, dtype: type[pl.DataType]) -> pl.Expr:
    """Return a function of bytes as an expression. OpenSSL's loops take longer than the call of Python per value."""

    def run(values: pl.Series) -> pl.Series:
        return pl.Series([None if each is None else function(each) for each in values.to_list()], dtype=dtype)

    return on_series(run, value, dtype=dtype)


def _hash(name: str) -> Kernel:
    return lambda _, value: _of(partial(_digest, name), value, pl.String)


def _sha2(build: Builder, value: pl.Expr, _: pl.Expr) -> pl.Expr:
    bits = build.constant(1, "the number of bits")
    if bits not in (0, 224, 256, 384, 512):  # null, as in Spark
        return pl.when(pl.lit(value=False)).then(value).cast(pl.Binary).bin.encode("hex")
    return _of(partial(_digest, f"sha{bits or 256}"), value, pl.String)


DIGEST_RULES: Mapping[str, Rule] = {
    "md5": Signature(kinds.TEXT, (kinds.BINARY,)),
    **dict.fromkeys(("sha", "sha1"), Signature(kinds.TEXT, (kinds.BINARY,), name="sha1")),
    "sha2": Signature(kinds.TEXT, (kinds.BINARY, kinds.INT)),
    "crc32": Signature(kinds.LONG, (kinds.BINARY,)),
}

DIGESTS: Mapping[str, Kernel] = {
    "md5": _hash("md5"),
    "sha1": _hash("sha1"),
    "sha2": _sha2,
    "crc32": lambda _, value: _of(zlib.crc32, value, pl.Int64),
}
