"""The keys of which a batch has only older rows than the table, counted once over several tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..table.key_index import key_hashes
from .pending import Mask

__all__ = ["MOST_HASHES", "OlderKeys", "counted"]

Int64s = npt.NDArray[np.int64]

MOST_HASHES = 1 << 16
"""The number of hashes that a task sends to the commit: half a megabyte. Beyond it, keys are only counted."""


class OlderKeys(NamedTuple):
    """Keys of one bucket whose newest row in the batch was older than the table's."""

    total: int = 0
    hashes: bytes | None = b""  # an int64 for each key; None if there are too many

    @classmethod
    def of(cls, rows: pa.Table, key: Sequence[str], won: Mask, most: int) -> OlderKeys:
        """Return the keys of which no row has won; without a key's columns, rows count.

        Beyond `most` lost rows there are no hashes, and each row counts.
        """
        lost = int((~won).sum())
        if lost == 0 or not key:
            return cls(lost)
        if lost > most:
            return cls(lost, None)
        return cls._of(key_hashes(rows.filter(pa.array(~won)), key), key_hashes(rows.filter(pa.array(won)), key))

    @classmethod
    def together(cls, several: Sequence[OlderKeys], newer: Int64s | None = None) -> OlderKeys:
        """Return the keys of one bucket that several tasks found, except those that have won (`newer`, hashes).

        If one of the tasks has no hashes, a key counts once per task.
        """
        if len(several) == 1 and newer is None:
            return several[0]
        found = [each.hashes for each in several]
        hashes = [np.frombuffer(each, dtype=np.int64) for each in found if each is not None]
        if len(hashes) < len(found) or any(each.total * 8 != len(each.hashes or b"") for each in several):
            return cls(sum(each.total for each in several), None)
        none = np.empty(0, dtype=np.int64)
        return cls._of(np.concatenate([none, *hashes]), none if newer is None else newer)

    @classmethod
    def _of(cls, lost: Int64s, won: Int64s) -> OlderKeys:
        older = np.setdiff1d(lost, won)
        return cls(len(older), older.tobytes())


def counted(buckets: Iterable[Sequence[OlderKeys]]) -> int:
    """Return the number of keys in all buckets, from each bucket's tasks."""
    return sum(OlderKeys.together(each).total for each in buckets)
