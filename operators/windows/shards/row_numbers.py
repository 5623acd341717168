"""Which rows open a window where every n-th row of a key does, in the order of time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ....core.rows.exact_integers import Int64s
from ...runtime.entries import Entries, Keys
from ...runtime.key_pages import KeyPages
from ...runtime.store import Store
from ..sessions import key_numbers
from .given_sessions import latest_of_key
from .plan import ROWS, WindowPlan

__all__ = ["RowNumbers"]

_NUMBER, _COUNTED = "__upstream_number", "__upstream_counted"


class RowNumbers:
    """How many rows of each key the low-watermark has passed.

    Parameters
    ----------
    store : Store
        The shard's.
    plan : WindowPlan
        Of windows that slide by rows.
    every : int
        The n-th, 2n-th, ... row of a key opens a window.
    saved
        What :meth:`to_json` gave; empty at first.
    """

    def __init__(self, store: Store, plan: WindowPlan, every: int, saved: Any) -> None:
        self._plan = plan
        self._every = every
        own = [pa.field(name, pa.int64()) for name in (_COUNTED, _NUMBER)]
        self._schema = pa.schema([*plan.key_schema, *own])
        self._pages = KeyPages(store, "numbers", _NUMBER, self._schema, saved)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value."""
        return self._pages.to_json()

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
        inside = np.flatnonzero((entries.panes > before) & (entries.panes <= now))
        if len(inside) == 0:
            return inside, inside
        rows = self._plan.algebra.lower(entries.state.take(pa.array(inside))).column(ROWS).to_numpy()
        code, pane = codes[inside], entries.panes[inside]
        order = np.lexsort((pane, code))
        code, pane, rows = code[order], pane[order], rows[order]
        begins = np.ones(len(code), dtype=np.bool_)
        begins[1:] = (code[1:] != code[:-1]) | (pane[1:] != pane[:-1])
        at = np.flatnonzero(begins)
        code, pane, rows = code[at], pane[at], np.add.reduceat(rows, at)
        mine, first = np.unique(code, return_index=True)
        of_key = np.searchsorted(mine, code)
        started = self._counted(keys.take(mine))
        total = np.cumsum(rows)
        through = total - (total - rows)[first][of_key] + started[0][of_key]
        last = np.append(first[1:], len(code)) - 1
        self._keep(started[1], through[last])
        opens = through // self._every > (through - rows) // self._every
        if not self._plan.every:
            opens = latest_of_key(code, opens)
        return code[opens], pane[opens]

    def _counted(self, keys: pa.Table) -> tuple[Int64s, tuple[Int64s, pa.Table, pa.Table, Int64s]]:
        """Return how many rows of each key were counted, and what :meth:`_keep` needs."""
        numbers = key_numbers(keys)
        pages = self._pages.pages(numbers)
        kept = self._pages.read(pages)
        known, asked = Keys([kept.select(self._plan.key_schema.names), keys]).codes
        count = np.zeros(1 + max(int(known.max(initial=-1)), int(asked.max(initial=-1))), dtype=np.int64)
        count[known] = kept.column(_COUNTED).to_numpy()
        others = kept.filter(pa.array(~np.isin(known, asked)))
        keys = keys.append_column(_NUMBER, pa.array(numbers))
        return count[asked], (pages, others, keys, np.array([kept.num_rows]))

    def _keep(self, read: tuple[Int64s, pa.Table, pa.Table, Int64s], counted: Int64s) -> None:
        pages, others, keys, before = read
        now = keys.append_column(_COUNTED, pa.array(counted)).select(self._schema.names).cast(self._schema)
        self._pages.write(pages, int(before[0]), pa.concat_tables([others, now]))
