"""Key numbers: hashes that determine on which page of the state a row is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from ...conf.errors import SchemaError
from ...core.rows.buckets import spark_hash
from ...core.rows.exact_integers import Int64s
from ...operators.grouped.buckets import mixed as bucket_hash

__all__ = ["is_hashable", "key_numbers", "mixed"]


def key_numbers(frame: pl.DataFrame, columns: Sequence[str]) -> Int64s:
    """Return Spark's hash of each row's columns, equal in all processes, without columns of unhashable types."""
    if frame.height == 0 or not columns:
        return np.zeros(frame.height, dtype=np.int64)
    table = frame.select(columns).to_arrow(compat_level=pl.CompatLevel.oldest())
    hashed = [column for column in table.columns if is_hashable(column.type)]
    if not hashed:
        return np.zeros(frame.height, dtype=np.int64)
    return spark_hash(hashed).astype(np.int64)


def mixed(*parts: Int64s | int) -> npt.NDArray[np.uint64]:
    """Return uniformly distributed 64-bit numbers that depend on all parts."""
    state = np.zeros(1, dtype=np.int64)
    with np.errstate(over="ignore"):
        for part in parts:
            state = bucket_hash(state + np.asarray(part, dtype=np.int64))
    return state.view(np.uint64)


@lru_cache(maxsize=256)
def is_hashable(kind: pa.DataType) -> bool:
    """Return whether values of a type contribute to key numbers."""
    try:
        spark_hash([pa.nulls(1, kind)])
    except SchemaError:
        return False
    return True
