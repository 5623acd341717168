"""Arrivals of a synthetic feed as arrays, for simulations."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .stream import FeedPoint, Recipe, SyntheticStream

__all__ = ["synthetic_arrivals"]

Int64s = npt.NDArray[np.int64]


def synthetic_arrivals(recipe: Recipe, until_us: int) -> tuple[Int64s, Int64s]:
    """Return arrivals (microseconds since the start, never decreasing) and key numbers of a recipe's first feed."""
    stream = SyntheticStream(recipe)
    pieces = list(stream.between(FeedPoint(), stream.take(FeedPoint(), until_us)))
    none = np.empty(0, dtype=np.int64)
    return (
        np.concatenate([none, *(piece.elapsed_us for piece in pieces)]),
        np.concatenate([none, *(piece.key() for piece in pieces)]),
    )
