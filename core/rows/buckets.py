"""Buckets of keys: Spark's ``pmod(hash(k1, k2, …), buckets)``, bit for bit, computed over Arrow arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...conf.errors import SchemaError
from .columns import as_array

UInt32s = npt.NDArray[np.uint32]
Int32s = npt.NDArray[np.int32]

_SEED = 42
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_LONG_DECIMAL_DIGITS = 18


def bucket_of(columns: Sequence[pa.Array | pa.ChunkedArray], buckets: int) -> Int32s:
    """Return the bucket of each row's key, equal to Spark's ``pmod(hash(columns), buckets)``.

    So Spark can shuffle rows to the task that owns their bucket, and other readers can compute a key's bucket. Maps,
    lists and intervals raise a SchemaError.
    """
    return np.mod(spark_hash(columns), np.int32(buckets))


def spark_hash(columns: Sequence[pa.Array | pa.ChunkedArray], seed: int = _SEED) -> Int32s:
    """Return Spark's ``hash(columns)`` of each row: Murmur3 (x86, 32 bits), chained over the columns.

    A null leaves the hash of the columns before it unchanged. Only the default seed gives Spark's values.
    """
    if not columns:
        raise ValueError("a hash needs at least one column")
    state = np.full(len(columns[0]), seed, dtype=np.uint32)
    for column in columns:
        state = _chain(as_array(column), state)
    return state.view(np.int32)


def integers_with_hash(wanted: Iterable[int]) -> tuple[int, ...]:
    """Return, for each wanted number, the one INT whose Spark ``hash`` is that number.

    Spark puts a group into the task ``pmod(hash(group), tasks)``. Groups numbered by these integers thus go to the
    tasks in turn, however many tasks there are.
    """
    state = np.fromiter(wanted, dtype=np.int64).astype(np.int32).view(np.uint32)
    # Each step of the hash of one word is invertible; here they are undone, last first.
    state = state ^ (state >> np.uint32(16))
    state = state * _inverse(0xC2B2AE35)
    state = state ^ (state >> np.uint32(13)) ^ (state >> np.uint32(26))
    state = state * _inverse(0x85EBCA6B)
    state = state ^ (state >> np.uint32(16))
    state = (state ^ np.uint32(4)) - np.uint32(0xE6546B64)
    state = state * _inverse(5)
    state = ((state >> np.uint32(13)) | (state << np.uint32(19))) ^ np.uint32(_SEED)
    state = state * _inverse(int(_C2))
    state = (state >> np.uint32(15)) | (state << np.uint32(17))
    return tuple((state * _inverse(int(_C1))).view(np.int32).tolist())


def _inverse(odd: int) -> np.uint32:
    """Return the factor that undoes a multiplication by an odd number in 32 bits."""
    return np.uint32(pow(odd, -1, 1 << 32))


def _chain(array: pa.Array, state: UInt32s) -> UInt32s:
    kind = array.type
    if pa.types.is_struct(kind):
        for child in array.flatten():  # a null struct makes its fields null
            state = _chain(child, state)
        return state
    if pa.types.is_null(kind):
        return state
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        hashed = _hash_bytes(array, np.int32, state)
    elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        hashed = _hash_bytes(array, np.int64, state)
    elif pa.types.is_decimal128(kind):
        hashed = _hash_decimal(array, state)
    else:
        hashed = _hash_fixed(array, state)
    if array.null_count == 0:
        return hashed
    return np.where(array.is_valid().to_numpy(zero_copy_only=False), hashed, state)


def _hash_fixed(array: pa.Array, state: UInt32s) -> UInt32s:
    kind = array.type
    if pa.types.is_boolean(kind):
        return _hash_int(_values(array.cast(pa.uint8()), np.uint8), state)
    if pa.types.is_integer(kind) and pa.types.is_signed_integer(kind):
        values = _values(array, kind.to_pandas_dtype())
        return _hash_long(values, state) if kind.bit_width == 64 else _hash_int(values, state)
    if pa.types.is_date32(kind):
        return _hash_int(_values(array, np.int32), state)
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return _hash_long(_values(array, np.int64), state)
    if pa.types.is_float32(kind):
        values = _values(array, np.float32) + np.float32(0)  # -0.0 is hashed as 0.0
        return _hash_int(np.where(np.isnan(values), np.float32(np.nan), values).view(np.int32), state)
    if pa.types.is_float64(kind):
        values = _values(array, np.float64) + 0.0
        return _hash_long(np.where(np.isnan(values), np.nan, values).view(np.int64), state)
    raise SchemaError(
        f"a key of type {kind} cannot be put into buckets",
        expected="whole numbers, floats, decimals, text, binary, dates, timestamps, booleans, or structs of these",
        hint="cast the key, or make a column of such a type from it",
    )


def _values(array: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return the values as they are in memory, including whatever is under a null."""
    buffer = array.buffers()[1]
    if len(array) == 0 or buffer is None:
        return np.zeros(len(array), dtype=dtype)
    return np.frombuffer(buffer, dtype=dtype, count=len(array) + array.offset)[array.offset :]


