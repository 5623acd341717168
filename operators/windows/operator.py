"""One step of a window operator, from one low-watermark to the next, with state as an argument and a result."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from ...core.rows.exact_integers import HIGHEST, LOWEST, Int64s, Mask
from ..aggregates.algebra import Aggregates
from ..runtime.feeds import KeyBounds
from ..state.entries import Entries, Keys
from .emission import every_window, latest_per_key, latest_started, most_recent, partial_windows
from .evaluate import WindowStates, added, advance, combine_each
from .panes import PaneWindows

Opened = Callable[[Keys, Int64s, Entries, int, int], tuple[Int64s, Int64s]]
"""Keys and windows that entries open between two windows, where not every row opens one."""

Kept = Callable[[int, int], Entries]
"""Entries kept by earlier steps, of a first to a last pane."""


@dataclasses.dataclass(frozen=True)
class WindowProgress:
    """The complete windows at a step."""

    before: int  # greatest window that was complete before the step; LOWEST for none
    now: int  # greatest window that is complete now
    final: int  # greatest window that was past correction before the step: `before` less the allowed lateness


@dataclasses.dataclass(frozen=True)
class WindowStep:
    """The result of one step."""

    closed: WindowStates  # complete windows, and corrections of earlier results
    partial: WindowStates | None  # open windows, if early results are requested
    # last window, an entry for each key in its newest pane; None if windows are combined from all panes
    running: Entries | None


class WindowOperator:
    """An operator that computes windows per key, which are chosen when they close.

    If `every`, each window emits a result, else only the most recent one of each key. If `early`, open windows emit
    partial results. `opened` is for windows that slide by several rows.
    """

    def __init__(
        self, paned: PaneWindows, aggregates: Aggregates, *, every: bool, early: bool, opened: Opened | None = None
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

    def step(self, progress: WindowProgress, new: Entries, kept: Kept, running: Entries | None) -> WindowStep:
        """Add entries, and close windows.

        Each of the `new` entries is in a window that is not final; `kept` has the entries of earlier steps. `running`
        is the window of the step before, if :attr:`keeps_window`.
        """
        before, now = progress.before, progress.now
        found: list[WindowStates] = []
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
        return WindowStep(closed, partial, running)

    def _inside(self, entries: Entries, wid: int) -> Entries:
        first, last = self._paned.first_and_last(wid)
        return entries.between(int(first), int(last))

    def _advanced(
        self, before: int, now: int, new: Entries, kept: Kept, running: Entries
    ) -> tuple[WindowStates, Entries]:
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

    def _combined(self, before: int, now: int, new: Entries, kept: Kept) -> WindowStates:
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
        return WindowStates(keys.take(code), wid, state)

    def _corrections(self, progress: WindowProgress, late: Entries, new: Entries, kept: Kept) -> list[WindowStates]:
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
        return [WindowStates(keys.take(code), wid, state)]

    def _partial(self, now: int, new: Entries, kept: Kept, running: Entries | None) -> WindowStates | None:
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
        return WindowStates(every.take(asked), wid, state)

    def _nothing(self, new: Entries) -> WindowStates:
        return WindowStates(
            new.keys.slice(0, 0), np.empty(0, dtype=np.int64), self._aggregates.state_schema.empty_table()
        )


def _joined(parts: list[WindowStates]) -> WindowStates:
    if len(parts) == 1:
        return parts[0]
    wids: Int64s = np.concatenate([part.wids for part in parts])
    return WindowStates(
        pa.concat_tables([part.keys for part in parts]), wids, pa.concat_tables([part.state for part in parts])
    )


class PerKeyWatermarks:
    """The windows that are closed for single keys, by punctuation of their own.

    `complete` maps bounds to the greatest window that each completes. If `endless`, a key that has ended still has a
    result in each later window.
    """

    def __init__(self, bounds: KeyBounds, complete: Callable[[Int64s], Int64s], *, endless: bool) -> None:
        self.bounds = bounds
        self._complete = complete
        self._endless = endless

    def __len__(self) -> int:
        return len(self.bounds)

    @property
    def farthest(self) -> int:
        """The greatest window that is closed for any key; LOWEST for none."""
        return int(self.closed(np.array([self.bounds.farthest], dtype=np.int64))[0])

    def closed(self, bounds: Int64s) -> Int64s:
        """Return the greatest window that each bound closes; LOWEST for the least bound."""
        return np.where(bounds == LOWEST, LOWEST, self._complete(bounds))

    def closed_for(self, keys: pa.Table) -> Int64s:
        """Return the greatest window that is closed for each key; LOWEST for a key without punctuation of its own."""
        if len(self) == 0:
            return np.full(keys.num_rows, LOWEST, dtype=np.int64)
        return self.closed(self.bounds.of(keys.columns))

    def given(self, results: WindowStates) -> Mask:
        """Return which results were emitted before, when their key's window closed ahead."""
        return results.wids <= self.closed_for(results.keys)

    def advance(self, feeds: Mapping[str, int], bound: int | None) -> Int64s:
        """Raise the bounds of single keys without computing results; return the windows that the risen bounds close."""
        raised = self.bounds.raised(feeds, floor=LOWEST if bound is None else bound, endless=self._endless)
        none = np.empty(0, dtype=np.int64)
        return none if raised is None else self.closed(raised.after)

    def close(
        self,
        paned: PaneWindows,
        aggregates: Aggregates,
        every: bool,
        now: int,
        feeds: Mapping[str, int],
        bound: int | None,
        kept: Kept,
    ) -> WindowStates | None:
        """Close windows of single keys beyond `now`, the greatest window that is closed for all; None if none closes.

        `every` returns each window, not only a key's most recent one. `kept` returns all entries that there are.
        """
        known = copy.copy(self.bounds)
        if not (self.advance(feeds, bound) > now).any():
            return None
        entries = kept(LOWEST, HIGHEST)
        keys = Keys([entries.keys])
        codes = keys.codes[0]
        each = keys.take(np.arange(keys.size))
        after = np.maximum(self.closed(known.of(each.columns)), now)
        through = self.closed_for(each)
        asked = (through > after)[codes]
        if not asked.any():
            return None
        entries, codes = entries.take(asked), codes[asked]
        if every:
            code, wid = every_window(paned, codes, entries.panes, after[codes], through[codes])
        else:
            inside = (entries.panes if paned.by_row else paned.over.wids(entries.panes)[0]) <= through[codes]
            last = latest_per_key(entries.panes[inside], codes[inside], keys.size)
            code = np.flatnonzero(last > LOWEST)
            wid = np.minimum(most_recent(paned, last[code], HIGHEST), through[code])
            code, wid = code[wid > after[code]], wid[wid > after[code]]
        state = combine_each(paned, aggregates, entries, codes, (code, wid))
        return WindowStates(keys.take(code), wid, state)


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

    closed: WindowStates  # committed windows that are complete now
    commitments: Commitments  # the input of the next step
    wanted: Mask  # new entries that a key's current or next committed window may need; the others are superseded
    keep_from: int  # least pane of which entries are needed; LOWEST for all


