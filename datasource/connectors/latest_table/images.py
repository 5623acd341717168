"""Preimages and postimages of a commit (`changes=full`), computed on numbers in place of keys."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["CHANGES", "DELETE", "INSERT", "POSTIMAGE", "PREIMAGE", "Images", "images_of"]

Int64s = npt.NDArray[np.int64]

CHANGES = ("insert", "update_preimage", "update_postimage", "delete")
"""The values of the column of changes, which are those of Delta's change data feed."""

INSERT, PREIMAGE, POSTIMAGE, DELETE = range(4)


class Images(NamedTuple):
    """Rows before and after a commit, in the order in which they leave."""

    places: Int64s  # an earlier row's place; or that of an added row, plus the number of earlier rows
    changes: Int64s  # places in `CHANGES`, one for each of `places`


def images_of(before: Int64s, kept: Int64s, fresh: Int64s) -> Images:
    """Return the changes that a commit made.

    The arrays have key numbers (at least 0) of rows that may have left, rows that are unchanged, and added rows. Each
    row that left is once a preimage or a deletion. Each added row is once a postimage or an insertion. A preimage is
    directly before its postimage.
    """
    held, came = len(before), len(fresh)
    size = 1 + max((int(each.max()) for each in (before, kept, fresh) if len(each)), default=-1)
    stays = np.zeros(size, dtype=np.bool_)
    stays[kept] = True
    gone = np.flatnonzero(~stays[before])
    successor = np.full(size, -1, dtype=np.int64)
    successor[fresh] = np.arange(came)
    preimage = np.full(came, -1, dtype=np.int64)
    met = gone[successor[before[gone]] >= 0]
    preimage[successor[before[met]]] = met
    updates = preimage >= 0
    deleted = np.setdiff1d(gone, preimage[updates], assume_unique=True)
    after = np.arange(came) + np.cumsum(updates)  # where each row that came is, behind its preimage
    total = came + int(np.count_nonzero(updates))
    places = np.empty(total, dtype=np.int64)
    changes = np.empty(total, dtype=np.int64)
    places[after], changes[after] = np.arange(came) + held, np.where(updates, POSTIMAGE, INSERT)
    places[after[updates] - 1], changes[after[updates] - 1] = preimage[updates], PREIMAGE
    return Images(np.concatenate([places, deleted]), np.concatenate([changes, np.full(len(deleted), DELETE)]))
