"""A test by footers that rows share no key with some files, such as windows that close for the first time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ...conf.column_names import parts_of
from ...core.rows.columns import columns_at
from ...delta_format.parquet_files import has_old_calendar

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData, ParquetFile

__all__ = ["apart"]

Span = tuple[int, int, str]
"""The least and the greatest value, and in what they are counted."""

_WHOLE, _DAYS, _MICROS = "numbers", "days", "microseconds"


def apart(files: Sequence[ParquetFile], rows: pa.Table, key: Sequence[str]) -> bool:
    """Return True if no row has a key that a row of the files has.

    That is so if, in each file, all values of some key column are above the rows' or all below. Only integers
    and times are compared: their bounds in a footer are exact. Other programs write other units and calendars,
    so bounds count only in the rows' own units.
    """
    columns = zip(key, columns_at(rows, key), strict=True)
    spans = {_path(name, rows): span for name, column in columns if (span := _span(column)) is not None}
    return bool(spans) and all(any(_outside(file, name, span) for name, span in spans.items()) for file in files)


def _span(column: pa.ChunkedArray) -> Span | None:
    terms = _terms(column.type)
    if terms is None:
        return None
    found = pc.min_max(column.cast(pa.int32() if terms == _DAYS else pa.int64()))
    return found["min"].as_py(), found["max"].as_py(), terms


def _terms(kind: pa.DataType) -> str | None:
    """Return the unit of a column's values; None if the column is not compared."""
    if pa.types.is_date32(kind):
        return _DAYS
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return _MICROS
    return _WHOLE if pa.types.is_signed_integer(kind) else None


def _terms_in(column: Any) -> str | None:
    """Return the unit of a column's bounds in a footer; None for a unit that rows never have."""
    if column.physical_type not in ("INT32", "INT64"):
        return None
    logical = column.logical_type
    if logical.type == "NONE" or (logical.type == "INT" and json.loads(logical.to_json())["isSigned"]):
        return _WHOLE
    if logical.type == "DATE":
        return _DAYS
    return (
        _MICROS if logical.type == "TIMESTAMP" and json.loads(logical.to_json())["timeUnit"] == "microseconds" else None
    )


def _path(name: str, rows: pa.Table) -> str:
    """Return a column's name as in footers, where a name with a dot looks like a field."""
    return name if name in rows.column_names else ".".join(parts_of(name))


def _outside(file: ParquetFile, path: str, span: Span) -> bool:
    footer: FileMetaData = file.metadata
    places = [at for at in range(footer.num_columns) if footer.schema.column(at).path == path]
    if len(places) != 1:  # not there, or two that look alike
        return False
    (place,) = places
    if _terms_in(footer.schema.column(place)) != span[2] or (span[2] != _WHOLE and has_old_calendar(footer)):
        return False
    for group in range(footer.num_row_groups):
        bounds = footer.row_group(group).column(place).statistics
        if bounds is None or not bounds.has_min_max:
            return False
        if bounds.min_raw <= span[1] and span[0] <= bounds.max_raw:
            return False
    return True
