"""Low-watermarks of input partitions as commits record them: JSON values that compare as the times do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.watermark.bounds import beginning
from ...delta_format.latest_table import NOTHING_YET

__all__ = ["bound_values", "later_bound"]


def bound_values(times: pa.ChunkedArray) -> list[Any]:
    """Return punctuation's times as JSON values that compare as they do: ISO text of one width, or numbers.

    The value is None for null or infinity, the end of an input partition. It is :data:`NOTHING_YET` for one
    that has rows but no watermark.
    """
    least = beginning(times.type)
    return [
        NOTHING_YET if begun else value
        for begun, value in zip(pc.equal(times, least).to_pylist(), _values(times), strict=True)
    ]


def _values(times: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(times.type):
        ending = "Z" if times.type.tz else ""
        instants = np.datetime_as_string(times.to_numpy().astype("datetime64[us]"), unit="us")
        return [None if text == "NaT" else f"{text}{ending}" for text in instants.tolist()]
    if pa.types.is_date(times.type):
        return [None if day is None else day.isoformat() for day in times.to_pylist()]
    # Beyond all numbers lies the end of the feed.
    return [
        None if value is None or (isinstance(value, float) and not np.isfinite(value)) else value
        for value in times.to_pylist()
    ]


def later_bound(one: Any, other: Any) -> Any:
    """Return the later of two watermarks of one input partition; None, its end, is later than all."""
    if one is None or other is None:
        return None
    if NOTHING_YET in (one, other):
        return other if one == NOTHING_YET else one
    return max(one, other)
