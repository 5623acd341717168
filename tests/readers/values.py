"""What clients of databases give for a column, as the values that Arrow has for it."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import numpy as np
import pyarrow as pa

from .tables import Rows, schema_of


def as_arrow(value: Any, kind: pa.DataType) -> Any:
    """A client's value as Arrow has it: of text its meaning, of times without a zone those of the session, which is in
    UTC.
    """
    if value is None:
        return None
    if isinstance(value, bytes) and not pa.types.is_binary(kind):
        value = value.decode()
    if pa.types.is_nested(kind):
        return _nested(json.loads(value) if isinstance(value, str) else value, kind)
    if pa.types.is_timestamp(kind):
        moment = dt.datetime.fromisoformat(value.removesuffix(" UTC")) if isinstance(value, str) else value
        return moment if kind.tz is None else moment.replace(tzinfo=dt.timezone.utc)
    if pa.types.is_date(kind):
        return dt.date.fromisoformat(value) if isinstance(value, str) else value
    if pa.types.is_boolean(kind) and isinstance(value, str):
        return value == "true"
    if pa.types.is_floating(kind):
        # The shortest text that means this value in its own width.
        return float(np.float32(value)) if pa.types.is_float32(kind) else float(value)
    if pa.types.is_integer(kind):
        return int(value)
    return pa.scalar(value).cast(kind).as_py() if pa.types.is_decimal(kind) else value


def _nested(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _nested(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(key, _nested(item, kind.item_type)) for key, item in value.items()]
    return [_nested(item, kind.value_type) for item in value] if pa.types.is_list(kind) else value


def rows_from(found: Any, kind: str) -> Rows:
    """Rows of a table of this kind; what the client says against the query is raised."""
    if isinstance(found, str):
        raise AssertionError(found)
    return [{field.name: as_arrow(row[field.name], field.type) for field in schema_of(kind)} for row in found]
