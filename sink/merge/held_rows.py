"""The rows that a bucket holds: the contract of the engines, and their shared parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa

from ...delta_format.deletion_vectors import DeletionVector
from ..table.files import DataFiles, StagedFile

if TYPE_CHECKING:
    from ..table.table import Held
    from .pending import Int64s, Mask

__all__ = ["HeldRows", "Mark", "Replacement", "Rivals", "StageWith", "counts_of"]


StageWith = Callable[[pa.Table], "StagedFile | None"]
"""Writes the rows that are kept, and the fresh ones after them, into one file; None if there are none."""


class Rivals(NamedTuple):
    """A bucket's candidate rows, among which are all that have one of some keys."""

    rows: pa.Table  # the deciding columns
    files: Int64s  # index among the bucket's files
    positions: Int64s  # row number in the file


class Mark(NamedTuple):
    """A file with a new deletion vector."""

    path: str
    vector: bytes  # all of its dead rows, encoded
    cardinality: int  # number of dead rows
    rows: int  # number of rows in the file


@dataclasses.dataclass(frozen=True)
class Replacement:
    """A batch's changes to a bucket's files."""

    rows: StagedFile | None = None  # a new file
    replaced: tuple[str, ...] = ()  # files without live rows
    marks: tuple[Mark, ...] = ()  # files with more dead rows

    def parts_of(self, held: Sequence[str]) -> bool:
        """Return True if some of the bucket's files or rows leave and others stay."""
        return bool(self.marks) or (bool(self.replaced) and set(self.replaced) != set(held))

    def newly_dead(self, vectors: Mapping[str, DeletionVector]) -> int:
        """Return the number of rows that the marks add to the files' vectors."""
        return sum(
            mark.cardinality - (vectors[mark.path].cardinality if mark.path in vectors else 0) for mark in self.marks
        )


def counts_of(held: Held, files: DataFiles) -> list[int]:
    """Return the row counts of a bucket's files, dead rows included, by the log or else by the footers."""
    return [files.count(path) if count is None else count for path, count in zip(held.rows, held.counts, strict=True)]


class HeldRows(Protocol):
    """The rows that a bucket holds, as an engine finds and replaces them."""

    def rivals(self, rows: pa.Table) -> Rivals:
        """Return the held rows that may have a key of some rows, which come with their deciding columns."""
        ...

    def whole(self, rivals: Rivals, chosen: Int64s) -> pa.Table:
        """Return all columns of some rivals, by their positions in `rivals`, in that order."""
        ...

    def replace(self, rivals: Rivals, lost: Mask, fresh: int, stage: StageWith) -> Replacement:
        """Remove the rivals that lost, and add `fresh` new rows."""
        ...
