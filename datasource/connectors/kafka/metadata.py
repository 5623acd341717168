"""Columns of a message besides its value (key, timestamp, and others), and the keys of tombstones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....conf.errors import SchemaError
from ....core.rows.event_times import NO_TIME
from ....core.rows.system_column import TIMESTAMP

__all__ = ["HEADERS", "METADATA", "column_of", "keys_as", "timestamps_us"]

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
METADATA = {
    "key": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": HEADERS,
}
"""Columns of every message: `raw` has them under these names, other formats with an underscore before."""


def timestamps_us(messages: Sequence[Any]) -> Int64s:
    """Return the messages' timestamps in microseconds; :data:`~upstream.core.rows.event_times.NO_TIME` for none."""
    stamps = np.fromiter((message.timestamp()[1] for message in messages), np.int64, len(messages))
    return np.where(stamps < 0, NO_TIME, stamps * 1000)


def column_of(name: str, messages: Sequence[Any], dtype: pa.DataType) -> tuple[pa.Array, Bools]:
    """Return one column of the messages, and which messages have no value of this type."""
    none = np.zeros(len(messages), dtype=np.bool_)
    if name == "key":
        return keys_as([message.key() for message in messages], dtype)
    if name == "timestamp":
        stamps = timestamps_us(messages)
        return pa.array(stamps, mask=stamps == NO_TIME).cast(TIMESTAMP).cast(dtype), none
    if name == "timestampType":
        # Spark's numbers: -1 none, 0 the producer's, 1 the broker's; the client's are one more.
        kinds = np.fromiter((message.timestamp()[0] - 1 for message in messages), np.int32, len(messages))
        return pa.array(kinds).cast(dtype), none
    if name == "headers":
        found = [
            None if (headers := message.headers()) is None else [{"key": key, "value": value} for key, value in headers]
            for message in messages
        ]
        return pa.array(found, HEADERS), none
    if name in ("topic", "partition"):
        first = getattr(messages[0], name)() if messages else None
        return pa.repeat(pa.scalar(first, METADATA[name]), len(messages)).cast(dtype), none
    return pa.array([message.offset() for message in messages], pa.int64()).cast(dtype), none


def keys_as(keys: Sequence[bytes | None], dtype: pa.DataType) -> tuple[pa.Array, Bools]:
    """Return messages' keys in a column's type, read as text unless it is binary; and which keys do not fit."""
    raw = pa.array(keys, pa.binary())
    try:
        return _cast(raw, dtype), np.zeros(len(keys), dtype=np.bool_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return _singly(raw, dtype)


def check_key_type(name: str, dtype: pa.DataType) -> None:
    """Raise SchemaError for a type that text cannot be converted to."""
    try:
        _cast(pa.array([None], pa.binary()), dtype)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(
            f"column {name!r} is of type {dtype}, which a message's key does not become",
            expected="STRING, BINARY, a number, a date or a timestamp",
        ) from error


def _cast(raw: pa.Array, dtype: pa.DataType) -> pa.Array:
    return raw if pa.types.is_binary(dtype) else raw.cast(pa.string()).cast(dtype)


def _singly(raw: pa.Array, dtype: pa.DataType) -> tuple[pa.Array, Bools]:
    bad = np.zeros(len(raw), dtype=np.bool_)
    parts: list[pa.Array] = []
    for position in range(len(raw)):
        try:
            parts.append(_cast(raw.slice(position, 1), dtype))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            bad[position] = True
            parts.append(pa.nulls(1, dtype))
    return pa.concat_arrays(parts) if parts else pa.nulls(0, dtype), bad
