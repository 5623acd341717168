"""What a queue answers: what became of arriving rows, and the rows to be processed next."""

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
    """What became of a batch of arriving rows.

    Attributes
    ----------
    rows, locations : int64 arrays of one length
        Rows of the batch that wait now, and where the caller is to put them.
    ties : int64 array of shape (pairs, 2)
        A row of the batch, and the location of the pending row that it replaces at the very same event time.
    batch_ties : int64 array of shape (pairs, 2)
        Two rows of the batch with one key and time: the one that stays, the one that goes.
    superseded : int
        Updates that will not be delivered because a newer one of their key is.
    older : int
        Of these, rows that arrived after a newer one of their key had (late within the queue).
    shed : int
        Rows dropped by random shedding.
    outdated : int
        Of the superseded updates, those that were older than a delivered row of their key.
    """

    rows: Int64s
    locations: Int64s
    ties: Int64s
    batch_ties: Int64s
    superseded: int = 0
    older: int = 0
    shed: int = 0
    outdated: int = 0

    @classmethod
    def nothing(cls) -> Enqueued:
        """Return the outcome of a batch without rows."""
        return cls(none(), none(), pairs(), pairs())


@dataclasses.dataclass(frozen=True)
class Dequeued:
    """Rows to be processed, in the order of service.

    Attributes
    ----------
    locations : int64 array of length rows
        Their locations. Take them from there before the next enqueue.
    cells : Cells
        What is known of each.
    superseded : int
        Updates given up in this dequeue, when `auto` found more than the budget.
    ties : int64 array of shape (pairs, 2)
        Locations of two of these with one key and time: the one that stays, the one that goes. Where no time was given,
        all have one.
    """

    locations: Int64s
    cells: Cells
    superseded: int = 0
    ties: Int64s = dataclasses.field(default_factory=pairs)