def _mix_k(word: UInt32s) -> UInt32s:
    word = word * _C1
    word = (word << np.uint32(15)) | (word >> np.uint32(17))
    return word * _C2


def _mix_h(state: UInt32s, mixed: UInt32s) -> UInt32s:
    state = state ^ mixed
    state = (state << np.uint32(13)) | (state >> np.uint32(19))
    return state * np.uint32(5) + np.uint32(0xE6546B64)


def _finish(state: UInt32s, length: UInt32s | np.uint32) -> UInt32s:
    state = state ^ length
    state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return state ^ (state >> np.uint32(16))


def _hash_int(values: npt.NDArray[Any], state: UInt32s) -> UInt32s:
    words = values.astype(np.int32).view(np.uint32)
    return _finish(_mix_h(state, _mix_k(words)), np.uint32(4))


def _hash_long(values: npt.NDArray[Any], state: UInt32s) -> UInt32s:
    halves = np.ascontiguousarray(values, dtype="<i8").view("<u4").reshape(-1, 2)
    state = _mix_h(state, _mix_k(halves[:, 0]))
    return _finish(_mix_h(state, _mix_k(halves[:, 1])), np.uint32(8))


def _hash_bytes(array: pa.Array, offset_type: npt.DTypeLike, state: UInt32s) -> UInt32s:
    """Hash text and binary as Spark does: first whole little-endian words, then each byte of the tail, signed."""
    rows = len(array)
    if rows == 0:
        return state
    _, offset_buffer, data = array.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=offset_type)[array.offset : array.offset + rows + 1].astype(np.int64)
    lengths = offsets[1:] - offsets[:-1]
    payload = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8)
    return _finish(_mix_ranges(payload, offsets[:-1], lengths, state.copy()), lengths.astype(np.uint32))


def _mix_ranges(
    payload: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], state: UInt32s
) -> UInt32s:
    words = lengths >> 2
    # A view of the payload as a word beginning at every byte.
    every_word = (
        np.ndarray(max(len(payload) - 3, 0), dtype="<u4", buffer=payload, strides=(1,)) if len(payload) else None
    )
    active: npt.NDArray[np.int64] = np.flatnonzero(words)
    position = 0
    while len(active):
        assert every_word is not None
        word = every_word[starts[active] + 4 * position]
        state[active] = _mix_h(state[active], _mix_k(word))
        position += 1
        active = active[words[active] > position]
    tails = starts + 4 * words
    tail_lengths = lengths & 3
    for nth in range(3):
        active = np.flatnonzero(tail_lengths > nth)
        byte = payload[tails[active] + nth].view(np.int8).astype(np.int32).view(np.uint32)
        state[active] = _mix_h(state[active], _mix_k(byte))
    return state


def _hash_decimal(array: pa.Array, state: UInt32s) -> UInt32s:
    halves = np.frombuffer(array.buffers()[1], dtype="<i8").reshape(-1, 2)[array.offset : array.offset + len(array)]
    if array.type.precision <= _LONG_DECIMAL_DIGITS:
        return _hash_long(halves[:, 0], state)
    # Spark hashes the shortest big-endian two's complement (BigInteger.toByteArray): as many bytes as the value needs.
    big_endian = halves[:, ::-1].astype(">i8").view(np.uint8).reshape(-1, 16)
    filler = np.where(halves[:, 1] < 0, 0xFF, 0).astype(np.uint8)
    negative = (halves[:, 1] < 0)[:, None]
    # A leading byte can go while it is filler and the byte after it has the same sign bit.
    redundant = (big_endian[:, :-1] == filler[:, None]) & ((big_endian[:, 1:] >= 0x80) == negative)
    skipped = np.cumprod(redundant, axis=1).sum(axis=1).astype(np.int64)
    starts = np.arange(len(halves), dtype=np.int64) * 16 + skipped
    lengths = 16 - skipped
    payload = np.ascontiguousarray(big_endian).reshape(-1)
    return _finish(_mix_ranges(payload, starts, lengths, state.copy()), lengths.astype(np.uint32))


def mix_bits(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return numbers mixed by the finalizer of splitmix64: none equal that differed, and near ones far apart."""
    bits = bits ^ (bits >> np.uint64(30))
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return bits
