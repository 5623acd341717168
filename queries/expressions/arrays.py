"""NumPy functions as Polars expressions, with nulls handled separately."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

__all__ = ["aligned", "flat_bytes", "on_arrays", "on_series", "quotient"]


def on_series(function: Callable[..., pl.Series], *values: pl.Expr, dtype: pl.DataType | type[pl.DataType]) -> pl.Expr:
    """Return an expression of a function that maps series of one length to a series of that length."""

    def run(series: Sequence[pl.Series]) -> pl.Series:
        return function(*aligned(series))

    return pl.map_batches(list(values), run, return_dtype=dtype)


def aligned(series: Sequence[pl.Series]) -> list[pl.Series]:
    """Extend constants to the length of the other series."""
    length = max(map(len, series))
    return [each if len(each) == length else each.new_from_index(0, length) for each in series]


def flat_bytes(values: pl.Series) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the concatenated bytes of all values, and the offsets of their beginnings and of the end."""
    array: Any = values.fill_null(b"").rechunk().to_arrow().cast(pa.large_binary())
    ends = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]
    data = array.buffers()[2]
    flat = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    return flat, ends


def on_arrays(
    function: Callable[..., npt.NDArray[Any]], *values: pl.Expr, dtype: pl.DataType | type[pl.DataType]
) -> pl.Expr:
    """Return a function of arrays as an expression, null where an operand is; the function gets zeros for nulls."""

    def run(*series: pl.Series) -> pl.Series:
        with np.errstate(all="ignore"):
            found = function(*(each.fill_null(0).to_numpy() for each in series))
        made = pl.Series(found, dtype=dtype)
        for each in series:
            if each.null_count():
                made = made.set(each.is_null(), None)
        return made

    return on_series(run, *values, dtype=dtype)


def quotient(left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """Return the quotient of doubles. By a constant, Polars would multiply by its inverse, which is not exact."""
    return left / right if right.meta.root_names() else on_arrays(np.divide, left, right, dtype=pl.Float64)
