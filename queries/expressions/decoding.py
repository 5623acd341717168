"""Decoding of bytes to text."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from .arrays import flat_bytes

__all__ = ["decoded"]


def decoded(values: pl.Series) -> pl.Series:
    r"""Return bytes as text; null where they are not UTF-8."""
    try:
        return values.cast(pl.String)
    except pl.exceptions.ComputeError:
        broken = _broken(values)
        # Bytes below a null would be decoded too.
        kept = values.fill_null(b"").zip_with(~broken, pl.Series([b""]))
        return kept.cast(pl.String).set(broken | values.is_null(), None)


def _broken(values: pl.Series) -> pl.Series:
    """Return a mask of values that are not UTF-8. One call of Python decodes all, and marks invalid bytes."""
    # A line's end after each value keeps characters from spanning two values.
    line_end, nothing = (pa.scalar(each, pa.large_binary()) for each in (b"\n", b""))
    given: Any = values.fill_null(b"").to_arrow().cast(pa.large_binary())
    joined: Any = pc.binary_join_element_wise  # pyright: ignore[reportAttributeAccessIssue] made at run time
    ended = joined(given, line_end, nothing)
    flat, ends = flat_bytes(pl.Series(pl.from_arrow(ended)))
    text = flat[ends[0] : ends[-1]].tobytes().decode("utf-8", "surrogateescape")
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    marked = (points >= 0xDC80) & (points <= 0xDCFF)
    sizes = np.where(marked | (points < 0x80), 1, np.where(points < 0x800, 2, np.where(points < 0x10000, 3, 4)))
    places = np.cumsum(sizes) - sizes
    broken = np.zeros(len(values), dtype=bool)
    broken[np.searchsorted(ends[1:] - ends[0], places[marked], side="right")] = True
    return pl.Series(broken)
