"""The rows that a bucket holds, and the two ways of removing some of them: the contract, and what they share."""

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
    """Rows of the bucket among which are all that have one of some keys.

    Attributes
    ----------
    rows : pyarrow.Table
        Their deciding columns.
    files, positions : int64 arrays of length rows
        Which of the bucket's files each is in, and where.
    """

    rows: pa.Table
    files: Int64s
    positions: Int64s


class Mark(NamedTuple):
    """A file more of whose rows are dead.

    Attributes
    ----------
    path : str
        Relative to the table.
    vector : bytes
        All of its dead rows, as :func:`~upstream.delta_format.deletion_vectors.encode_vector` gives them.
    cardinality : int
        How many they are.
    rows : int
        How many the file holds.
    """

    path: str
    vector: bytes
    cardinality: int
    rows: int


@dataclasses.dataclass(frozen=True)
class Replacement:
    """What a batch makes of a bucket's files.

    Attributes
    ----------
    rows : StagedFile or None
        A new file.
    replaced : tuple of str
        Files that hold nothing any more.
    marks : tuple of Mark
        Files that hold less.
    """

    rows: StagedFile | None = None
    replaced: tuple[str, ...] = ()
    marks: tuple[Mark, ...] = ()

    def parts_of(self, held: Sequence[str]) -> bool:
        """Return whether it removes some of the bucket's files, or some rows of a file, and leaves the others."""
        return bool(self.marks) or (bool(self.replaced) and set(self.replaced) != set(held))

    def newly_dead(self, vectors: Mapping[str, DeletionVector]) -> int:
        """Return how many rows the marks add to the vectors that the files have."""
        return sum(
            mark.cardinality - (vectors[mark.path].cardinality if mark.path in vectors else 0) for mark in self.marks
        )


def counts_of(held: Held, files: DataFiles) -> list[int]:
    """Return how many rows each of a bucket's files holds, dead ones included: by the log, or else by their footers."""
    return [files.count(path) if count is None else count for path, count in zip(held.rows, held.counts, strict=True)]


class HeldRows(Protocol):
    """A bucket's rows."""

    def rivals(self, rows: pa.Table) -> Rivals:
        """Return the held rows that may have the keys of some rows, given with their deciding columns."""
        ...

    def whole(self, rivals: Rivals, chosen: Int64s) -> pa.Table:
        """Return all columns of some of the rivals, by their positions among these, in that order."""
        ...

    def replace(self, rivals: Rivals, lost: Mask, fresh: int, stage: StageWith) -> Replacement:
        """Remove the rivals that lost, and add `fresh` new rows."""
        ...
