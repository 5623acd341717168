"""Eager emission: commit to a key's latest started window, take no other rows until it closes (tr620 §6.2.2)."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.rows.exact_integers import HIGHEST, LOWEST, Int64s
from ..aggregates.algebra import Aggregates
from ..runtime.entries import Entries, Keys
from .evaluate import Results, combine_each
from .groupwise import KeysAhead
from .operator import Kept, Progress
from .panes import Paned
from .recent import latest_per_key, latest_started

__all__ = ["Commitments", "EagerOperator", "EagerStep"]

Mask = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True)
class Commitments:
    """What keys wait for.

    Attributes
    ----------
    keys : pyarrow.Table
        Each key once.
    wids : int64 array of length keys
        The window that a key is committed to; all of them are open.
    last_panes : int64 array of length keys
        The pane of the key's newest entry, which determines the window that started last: the one to commit to next.
    """

    keys: pa.Table
    wids: Int64s
    last_panes: Int64s

    def __len__(self) -> int:
        return len(self.wids)


@dataclasses.dataclass(frozen=True)
class EagerStep:
    """What a step gives.

    Attributes
    ----------
    closed : Results
        Of windows that keys were committed to, and that are complete now.
    commitments : Commitments
        The input of the next step.
    wanted : bool array of length new entries
        Which of them a window may need that a key is, or may be, committed to. All others are superseded.
    keep_from : int
        The least pane of which entries are needed; LOWEST for all.
    """

    closed: Results
    commitments: Commitments
    wanted: Mask
    keep_from: int


class EagerOperator:
    """Computes windows per key, one at a time.

    In a step each key is served once: what it is committed to is given if it has closed, and then it commits to the
    window that started last. That one is given at once if it has closed as well, which it has where a batch is longer
    than a window.

    Parameters
    ----------
    paned : Paned
        Sliding or tumbling windows.
    aggregates : Aggregates
    """

    def __init__(self, paned: Paned, aggregates: Aggregates) -> None:
        self._paned = paned
        self._aggregates = aggregates

    @staticmethod
    def none(key: pa.Schema) -> Commitments:
        """Return the commitments before the first step: none."""
        return Commitments(key.empty_table(), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))

    def step(
        self, progress: Progress, new: Entries, kept: Kept, before: Commitments, ahead: KeysAhead | None = None
    ) -> EagerStep:
        """Take entries, close windows, and commit to new ones.

        Parameters
        ----------
        progress : Progress
        new : Entries
            Entries that came since the step before; none is in final windows only.
        kept : Kept
            Entries of earlier steps.
        before : Commitments
        ahead : KeysAhead or None
            Keys of which more windows are complete than of all.
        """
        paned = self._paned
        keys = Keys([before.keys, new.keys])
        mine, come = keys.codes
        committed = np.full(keys.size, LOWEST, dtype=np.int64)
        committed[mine] = before.wids
        panes = np.concatenate([before.last_panes, new.panes])
        last_pane = latest_per_key(panes, np.concatenate([mine, come]), keys.size)
        started = latest_started(paned.over, last_pane)
        through = np.full(keys.size, progress.now, dtype=np.int64)
        if ahead is not None:
            through = np.maximum(through, ahead.closed_for(keys.take(np.arange(keys.size))))

        closing = np.flatnonzero((committed > LOWEST) & (committed <= through))
        free = (committed <= through) & (started > progress.before) & (started > committed)
        at_once = np.flatnonzero(free & (started <= through))
        code = np.concatenate([closing, at_once])
        wid = np.concatenate([committed[closing], started[at_once]])
        order = np.lexsort((wid, code))
        code, wid = code[order], wid[order]
        closed = self._evaluated(keys, code, wid, new, kept)

        now = np.where(free & (started > through), started, committed)
        waiting = np.flatnonzero(now > through)
        commitments = Commitments(keys.take(waiting), now[waiting], last_pane[waiting])
        low, high = paned.first_and_last(now[waiting])
        next_low = paned.first_and_last(started[waiting])[0]
        first, last, next_first = (np.full(keys.size, LOWEST, dtype=np.int64) for _ in range(3))
        live = np.zeros(keys.size, dtype=np.bool_)
        first[waiting], last[waiting], next_first[waiting], live[waiting] = low, high, next_low, True
        in_it = (new.panes >= first[come]) & (new.panes <= last[come])
        wanted = live[come] & (in_it | (new.panes >= next_first[come]))
        keep_from = int(low.min()) if len(waiting) else HIGHEST
        return EagerStep(closed, commitments, wanted, keep_from)

    def _evaluated(self, keys: Keys, code: Int64s, wid: Int64s, new: Entries, kept: Kept) -> Results:
        if len(code) == 0:
            return Results(new.keys.slice(0, 0), wid, self._aggregates.state_schema.empty_table())
        first, last = self._paned.first_and_last(wid)
        low, high = int(first.min()), int(last.max())
        entries = Entries.concat([new.between(low, high), kept(low, high)])
        # Keys of the entries by the numbers of those that are asked for.
        asked = keys.take(code)
        both = Keys([asked, entries.keys])
        state = combine_each(self._paned, self._aggregates, entries, both.codes[1], (both.codes[0], wid))
        return Results(asked, wid, state)
