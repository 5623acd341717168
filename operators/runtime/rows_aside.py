"""Rows that are put aside, as Parquet files: those that came too late, and those that cannot be used."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from ...storage.atomic_write import write_whole

__all__ = ["put_aside"]


def put_aside(location: str, kind: str, batch_id: int, shard: int, rows: pa.Table) -> None:
    """Write the rows that one shard put aside in one batch.

    A batch that is run again writes the same file again, so that each row is there once.

    Parameters
    ----------
    location : str
        A folder, or the address of one.
    kind : str
        What is the matter with them, such as ``late``: the beginning of the file's name.
    batch_id, shard : int
        Which name the file.
    rows : pyarrow.Table
    """
    name = f"{kind}-{batch_id:09d}-{shard:05d}.parquet"
    write_whole(location, name, lambda stream: pq.write_table(rows, stream))
