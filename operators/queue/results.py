"""The results of a queue's operations."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from .cells import Cells

__all__ = ["Dequeued", "Enqueued", "none", "pairs"]

Int64s = npt.NDArray[np.int64]


def none() -> Int64s:
    """Return no rows."""
    return np.empty(0, dtype=np.int64)


def pairs() -> Int64s:
    """Return no pairs."""
    return np.empty((0, 2), dtype=np.int64)


@dataclasses.dataclass(frozen=True)
class Enqueued:
    """The result of enqueueing a batch of arriving rows."""

    rows: Int64s  # rows of the batch to keep
    locations: Int64s  # where the caller must put them
    ties: Int64s  # pairs: a row of the batch, and the location of the row that it replaces at the same event time
    batch_ties: Int64s  # pairs of rows of the batch with one key and time: the kept one, the dropped one
    superseded: int = 0  # updates that are not delivered because a newer one of their key is
    older: int = 0  # rows among these that arrived after a newer one of their key (late within the queue)
    shed: int = 0  # rows dropped by random shedding
    outdated: int = 0  # superseded updates that are older than a delivered row of their key

    @classmethod
    def nothing(cls) -> Enqueued:
        return cls(none(), none(), pairs(), pairs())


@dataclasses.dataclass(frozen=True)
class Dequeued:
    """Rows to process, in the order of service."""

    locations: Int64s  # to be read before the next enqueue
    cells: Cells
    superseded: int = 0  # updates dropped because `auto` found more than the budget
    # pairs of locations with one key and time: the kept one, the dropped one; all tie if rows have no time
    ties: Int64s = dataclasses.field(default_factory=pairs)
