"""What the page on readers claims, held against a reader, and what clients of databases give, in Arrow's values."""

import datetime as dt
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from .matrix import EMPTIES, ROUNDS, SHOWS_DELETED, Refused, claim_of
from .tables import EMPTY, Rows, known, rows_of, same, schema_of, to_milliseconds


def check(reader: str, feature: str, read: Callable[[], Rows]) -> None:
    """The reader does what the page says."""
    claim = claim_of(reader, feature)
    if isinstance(claim, Refused):
        with pytest.raises(Exception, match=claim.pattern):
            read()
        return
    found, wanted = read(), rows_of(feature)
    if claim == SHOWS_DELETED:
        assert not same(found, wanted)
        assert same(known(found, wanted), wanted)
        return
    if claim == EMPTIES:
        assert not same(found, wanted)
        wanted = [{name: EMPTY.get(name) if value is None else value for name, value in row.items()} for row in wanted]
    if claim == ROUNDS:
        assert not same(found, wanted)
        wanted = [{**row, "at": to_milliseconds(row["at"])} for row in wanted]
    assert same(found, wanted), f"{found[:9]}\nwhere these were written:\n{wanted[:9]}"


def as_arrow(value: Any, kind: pa.DataType) -> Any:
    """A client's value as Arrow has it: text has a meaning, and times without a zone are in the session's, UTC."""
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
