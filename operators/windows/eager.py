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
    """The open windows to which keys are committed."""

    keys: pa.Table  # each key once
    wids: Int64s  # the window to which each key is committed
    last_panes: Int64s  # pane of the key's newest entry, which determines the next window to commit to

    def __len__(self) -> int:
        return len(self.wids)


@dataclasses.dataclass(frozen=True)
class EagerStep:
    """The result of one step."""

    closed: Results  # committed windows that are complete now
    commitments: Commitments  # the input of the next step
    wanted: Mask  # new entries that a key's current or next committed window may need; the others are superseded
    keep_from: int  # least pane of which entries are needed; LOWEST for all


class EagerOperator:
    """An operator that computes sliding or tumbling windows per key, one at a time.

    A step serves each key once: it emits the committed window if that has closed, and commits to the window that
    started last. If that has closed as well, because a batch is longer than a window, it emits it at once.
    """

    def __init__(self, paned: Paned, aggregates: Aggregates) -> None:
        self._paned = paned
        self._aggregates = aggregates

    @staticmethod
    def none(key: pa.Schema) -> Commitments:
        return Commitments(key.empty_table(), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))

    def step(
        self, progress: Progress, new: Entries, kept: Kept, before: Commitments, ahead: KeysAhead | None = None
    ) -> EagerStep:
        """Add entries, close windows, and commit to new ones.

        Each of the `new` entries is in a window that is not final; `kept` has the entries of earlier steps. `ahead` has
        keys with more complete windows than all keys have.
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