class EagerOperator:
    """An operator that computes sliding or tumbling windows per key, one at a time.

    A step serves each key once: it emits the committed window if that has closed, and commits to the window that
    started last. If that has closed as well, because a batch is longer than a window, it emits it at once.
    """

    def __init__(self, paned: PaneWindows, aggregates: Aggregates) -> None:
        self._paned = paned
        self._aggregates = aggregates

    @staticmethod
    def none(key: pa.Schema) -> Commitments:
        return Commitments(key.empty_table(), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))

    def step(
        self,
        progress: WindowProgress,
        new: Entries,
        kept: Kept,
        before: Commitments,
        ahead: PerKeyWatermarks | None = None,
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

    def _evaluated(self, keys: Keys, code: Int64s, wid: Int64s, new: Entries, kept: Kept) -> WindowStates:
        if len(code) == 0:
            return WindowStates(new.keys.slice(0, 0), wid, self._aggregates.state_schema.empty_table())
        first, last = self._paned.first_and_last(wid)
        low, high = int(first.min()), int(last.max())
        entries = Entries.concat([new.between(low, high), kept(low, high)])
        # Keys of the entries by the numbers of those that are asked for.
        asked = keys.take(code)
        both = Keys([asked, entries.keys])
        state = combine_each(self._paned, self._aggregates, entries, both.codes[1], (both.codes[0], wid))
        return WindowStates(asked, wid, state)
