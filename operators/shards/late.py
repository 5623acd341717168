"""The late output: rows that came after a window of theirs was final, as Parquet files."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from ...frames.whole import write_whole

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
    write_whole(location, name, lambda path, system: pq.write_table(rows, path, filesystem=system))
