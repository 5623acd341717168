"""The history that a table keeps: each key's newest row, its n newest, or all rows."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ...core.rows.exact_integers import Int64s, Mask

_LATEST = re.compile(r"latest(?:\s+(\d+))?")


@dataclasses.dataclass(frozen=True)
class History:
    """The number of newest rows of each key that a table keeps."""

    count: int | None = 1  # None keeps all

    @classmethod
    def parse(cls, value: str) -> History:
        """Parse ``latest``, ``latest 5`` or ``all``; other text is a ValueError."""
        lowered = value.strip().lower()
        if lowered == "all":
            return cls(None)
        found = _LATEST.fullmatch(lowered)
        if found is None or int(found.group(1) or 1) < 1:
            raise ValueError
        return cls(int(found.group(1) or 1))

    @property
    def latest(self) -> bool:
        return self.count == 1

    def __str__(self) -> str:
        if self.count is None:
            return "all"
        return "latest" if self.count == 1 else f"latest {self.count}"


def keeps_all(options: Mapping[str, Any]) -> bool:
    """Return True if a user's options, with names in any case, keep all rows: then no key is needed."""
    return any(name.lower() == "history" and str(value).strip().lower() == "all" for name, value in options.items())


class Kept(NamedTuple):
    """The rows and deletions that stay."""

    stays: Mask  # per row or deletion
    ties: Int64s  # pairs of one key and one time: the newest of them, and another


def newest_of_each(codes: Int64s, time: Int64s, arrival: Int64s, deleted: Mask, count: int) -> Kept:
    """Return each key's newest deletion, and its `count` newest rows after that, one for each time.

    Order is (time, arrival, position), and a deletion removes older rows whenever it comes. So the result
    depends neither on the order of rows nor on their batches. Rows have equal `codes` iff their keys are equal.
    """
    if len(codes) == 0:
        return Kept(np.zeros(0, dtype=np.bool_), np.empty((0, 2), dtype=np.int64))
    place = np.arange(len(codes))
    order = np.lexsort((place, arrival, time, codes))
    codes, time, deleted = codes[order], time[order], deleted[order]
    key = _numbered(np.diff(codes) != 0)
    group = _numbered((np.diff(codes) != 0) | (np.diff(time) != 0))
    last_deletion, last_row = _last_of(key, deleted)[key], _last_of(group, ~deleted)[group]
    row = (place == last_row) & (place > last_deletion)
    upto = np.cumsum(row)
    newer = upto[_last_of(key, np.ones_like(row))[key]] - upto
    stays = np.zeros_like(row)
    stays[order] = (row & (newer < count)) | (deleted & (place == last_deletion))
    last = _last_of(group, np.ones_like(row))[group]
    tied = np.flatnonzero(place != last)
    return Kept(stays, np.stack([order[last[tied]], order[tied]], axis=1))


def _numbered(begins: Mask) -> Int64s:
    """Return a number for each run of neighbours; `begins` marks the rows, after the first, at which a run begins."""
    return np.cumsum(np.concatenate([[False], begins]))


def _last_of(run: Int64s, chosen: Mask) -> Int64s:
    """Return each run's last chosen position, or -1."""
    last = np.full(int(run[-1]) + 1, -1, dtype=np.int64)
    places = np.flatnonzero(chosen)
    last[run[places]] = places  # the last of equal indices is the one that stays
    return last
