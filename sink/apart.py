"""Whether rows can meet any row of some files, from what the files' footers say: windows that close anew have ids that no file has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ..conf.names import parts_of
from ..frames.columns import columns_at

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData, ParquetFile

__all__ = ["apart"]

Span = tuple[int, int]


def apart(files: Sequence[ParquetFile], rows: pa.Table, key: Sequence[str]) -> bool:
    """Whether no row has a key that a row of the files has: each file's values of some key column all lie above the rows', or below.

    Only columns of whole numbers and times are looked at, whose bounds in a footer are exact.
    """
    columns = zip(key, columns_at(rows, key), strict=True)
    spans = {_path(name, rows): span for name, column in columns if (span := _span(column)) is not None}
    return bool(spans) and all(any(_outside(file, name, span) for name, span in spans.items()) for file in files)


def _span(column: pa.ChunkedArray) -> Span | None:
    kind = column.type
    if pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(kind) and kind.unit == "us":
        column = column.cast(pa.int64())
    elif not pa.types.is_signed_integer(kind):
        return None
    found = pc.min_max(column)
    return found["min"].as_py(), found["max"].as_py()


def _path(name: str, rows: pa.Table) -> str:
    """As footers have it, where a column with a dot in its name looks like a field."""
    return name if name in rows.column_names else ".".join(parts_of(name))


def _outside(file: ParquetFile, path: str, span: Span) -> bool:
    footer: FileMetaData = file.metadata
    places = [at for at in range(footer.num_columns) if footer.schema.column(at).path == path]
    if len(places) != 1:  # not there, or two that look alike
        return False
    (place,) = places
    for group in range(footer.num_row_groups):
        bounds = footer.row_group(group).column(place).statistics
        if bounds is None or not bounds.has_min_max:
            return False
        if bounds.min_raw <= span[1] and span[0] <= bounds.max_raw:
            return False
    return True
