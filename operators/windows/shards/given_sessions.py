"""The emitted results of sessions, so that those of sessions that no longer exist can be retracted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ....core.rows.exact_integers import HIGHEST, Int64s, Mask, affine
from ...state.entries import Keys
from ...state.pages import KeyPages
from ...state.store import Store
from ..evaluate import WindowStates
from ..sessions import START, Sessions, SessionWindows, key_numbers
from .plan import WindowPlan

_NUMBER, _END, _FINAL = "__upstream_number", "__upstream_end", "__upstream_final"


class GivenSessions:
    """A row for each result of a session that may change: its window-id, its end, and whether it was final.

    Parameters
    ----------
    store : Store
        The shard's.
    plan : WindowPlan
    saved
        What :meth:`to_json` gave; empty at first.
    """

    def __init__(self, store: Store, plan: WindowPlan, saved: Any) -> None:
        assert isinstance(plan.windows, SessionWindows)
        self._plan = plan
        self._gap = plan.windows.gap
        own = [pa.field(name, pa.int64()) for name in (START, _END, _NUMBER)]
        self._schema = pa.schema([*plan.key_schema, *own, pa.field(_FINAL, pa.bool_())])
        self._pages = KeyPages(store, "given", _NUMBER, self._schema, saved, (_END,))

    def to_json(self) -> dict[str, Any]:
        return self._pages.to_json()

    @property
    def least_end(self) -> int:
        """The least end of a result that may be retracted."""
        least = self._pages.least(_END)
        return HIGHEST if least is None else least

    def replaced(self, sessions: Sessions, closed: Mask, partial: Mask, over: Mask) -> tuple[WindowStates, int]:
        """Replace the results of some sessions by new ones.

        `sessions` are all sessions of some keys, in the order of keys, then of time. `closed` and `partial` mark those
        that emit a result now, final or not. `over` marks those that cannot change any more, so their results are
        forgotten.

        Return the earlier results, without values, in sessions that now have another id, and how many of the final
        results were emitted before.
        """
        plan = self._plan
        give = closed | partial
        asked = np.flatnonzero(give | over)
        empty = WindowStates(sessions.keys.slice(0, 0), np.empty(0, dtype=np.int64), plan.algebra.empty(0))
        if len(asked) == 0:
            return empty, 0
        pages = self._pages.pages(key_numbers(sessions.keys.take(pa.array(asked))))
        before = self._pages.read(pages)
        start, end = (before.column(name).to_numpy() for name in (START, _END))
        at = _places(sessions, before.select(list(plan.key)), start)
        mine = (at >= 0) & (give | over)[at]
        gone = mine & give[at] & (sessions.start[at] != start)
        again = np.zeros(len(sessions), dtype=np.bool_)
        again[at[mine & before.column(_FINAL).to_numpy(zero_copy_only=False)]] = True
        taken = before.filter(pa.array(gone))
        swallowed = WindowStates(
            taken.select(list(plan.key)), start[gone], plan.algebra.empty(int(np.count_nonzero(gone))), end[gone]
        )
        new = sessions.take(give & ~over)
        table = new.keys
        columns = {
            START: new.start,
            _END: affine(new.last, 1, self._gap),
            _NUMBER: key_numbers(new.keys),
            _FINAL: closed[give & ~over],
        }
        for name, values in columns.items():
            table = table.append_column(name, pa.array(values))
        stay = before.filter(pa.array(~mine))
        self._pages.write(pages, before.num_rows, pa.concat_tables([stay, table.cast(self._schema)]))
        return swallowed, int(np.count_nonzero(again & closed))


def latest_of_key(codes: Int64s, which: Mask) -> Mask:
    """Return which sessions are their key's latest among some; they are in the order of keys, then of time."""
    found = np.zeros(len(codes), dtype=np.bool_)
    at = np.flatnonzero(which)
    found[at[np.append(codes[at][1:] != codes[at][:-1], np.ones(min(len(at), 1), dtype=np.bool_))]] = True
    return found


def _places(sessions: Sessions, keys: pa.Table, time: Int64s) -> Int64s:
    """Return the position of the key's session that contains each time; -1 if there is none."""
    numbers = Keys([sessions.keys, keys])
    codes, asked = numbers.codes
    known = np.unique(np.concatenate([sessions.start, time]))
    width = len(known) + 1
    order = np.lexsort((sessions.start, codes))
    places = codes[order] * width + np.searchsorted(known, sessions.start[order])
    found = np.searchsorted(places, asked * width + np.searchsorted(known, time), "right") - 1
    at = np.where(found >= 0, order[np.maximum(found, 0)], -1)
    inside = (at >= 0) & (codes[at] == asked) & (sessions.start[at] <= time) & (time <= sessions.last[at])
    return np.where(inside, at, -1)
