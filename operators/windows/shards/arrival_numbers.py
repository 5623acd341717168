"""The rows that end a window, where every n-th row of a key does in the order of arrival."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ....core.rows.exact_integers import Int64s
from ...runtime.entries import Entries, Keys
from ...runtime.store import Store
from ..rows import ranks
from .given_sessions import latest_of_key
from .key_counts import KeyCounts
from .plan import OPENS, WindowPlan

__all__ = ["ArrivalNumbers"]


class ArrivalNumbers:
    """The number of rows of each key that have arrived, for windows that slide by rows.

    A row that ends a window is marked. Its mark is kept with the partial aggregate of its instant, until the
    low-watermark passes it.
    """

    def __init__(self, store: Store, plan: WindowPlan, saved: Any) -> None:
        self._plan = plan
        self._counts = KeyCounts(store, plan.key_schema, saved)

    def to_json(self) -> dict[str, Any]:
        return self._counts.to_json()

    def marked(self, rows: pa.Table) -> pa.Table:
        """Count all rows that arrived, in that order, and add :data:`OPENS`: 1 for rows that end a window, else 0."""
        keys = Keys([rows.select(list(self._plan.key))])
        codes = keys.codes[0]
        sizes = np.bincount(codes, minlength=keys.size).astype(np.int64)
        started = self._counts.count(keys.take(np.arange(keys.size)), sizes)
        every = self._plan.rows_apart
        opens = ranks(codes, started)[0] % every == every - 1
        return rows.append_column(OPENS, pa.array(opens.astype(np.int64)))

    def opened(self, keys: Keys, codes: Int64s, entries: Entries, before: int, now: int) -> tuple[Int64s, Int64s]:
        """Return the windows that marked rows of panes ``before < pane <= now`` open.

        `entries` are all entries of these panes. Windows are in the order of keys, then of time. Rows of one time open
        one window.
        """
        del keys
        inside = np.flatnonzero((entries.panes > before) & (entries.panes <= now))
        marks = self._plan.algebra.lower(entries.state.take(pa.array(inside))).column(OPENS)
        inside = inside[pc.greater(marks, 0).to_numpy(zero_copy_only=False)]
        found = np.unique(np.column_stack((codes[inside], entries.panes[inside])), axis=0)
        code, pane = found[:, 0], found[:, 1]
        if self._plan.every:
            return code, pane
        latest = latest_of_key(code, np.ones(len(code), dtype=np.bool_))
        return code[latest], pane[latest]
