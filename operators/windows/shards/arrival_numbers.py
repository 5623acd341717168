"""Which rows end a window where every n-th row of a key does, in the order of arrival."""

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
    """How many rows of each key have arrived.

    A row that ends a window is marked, and its mark is kept with the partial aggregate of its instant, until the
    low-watermark passes it.

    Parameters
    ----------
    store : Store
        The shard's.
    plan : WindowPlan
        Of windows that slide by rows.
    saved
        What :meth:`to_json` gave; empty at first.
    """

    def __init__(self, store: Store, plan: WindowPlan, saved: Any) -> None:
        self._plan = plan
        self._counts = KeyCounts(store, plan.key_schema, saved)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value."""
        return self._counts.to_json()

    def marked(self, rows: pa.Table) -> pa.Table:
        """Count rows, and return them with the column :data:`OPENS`: 1 for rows that end a window, else 0.

        Parameters
        ----------
        rows : pyarrow.Table
            All that have come, in the order of arrival, late ones included.
        """
        keys = Keys([rows.select(list(self._plan.key))])
        codes = keys.codes[0]
        sizes = np.bincount(codes, minlength=keys.size).astype(np.int64)
        started = self._counts.count(keys.take(np.arange(keys.size)), sizes)
        every = self._plan.rows_apart
        opens = ranks(codes, started)[0] % every == every - 1
        return rows.append_column(OPENS, pa.array(opens.astype(np.int64)))

    def opened(self, keys: Keys, codes: Int64s, entries: Entries, before: int, now: int) -> tuple[Int64s, Int64s]:
        """Return the windows that marked rows of some panes open.

        Parameters
        ----------
        keys : Keys
        codes : int64 array of length entries
            The keys of the entries.
        entries : Entries
            All that there are of the panes.
        before, now : int
            Panes ``before < pane <= now`` are asked for.

        Returns
        -------
        code, wid : int64 arrays of length windows
            Keys and windows, in the order of keys, then of time. Rows of one time open one window.
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
