"""One step of a window operator, from one low-watermark to the next, with state as an argument and a result."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from ...core.rows.exact_integers import HIGHEST, LOWEST, Int64s
from ..aggregates.algebra import Aggregates
from ..runtime.entries import Entries, Keys
from .emission import every_window, most_recent, partial_windows
from .evaluate import Results, added, advance, combine_each
from .panes import Paned
from .recent import latest_per_key

__all__ = ["Kept", "Opened", "Progress", "Step", "WindowOperator"]

Opened = Callable[[Keys, Int64s, Entries, int, int], tuple[Int64s, Int64s]]
"""Keys and windows that entries open between two windows, where not every row opens one."""

Kept = Callable[[int, int], Entries]
"""Entries kept by earlier steps, of a first to a last pane."""


@dataclasses.dataclass(frozen=True)
class Progress:
    """The complete windows at a step."""

    before: int  # greatest window that was complete before the step; LOWEST for none
    now: int  # greatest window that is complete now
    final: int  # greatest window that was past correction before the step: `before` less the allowed lateness


@dataclasses.dataclass(frozen=True)
class Step:
    """The result of one step."""

    closed: Results  # complete windows, and corrections of earlier results
    partial: Results | None  # open windows, if early results are requested
    # last window, an entry for each key in its newest pane; None if windows are combined from all panes
    running: Entries | None


class WindowOperator:
    """An operator that computes windows per key, which are chosen when they close.

    If `every`, each window emits a result, else only the most recent one of each key. If `early`, open windows emit
    partial results. `opened` is for windows that slide by several rows.
    """

    def __init__(
        self, paned: Paned, aggregates: Aggregates, *, every: bool, early: bool, opened: Opened | None = None
    ) -> None:
        self._paned = paned
        self._opened = opened
        self._aggregates = aggregates
        self._every = every
        self._early = early
        # Keeping a window pays where panes are in many windows, and can be retracted from it.
        sliding = not paned.disjoint and not paned.by_row
        self.keeps_window = paned.endless or (sliding and aggregates.differential)

    def keep_from(self, now: int, final: int) -> int:
        """Return the least pane of which entries are needed after a step; LOWEST for all.

        `now` and `final` are the greatest windows that are complete, and that are past correction, after the step.
        """
        if self._paned.endless:
            return LOWEST if now == LOWEST else int(self._paned.first_and_last(now)[1]) + 1
        # Entries of the kept window are needed to retract them from it.
        needed = min(now, final + 1) if self.keeps_window else final + 1
        return LOWEST if min(now, final) == LOWEST else int(self._paned.first_and_last(needed)[0])

    def step(self, progress: Progress, new: Entries, kept: Kept, running: Entries | None) -> Step:
        """Add entries, and close windows.

        Each of the `new` entries is in a window that is not final; `kept` has the entries of earlier steps. `running`
        is the window of the step before, if :attr:`keeps_window`.
        """
        before, now = progress.before, progress.now
        found: list[Results] = []
        if before > LOWEST and len(new):
            late = new.panes <= int(self._paned.first_and_last(before)[1])
            if late.any():
                found += self._corrections(progress, new.take(late), new, kept)
                if running is not None:
                    running = added(self._aggregates, running, self._inside(new.take(late), before))
        if now > before:
            if running is not None:
                results, running = self._advanced(before, now, new, kept, running)
            else:
                results = self._combined(before, now, new, kept)
            found.append(results)
        closed = _joined(found) if found else self._nothing(new)
        partial = self._partial(now, new, kept, running) if self._early and len(new) else None
        return Step(closed, partial, running)

    def _inside(self, entries: Entries, wid: int) -> Entries:
        first, last = self._paned.first_and_last(wid)
        return entries.between(int(first), int(last))

    def _advanced(self, before: int, now: int, new: Entries, kept: Kept, running: Entries) -> tuple[Results, Entries]:
        paned = self._paned
        first_now, last_now = (int(end) for end in paned.first_and_last(now))
        started = before > LOWEST
        first_before, last_before = (int(end) for end in paned.first_and_last(before)) if started else (LOWEST, LOWEST)
        after = last_before + 1 if started else LOWEST
        enter = Entries.concat([new.between(after, last_now), kept(after, last_now)])
        if paned.endless:
            leave = new.take(np.empty(0, dtype=np.int64))
        else:
            # Entries of this step that were late for the earlier window are in it by now, and among `new`.
            least = first_before if started else LOWEST
            leave = Entries.concat([new.between(least, first_now - 1), kept(least, first_now - 1)])
        return advance(paned, self._aggregates, running, enter, leave, (before, now), self._every)

    def _combined(self, before: int, now: int, new: Entries, kept: Kept) -> Results:
        paned = self._paned
        last = int(paned.first_and_last(now)[1])
        first = int(paned.first_and_last(before + 1)[0]) if before > LOWEST else LOWEST
        entries = Entries.concat([new.between(first, last), kept(first, last)])
        keys = Keys([entries.keys])
        codes = keys.codes[0]
        if self._opened is not None:
            code, wid = self._opened(keys, codes, entries, before, now)
        elif self._every:
            code, wid = every_window(paned, codes, entries.panes, before, now)
        else:
            code = np.arange(keys.size)
            wid = most_recent(paned, latest_per_key(entries.panes, codes, keys.size), now)
            code, wid = code[wid > before], wid[wid > before]
        state = combine_each(paned, self._aggregates, entries, codes, (code, wid))
        return Results(keys.take(code), wid, state)

    def _corrections(self, progress: Progress, late: Entries, new: Entries, kept: Kept) -> list[Results]:
        """Return new results of windows whose earlier results have changed."""
        paned, before, final = self._paned, progress.before, progress.final
        if final >= before:
            return []
        first = int(paned.first_and_last(final + 1)[0]) if final > LOWEST else LOWEST
        last = int(paned.first_and_last(before)[1])
        entries = Entries.concat([new.between(first, last), kept(first, last)])
        keys = Keys([late.keys, entries.keys])
        codes, all_codes = keys.codes
        code, wid = every_window(paned, codes, late.panes, final, before)
        if not self._every:
            # Readers have the most recent one of each key: no other needs to be corrected.
            last_pane = latest_per_key(entries.panes, all_codes, keys.size)
            latest = most_recent(paned, np.maximum(last_pane, int(late.panes.min())), before)
            code, wid = code[wid == latest[code]], wid[wid == latest[code]]
        state = combine_each(paned, self._aggregates, entries, all_codes, (code, wid))
        return [Results(keys.take(code), wid, state)]

    def _partial(self, now: int, new: Entries, kept: Kept, running: Entries | None) -> Results | None:
        """Return partial results: for each key with new entries, the open window with the most rows so far."""
        paned = self._paned
        after = int(paned.first_and_last(now)[1]) + 1 if now > LOWEST else LOWEST
        open_ = new.between(after, HIGHEST)
        if len(open_) == 0:
            return None
        keys = Keys([open_.keys])
        last = latest_per_key(open_.panes, keys.codes[0], keys.size)
        # Closed landmark windows are only in the kept one.
        closed = [running] if running is not None and paned.endless else []
        first = after if closed else int(paned.first_and_last(partial_windows(paned, last).min())[0])
        entries = Entries.concat([new.between(first, HIGHEST), kept(first, HIGHEST), *closed])
        every = Keys([keys.take(np.arange(keys.size)), entries.keys])
        asked, codes = every.codes
        # A key may have newer entries from an earlier step.
        newest = latest_per_key(entries.panes, codes, every.size)[asked]
        wid = partial_windows(paned, newest)
        state = combine_each(paned, self._aggregates, entries, codes, (asked, wid))
        return Results(every.take(asked), wid, state)

    def _nothing(self, new: Entries) -> Results:
        return Results(new.keys.slice(0, 0), np.empty(0, dtype=np.int64), self._aggregates.state_schema.empty_table())


def _joined(parts: list[Results]) -> Results:
    if len(parts) == 1:
        return parts[0]
    wids: Int64s = np.concatenate([part.wids for part in parts])
    return Results(
        pa.concat_tables([part.keys for part in parts]), wids, pa.concat_tables([part.state for part in parts])
    )
