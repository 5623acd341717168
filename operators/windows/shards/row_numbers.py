"""The rows that end a window, where every n-th row of a key does in the order of time."""

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
    """The number of rows of each key that the low-watermark has passed, for windows that slide by rows."""

    def __init__(self, store: Store, plan: WindowPlan, saved: Any) -> None:
        self._plan = plan
        self._counts = KeyCounts(store, plan.key_schema, saved)

    def to_json(self) -> dict[str, Any]:
        return self._counts.to_json()

    def opened(self, keys: Keys, codes: Int64s, entries: Entries, before: int, now: int) -> tuple[Int64s, Int64s]:
        """Count the rows of panes ``before < pane <= now``, and return the windows that they open.

        `entries` are all entries of these panes, which get no further rows. Windows are in the order of keys, then of
        time. Rows of one time open one window.
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
