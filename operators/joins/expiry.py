"""Newest rows that expire: the low-watermark of their stream has passed their time by the time to live."""

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
    """The expiry of one side's newest rows in a shard, with an entry by time for each key.

    A row expires when the low-watermark has passed its time by `ttl`; None for never. A batch reads only the entries
    that are due. `rows` counts expired rows, including those that arrived too late to be kept.
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
        due = {"due": self._due.known} if self._begun else {}
        return {**due, "below": self._below, "rows": self.rows} if self._begun or self._below > LOWEST else {}

    @property
    def bytes(self) -> int:
        return self._due.bytes

    def due(self, forgetting: Forgetting, runs: KeyRuns) -> Int64s:
        """Advance to the side's low-watermark, and return the numbers of keys that may have an expired row.

        `forgetting` must already have the batch's punctuation. On first use, the rows that are kept in `runs` get
        entries.
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
        """Return the arriving rows that have not expired yet, and their times. Call :meth:`due` first."""
        over = times < self._below
        if self._ttl is None or not over.any():
            return rows, times
        self.rows += int(np.count_nonzero(over))
        return rows.filter(pa.array(~over)).combine_chunks(), times[~over]

    def leaving(self, kept: pa.Table, remains: Mask, forgetting: Forgetting) -> Mask:
        """Return which kept rows expire, and count them; `remains` masks the rows that no newer one replaces.

        This raises the floor of `forgetting`, so that a key that returns gets a greater version than its tombstone.
        """
        if self._ttl is None or not kept.num_rows:
            return np.zeros(kept.num_rows, dtype=np.bool_)
        over = remains & (kept.column(TIME).to_numpy() < self._below)
        if over.any():
            forgetting.floor = max(forgetting.floor, int(kept.column(VERSION).to_numpy()[over].max()) + 1)
            self.rows += int(np.count_nonzero(over & kept.column(ALIVE).to_numpy()))
        return over

    def add(self, numbers: Int64s, times: Int64s) -> None:
        """Add entries for rows that are kept from now on, by the numbers of their keys."""
        if self._begun and len(numbers):
            self._due.add(pa.table({PANE: times, NUMBER: numbers}))
