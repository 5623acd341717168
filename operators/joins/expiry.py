"""Newest rows that expire: the low-watermark of their stream has passed their time by the time to live.

Each key whose row is kept has an entry by time. A batch reads those that are due, and no others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.rows.exact_integers import HIGHEST, LOWEST, Int64s
from ..runtime.entries import PANE
from ..runtime.runs import Runs
from ..runtime.store import Store
from .forgetting import ALIVE, TIME, Forgetting
from .key_runs import KeyRuns
from .latest_plan import VERSION
from .side import NUMBER

__all__ = ["Expiry"]

Mask = npt.NDArray[np.bool_]


class Expiry:
    """The newest rows of one side in a shard, by time.

    Parameters
    ----------
    store : Store
        The shard's state.
    name : str
        What the entries are called.
    ttl : int or None
        How far the low-watermark has to pass a row's time; None for never.
    saved
        What :meth:`to_json` gave; empty at first.

    Attributes
    ----------
    rows : int
        How many rows have expired: those that were kept, and those that arrived too late to be.
    """

    def __init__(self, store: Store, name: str, ttl: int | None, saved: Any) -> None:
        self._ttl = ttl
        self._due = Runs(store, f"{name}_due", saved.get("due") or (), 1)
        self._begun = saved.get("due") is not None
        self._below = int(saved.get("below", LOWEST))
        self._taken = self._below
        self.rows = int(saved.get("rows", 0))
        if ttl is None and self._begun:
            self._due.drop_below(HIGHEST)
            self._begun = False

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value."""
        due = {"due": self._due.known} if self._begun else {}
        return {**due, "below": self._below, "rows": self.rows} if self._begun or self._below > LOWEST else {}

    @property
    def bytes(self) -> int:
        """The size of all entries in the store."""
        return self._due.bytes

    def due(self, forgetting: Forgetting, runs: KeyRuns) -> Int64s:
        """Let the side's low-watermark count, and return the numbers of keys that may have a row which has expired.

        Parameters
        ----------
        forgetting
            The side's, which has heard the batch's punctuation.
        runs
            The rows that are kept. They get entries if none had one before.
        """
        if self._ttl is None:
            return np.empty(0, dtype=np.int64)
        if not self._begun:
            self._begun = True
            if runs.rows:
                rows = runs.all_rows()
                self.add(rows.column(NUMBER).to_numpy(), rows.column(TIME).to_numpy())
            self._taken = LOWEST
        passed = forgetting.passed
        if passed is not None:
            self._below = max(self._below, passed - self._ttl)
        if self._below <= self._taken:
            return np.empty(0, dtype=np.int64)
        found = [table.column(NUMBER).to_numpy() for table in self._due.tables(self._taken, self._below - 1)]
        self._due.drop_below(self._below)
        self._taken = self._below
        return np.unique(np.concatenate(found)) if found else np.empty(0, dtype=np.int64)

    def arriving(self, rows: pa.Table, times: Int64s) -> tuple[pa.Table, Int64s]:
        """Return the rows that arrive before they expire, and their times. See :meth:`due`, which comes before."""
        over = times < self._below
        if self._ttl is None or not over.any():
            return rows, times
        self.rows += int(np.count_nonzero(over))
        return rows.filter(pa.array(~over)).combine_chunks(), times[~over]

    def leaving(self, kept: pa.Table, remains: Mask, forgetting: Forgetting) -> Mask:
        """Return which kept rows expire, and count them.

        Parameters
        ----------
        kept
            With their times and versions; deleted keys among them.
        remains
            Which of them no newer row replaces.
        forgetting
            The side's: if a key comes back, its version is greater than that of its tombstone.
        """
        if self._ttl is None or not kept.num_rows:
            return np.zeros(kept.num_rows, dtype=np.bool_)
        over = remains & (kept.column(TIME).to_numpy() < self._below)
        if over.any():
            forgetting.floor = max(forgetting.floor, int(kept.column(VERSION).to_numpy()[over].max()) + 1)
            self.rows += int(np.count_nonzero(over & kept.column(ALIVE).to_numpy()))
        return over

    def add(self, numbers: Int64s, times: Int64s) -> None:
        """Remember the times of rows that are kept from now on, and the numbers of their keys."""
        if self._begun and len(numbers):
            self._due.add(pa.table({PANE: times, NUMBER: numbers}))
