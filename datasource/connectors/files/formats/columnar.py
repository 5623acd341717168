"""Parquet, by ranges of row groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import pyarrow as pa

from .....conf.errors import FeedChangedError
from .....delta_format.scan import open_parquet

_ROWS = 262_144


@dataclasses.dataclass(frozen=True)
class Footer:
    """The footer of a finished Parquet file."""

    schema: pa.Schema
    rows: Sequence[int]  # of each row group
    sizes: Sequence[int]  # of each row group, in bytes


def footer(file: BinaryIO) -> Footer | None:
    """Return the footer of a file, or ``None`` if it is not written yet."""
    try:
        with open_parquet(file) as found:
            groups = [found.metadata.row_group(number) for number in range(found.metadata.num_row_groups)]
            sizes = [
                sum(group.column(each).total_compressed_size for each in range(group.num_columns)) for group in groups
            ]
            return Footer(found.schema_arrow, [group.num_rows for group in groups], sizes)
    except pa.ArrowInvalid:
        return None


def read_groups(source: str | BinaryIO, path: str, low: int, high: int, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows of the row groups [low, high), in pieces; `path` names the source."""
    try:
        with open_parquet(source, memory_map=isinstance(source, str)) as file:
            batches: Any = file.iter_batches(
                _ROWS, row_groups=list(range(low, high)), columns=list(columns), use_threads=False
            )
            for batch in batches:
                yield pa.Table.from_batches([batch])
    except (pa.ArrowInvalid, OSError) as error:
        raise FeedChangedError(
            f"row groups {low} to {high} of {path} cannot be read: {error}",
            hint="restore the file as it was and restart, or start with a new checkpoint",
        ) from error
