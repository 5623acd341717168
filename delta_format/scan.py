"""A table given to Polars whatever its protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .column_mapping import is_mapped

if TYPE_CHECKING:
    import polars as pl
    from deltalake import DeltaTable

__all__ = ["scan_table"]


def scan_table(table: DeltaTable) -> pl.LazyFrame:
    """Return the rows of a table, to be filtered and collected.

    Polars (2.1) refuses column mapping: such a table goes through deltalake, from its files if it can, or else whole.
    """
    import polars as pl
    import pyarrow as pa
    import pyarrow.dataset as pds

    if not is_mapped(table.metadata().configuration):
        return pl.scan_delta(table)
    if table.protocol().reader_features is None:
        options = pds.ParquetReadOptions(coerce_int96_timestamp_unit="us")
        return pl.scan_pyarrow_dataset(table.to_pyarrow_dataset(parquet_read_options=options))
    return pl.DataFrame(pa.RecordBatchReader.from_stream(table.scan()).read_all()).lazy()
