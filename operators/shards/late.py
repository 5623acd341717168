"""The late output: rows that came after a window of theirs was final, as Parquet files."""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

__all__ = ["write_late"]


def write_late(location: str, batch_id: int, shard: int, rows: pa.Table) -> None:
    """Write the late rows that one shard met in one batch.

    A batch that is run again writes the same file again, so that each row is there once.

    Parameters
    ----------
    location : str
        A folder, or a URI of one.
    batch_id, shard : int
        Which name the file.
    rows : pyarrow.Table
    """
    name = f"late-{batch_id:09d}-{shard:05d}.parquet"
    if "://" in location:
        system, root = fs.FileSystem.from_uri(location)
        system.create_dir(root, recursive=True)
        pq.write_table(rows, f"{root}/{name}", filesystem=system)  # an object store replaces a whole object or nothing
        return
    os.makedirs(location, exist_ok=True)
    staged = os.path.join(location, f".{name}.{os.getpid()}")
    pq.write_table(rows, staged)
    os.replace(staged, os.path.join(location, name))
