"""MD5 (RFC 1321), SHA-1 and SHA-2 (FIPS 180-4), and CRC-32 of many values at once, with arrays as words."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from .coercion import Rule, Signature
from .columnar import Builder, Kernel, flat_bytes, on_series
from .kinds import BINARY, INT, LONG, TEXT

Words = npt.NDArray[Any]


def _blocks(values: pl.Series, size: int, order: Literal["<", ">"]) -> Iterator[tuple[npt.NDArray[np.bool_], Words]]:
    """Yield, per block of the padded values, a mask of the values that have it and their words."""
    flat, ends = flat_bytes(values)
    starts, lengths = ends[:-1], np.diff(ends)
    word = np.dtype("u4" if size == 64 else "u8").newbyteorder(order)
    counts = (lengths + 2 * word.itemsize) // size + 1
    padded = np.concatenate([flat, np.zeros(1, np.uint8)])
    for block in range(int(counts.max(initial=0))):
        active = counts > block
        begin, length = starts[active][:, None], lengths[active][:, None]
        places = block * size + np.arange(size)
        found = np.where(places < length, padded[np.minimum(begin + places, len(flat))], 0).astype(np.uint8)
        found[places[None, :] == length] = 0x80
        last = counts[active] == block + 1
        bits = (lengths[active] * 8).astype(np.dtype("u8").newbyteorder(order))
        found[last, size - 8 :] = bits[last].reshape(-1, 1).view(np.uint8)
        yield active, found.view(word).astype(word.newbyteorder("="))


def _digest(
    values: pl.Series,
    start: list[int],
    size: int,
    order: Literal["<", ">"],
    step: Callable[[Words, list[Words]], list[Words]],
    words: int,
) -> pl.Series:
    """Return the digests as hexadecimal text; null for null."""
    dtype = np.uint32 if size == 64 else np.uint64
    state = np.tile(np.array(start, dtype=dtype), (len(values), 1))
    with np.errstate(over="ignore"):
        for active, block in _blocks(values, size, order):
            before = state[active]
            made = step(block, [before[:, at] for at in range(len(start))])
            state[active] = before + np.stack(made, axis=1)
    raw = np.ascontiguousarray(state.astype(np.dtype(dtype).newbyteorder(order)))
    width = raw.dtype.itemsize * len(start)
    array = pa.Array.from_buffers(pa.binary(width), len(values), [None, pa.py_buffer(raw.tobytes())])
    made_text = (
        pl.Series(pl.from_arrow(array.cast(pa.large_binary()))).bin.encode("hex").str.slice(0, words * 2 * raw.itemsize)
    )
    return made_text.set(values.is_null(), None) if values.null_count() else made_text


def _left(value: Words, by: int) -> Words:
    return (value << np.uint32(by)) | (value >> np.uint32(32 - by))


_MD5_TURNS = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]]
_MD5_SINES = [np.uint32(int(abs(math.sin(each + 1)) * 2**32)) for each in range(64)]


def _md5_step(block: Words, state: list[Words]) -> list[Words]:
    a, b, c, d = state
    for at in range(64):
        turn = at // 16
        if turn == 0:
            mixed, word = (b & c) | (~b & d), at
        elif turn == 1:
            mixed, word = (d & b) | (~d & c), (5 * at + 1) % 16
        elif turn == 2:
            mixed, word = b ^ c ^ d, (3 * at + 5) % 16
        else:
            mixed, word = c ^ (b | ~d), 7 * at % 16
        turned = _left(a + mixed + _MD5_SINES[at] + block[:, word], _MD5_TURNS[turn][at % 4])
        a, b, c, d = d, b + turned, b, c
    return [a, b, c, d]


def _sha1_step(block: Words, state: list[Words]) -> list[Words]:
    words = [block[:, at] for at in range(16)]
    for at in range(16, 80):
        words.append(_left(words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16], 1))
    a, b, c, d, e = state
    for at in range(80):
        turn = at // 20
        mixed = ((b & c) | (~b & d), b ^ c ^ d, (b & c) | (b & d) | (c & d), b ^ c ^ d)[turn]
        constant = np.uint32((0x5A827999, 0x6ED9EBA1, 0x8F1BBCDC, 0xCA62C1D6)[turn])
        a, b, c, d, e = _left(a, 5) + mixed + e + constant + words[at], a, _left(b, 30), c, d
    return [a, b, c, d, e]


def _primes(count: int) -> list[int]:
    found: list[int] = []
    at = 2
    while len(found) < count:
        if all(at % each for each in found):
            found.append(at)
        at += 1
    return found


def _root_bits(value: int, root: int, bits: int) -> int:
    """Return the first bits after the point of a square or cube root."""
    scaled = value << (root * bits)
    low, high = 0, 1 << (bits + 10)
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**root <= scaled else (low, middle)
    return low % (1 << bits)


def _sha2_step(bits: int) -> Callable[[Words, list[Words]], list[Words]]:
    dtype = np.uint32 if bits == 32 else np.uint64
    rounds = 64 if bits == 32 else 80
    constants = [dtype(_root_bits(each, 3, bits)) for each in _primes(rounds)]
    small = ((7, 18, 3), (17, 19, 10)) if bits == 32 else ((1, 8, 7), (19, 61, 6))
    large = ((2, 13, 22), (6, 11, 25)) if bits == 32 else ((28, 34, 39), (14, 18, 41))

    def right(value: Words, by: int) -> Words:
        return (value >> dtype(by)) | (value << dtype(bits - by))

    def step(block: Words, state: list[Words]) -> list[Words]:
        words = [block[:, at] for at in range(16)]
        for at in range(16, rounds):
            mixed = [
                right(words[at - back], one) ^ right(words[at - back], two) ^ (words[at - back] >> dtype(by))
                for back, (one, two, by) in zip((15, 2), small, strict=True)
            ]
            words.append(words[at - 16] + mixed[0] + words[at - 7] + mixed[1])
        a, b, c, d, e, f, g, h = state
        for at in range(rounds):
            second = right(e, large[1][0]) ^ right(e, large[1][1]) ^ right(e, large[1][2])
            one = h + second + ((e & f) ^ (~e & g)) + constants[at] + words[at]
            first = right(a, large[0][0]) ^ right(a, large[0][1]) ^ right(a, large[0][2])
            two = first + ((a & b) ^ (a & c) ^ (b & c))
            a, b, c, d, e, f, g, h = one + two, a, b, c, d + one, e, f, g
        return [a, b, c, d, e, f, g, h]

    return step


_MD5_START = [0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476]


def _sha2_start(bits: int) -> list[int]:
    return [_root_bits(each, 2, bits) for each in _primes(16)]


def _md5(values: pl.Series) -> pl.Series:
    return _digest(values, _MD5_START, 64, "<", _md5_step, 4)


def _sha1(values: pl.Series) -> pl.Series:
    return _digest(values, [*_MD5_START, 0xC3D2E1F0], 64, ">", _sha1_step, 5)


def _sha256(values: pl.Series) -> pl.Series:
    return _digest(values, _sha2_start(32)[:8], 64, ">", _sha2_step(32), 8)


def _sha224(values: pl.Series) -> pl.Series:
    low = [each % 2**32 for each in _sha2_start(64)[8:]]
    return _digest(values, low, 64, ">", _sha2_step(32), 7)


def _sha512(values: pl.Series) -> pl.Series:
    return _digest(values, _sha2_start(64)[:8], 128, ">", _sha2_step(64), 8)


def _sha384(values: pl.Series) -> pl.Series:
    return _digest(values, _sha2_start(64)[8:], 128, ">", _sha2_step(64), 6)


_SIZES = {0: _sha256, 224: _sha224, 256: _sha256, 384: _sha384, 512: _sha512}
_CRC = np.array([zlib.crc32(bytes([each ^ 0xFF])) ^ 0xFF000000 for each in range(256)], dtype=np.uint32)
"""The effect of one byte on the remainder: its CRC without the initial and the final XOR."""


def _crc32(values: pl.Series) -> pl.Series:
    flat, ends = flat_bytes(values)
    starts, lengths = ends[:-1], np.diff(ends)
    order = np.argsort(-lengths, kind="stable")
    starts, longest = starts[order], lengths[order]
    rest = np.full(len(values), 0xFFFFFFFF, dtype=np.uint32)
    for at in range(int(longest.max(initial=0))):
        count = int(np.searchsorted(-longest, -at, side="left"))  # those longer than that
        one = rest[:count]
        rest[:count] = _CRC[(one ^ flat[starts[:count] + at]) & 0xFF] ^ (one >> 8)
    found = np.empty(len(values), dtype=np.int64)
    found[order] = (rest ^ np.uint32(0xFFFFFFFF)).astype(np.int64)
    return pl.Series(found).set(values.is_null(), None)


def _of(function: Callable[[pl.Series], pl.Series], dtype: type[pl.DataType]) -> Kernel:
    return lambda _, value: on_series(function, value, dtype=dtype)


def _sha2(build: Builder, value: pl.Expr, _: pl.Expr) -> pl.Expr:
    size = build.constant(1, "the number of bits")
    if size not in _SIZES:  # null, as in Spark
        return pl.when(pl.lit(value=False)).then(value).cast(pl.Binary).bin.encode("hex")
    return on_series(_SIZES[size], value, dtype=pl.String)


DIGEST_RULES: Mapping[str, Rule] = {
    "md5": Signature(TEXT, (BINARY,)),
    **dict.fromkeys(("sha", "sha1"), Signature(TEXT, (BINARY,), name="sha1")),
    "sha2": Signature(TEXT, (BINARY, INT)),
    "crc32": Signature(LONG, (BINARY,)),
}

DIGESTS: Mapping[str, Kernel] = {
    "md5": _of(_md5, pl.String),
    "sha1": _of(_sha1, pl.String),
    "sha2": _sha2,
    "crc32": _of(_crc32, pl.Int64),
}
