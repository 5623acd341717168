"""Which rows end a window where every n-th row of a key does, in the order of time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ....core.rows.exact_integers import Int64s
from ...runtime.entries import Entries, Keys
from ...runtime.store import Store
from .given_sessions import latest_of_key
from .key_counts import KeyCounts
from .plan import ROWS, WindowPlan

__all__ = ["RowNumbers"]


class RowNumbers:
    """How many rows of each key the low-watermark has passed.

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

    def opened(self, keys: Keys, codes: Int64s, entries: Entries, before: int, now: int) -> tuple[Int64s, Int64s]:
        """Count the rows of some panes, and return the windows that they open.

        Parameters
        ----------
        keys : Keys
        codes : int64 array of length entries
            The keys of the entries.
        entries : Entries
            All that there are of the panes.
        before, now : int
            Panes ``before < pane <= now`` are counted: no other row of them comes.

        Returns
        -------
        code, wid : int64 arrays of length windows
            Keys and windows, in the order of keys, then of time. Rows of one time open one window.
        """
        plan = self._plan
        inside = np.flatnonzero((entries.panes > before) & (entries.panes <= now))
        if len(inside) == 0:
            return inside, inside
        rows = plan.algebra.lower(entries.state.take(pa.array(inside))).column(ROWS).to_numpy()
        code, pane = codes[inside], entries.panes[inside]
        order = np.lexsort((pane, code))
        code, pane, rows = code[order], pane[order], rows[order]
        begins = np.ones(len(code), dtype=np.bool_)
        begins[1:] = (code[1:] != code[:-1]) | (pane[1:] != pane[:-1])
        at = np.flatnonzero(begins)
        code, pane, rows = code[at], pane[at], np.add.reduceat(rows, at)
        mine, first = np.unique(code, return_index=True)
        of_key = np.searchsorted(mine, code)
        total = np.cumsum(rows)
        sofar = total - (total - rows)[first][of_key]
        last = np.append(first[1:], len(code)) - 1
        through = sofar + self._counts.count(keys.take(mine), sofar[last])[of_key]
        opens = through // plan.rows_apart > (through - rows) // plan.rows_apart
        if not plan.every:
            opens = latest_of_key(code, opens)
        return code[opens], pane[opens]
