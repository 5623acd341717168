"""Scans of Delta tables by Polars, whatever their protocol."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from .column_mapping import is_mapped
from .data_files import has_early_times
from .file_rows import read_rows
from .reader_features import check_readable

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl
    from deltalake import DeltaTable

__all__ = ["scan_table"]

_OF_POLARS = {"deletionVectors", "timestampNtz"}


def scan_table(table: DeltaTable) -> pl.LazyFrame:
    """Return a lazy frame of a table's rows.

    Polars (2.1) refuses column mapping and harmless features, and moves Spark's times beyond the year 2262 to that
    year. Such a table is read file by file, with only the columns needed.
    """
    import polars as pl
    from polars.io.plugins import register_io_source

    check_readable(table)
    features = set(table.protocol().reader_features or ())
    mapped = is_mapped(table.metadata().configuration)
    if not mapped and features <= _OF_POLARS and has_early_times(table, json.loads(table.schema().to_json())):
        return pl.scan_delta(table)

    def rows(
        columns: list[str] | None, predicate: pl.Expr | None, most: int | None, size: int | None
    ) -> Iterator[pl.DataFrame]:
        for batch in read_rows(table, columns, size):
            frame = pl.DataFrame(batch)
            frame = frame if most is None else frame.head(most)
            most = None if most is None else most - len(frame)
            yield frame if predicate is None else frame.filter(predicate)
            if most == 0:
                return

    empty = pa.schema(table.schema().to_arrow()).empty_table()
    return register_io_source(rows, schema=pl.DataFrame(empty).schema)
