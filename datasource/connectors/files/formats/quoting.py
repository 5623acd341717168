"""Ends of rows whose quoted fields may hold line ends (`multiLine`), with a bound on what an open quote swallows."""

from __future__ import annotations

from typing import BinaryIO

import numpy as np
import numpy.typing as npt

__all__ = ["last_row_end", "row_ends"]

Int64s = npt.NDArray[np.int64]

_STEP = 1 << 20


def row_ends(block: bytes, quote: bytes, most: int, *, final: bool) -> Int64s:
    """Return where rows end in a block that begins with a row.

    A row ends at the first line end with an even number of quotes before it. Without one within `most` bytes, the first
    line is an unreadable row by itself. So ends depend only on the bytes from the row's start to the bound: driver and
    tasks find the same rows in different blocks. With `final`, nothing follows, so an open quote is never closed.
    """
    data = np.frombuffer(block, np.uint8)
    lines = np.flatnonzero(data == 10) + 1
    quotes = np.searchsorted(np.flatnonzero(data == quote[0]), lines)
    found: list[Int64s] = []
    start = at = before = 0  # of a row: its byte, its first line, the quotes before it
    while at < len(lines):
        even = at + np.flatnonzero((quotes[at:] - before) % 2 == 0)
        ends = lines[even]
        firsts = np.concatenate(([at], even[:-1] + 1)) if len(even) else even
        long = np.flatnonzero((even > firsts) & (ends - np.concatenate(([start], ends[:-1])) > most))
        good = int(long[0]) if len(long) else len(even)
        found.append(ends[:good])
        if good:
            at, start = int(even[good - 1]) + 1, int(ends[good - 1])
        if at == len(lines) or not (len(long) or final or len(data) - start > most):
            break
        # Nothing closes this line's quote in time.
        found.append(lines[at : at + 1])
        before, start, at = int(quotes[at]), int(lines[at]), at + 1
    return np.concatenate(found) if found else lines[:0]


def last_row_end(file: BinaryIO, low: int, high: int, quote: bytes, most: int) -> int:
    """Return where the last whole row of the bytes [low, high) ends; `low` if none does. A row begins at `low`."""
    file.seek(low)
    at, rest = low, b""
    while at < high and (more := file.read(min(max(_STEP, len(rest)), high - at))):
        at += len(more)
        rest += more
        ends = row_ends(rest, quote, most, final=False)
        if len(ends):
            low += int(ends[-1])
            rest = rest[int(ends[-1]) :]
    return low
