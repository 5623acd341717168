"""Rows that are set aside, as Parquet files: those that came too late, and those that cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ...conf.locations import absolute_location
from ...storage.atomic_write import write_whole

if TYPE_CHECKING:
    from ...plan.nodes import Operator

__all__ = ["RowsAside", "late_rows_of"]


class RowsAside(NamedTuple):
    """Where an operator puts rows aside.

    Attributes
    ----------
    location : str
        A folder, or the address of one.
    name : str
        What the files' names begin with, such as ``late``.
    """

    location: str
    name: str

    def write(self, batch_id: int, shard: int, rows: pa.Table) -> None:
        """Write the rows that one shard set aside in one batch.

        A batch that is run again writes the same file again, byte by byte, so that each row is there once, and a query
        that reads the files takes each once.

        Parameters
        ----------
        batch_id, shard : int
            Which name the file.
        rows : pyarrow.Table
        """
        file = f"{self.name}-{batch_id:09d}-{shard:05d}.parquet"
        whole = rows.combine_chunks()  # in which pieces they came depends on Spark
        write_whole(self.location, file, lambda stream: pq.write_table(whole, stream))


def late_rows_of(node: Operator) -> RowsAside | None:
    """Return where an operator's late rows go; None if they are only counted."""
    return None if node.late_location is None else RowsAside(absolute_location(node.late_location), node.late_name)
