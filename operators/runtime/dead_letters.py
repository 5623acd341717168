"""Parquet files of rows that are too late or unusable."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ...conf.locations import absolute_location
from ...storage.atomic_write import write_whole

if TYPE_CHECKING:
    from ...plan.nodes import StatefulNode


class DeadLetterRows(NamedTuple):
    """The destination of an operator's late or unusable rows."""

    location: str  # a folder, or its URL
    name: str  # the prefix of file names, such as "late"

    def write(self, batch_id: int, shard: int, rows: pa.Table) -> None:
        """Write one shard's rows of one batch.

        A rerun writes the same file, byte for byte, so a query that reads the files counts each row once.
        """
        file = f"{self.name}-{batch_id:09d}-{shard:05d}.parquet"
        whole = rows.combine_chunks()  # the chunks depend on Spark, and the file must not
        write_whole(self.location, file, lambda stream: pq.write_table(whole, stream))


def late_rows_of(node: StatefulNode) -> DeadLetterRows | None:
    """Return the destination of an operator's late rows; None if it only counts them."""
    return None if node.late_location is None else DeadLetterRows(absolute_location(node.late_location), node.late_name)
