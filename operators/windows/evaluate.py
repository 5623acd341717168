"""Results of windows from entries by pane."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa

from ...core.rows.exact_integers import LOWEST, Int64s, Mask
from ..aggregates.algebra import Aggregates, combined_ranges, prefixes
from ..state.entries import Entries, Keys
from .emission import every_window, latest_per_key, most_recent
from .panes import PaneWindows


@dataclasses.dataclass(frozen=True)
class WindowStates:
    """States of windows, by update key."""

    keys: pa.Table
    wids: Int64s
    state: pa.Table
    ends: Int64s | None = None  # ends of the windows if their ids do not determine them (sessions), else None

    def __len__(self) -> int:
        return len(self.wids)

    def take(self, which: Mask) -> WindowStates:
        at = pa.array(which)
        ends = None if self.ends is None else self.ends[which]
        return WindowStates(self.keys.filter(at), self.wids[which], self.state.filter(at), ends)


def added(aggregates: Aggregates, running: Entries, late: Entries) -> Entries:
    """Add late entries to a kept window, which has an entry for each key, in the pane of the key's newest."""
    keys = Keys([running.keys, late.keys])
    codes = np.concatenate(keys.codes)
    state = aggregates.combine(pa.concat_tables([running.state, late.state]), codes, keys.size)
    newest = latest_per_key(np.concatenate([running.panes, late.panes]), codes, keys.size)
    return Entries(keys.take(np.arange(keys.size)), newest, state)


def combine_each(
    paned: PaneWindows, aggregates: Aggregates, entries: Entries, codes: Int64s, queries: tuple[Int64s, Int64s]
) -> pa.Table:
    """Compute the states of the windows `queries` (keys, ids) from all of their panes; `codes` are the entry keys."""
    if paned.disjoint:
        return _disjoint(paned, aggregates, entries, codes, queries)
    if len(np.unique(queries[0])) == len(queries[0]):
        return _one_each(paned, aggregates, entries, codes, queries)
    order, low, high = window_ranges(paned, entries.panes, codes, queries)
    return combined_ranges(aggregates, entries.state.take(pa.array(order)), low, high)


def window_ranges(
    paned: PaneWindows, panes: Int64s, codes: Int64s, queries: tuple[Int64s, Int64s]
) -> tuple[Int64s, Int64s, Int64s]:
    """Return an order of entries by key and pane, and the bounds in it of each window."""
    code, wid = queries
    known, rank = np.unique(panes, return_inverse=True)
    first, last = paned.first_and_last(wid)
    width = len(known) + 1
    places = codes * width + rank
    order = np.argsort(places, kind="stable")
    places = places[order]
    low = np.searchsorted(places, code * width + np.searchsorted(known, first, "left"), "left")
    high = np.searchsorted(places, code * width + np.searchsorted(known, last, "right"), "left")
    return order, low, high


def _one_each(
    paned: PaneWindows, aggregates: Aggregates, entries: Entries, codes: Int64s, queries: tuple[Int64s, Int64s]
) -> pa.Table:
    # With one window a key, entries know their window: no need to sort them.
    code, wid = queries
    size = 1 + max(int(codes.max(initial=-1)), int(code.max(initial=-1)))
    place = np.full(size, -1, dtype=np.int64)
    place[code] = np.arange(len(code))
    first, last = paned.first_and_last(wid)
    at = place[codes]
    inside = at >= 0
    inside[inside] = (entries.panes[inside] >= first[at[inside]]) & (entries.panes[inside] <= last[at[inside]])
    state = entries.state if inside.all() else entries.state.filter(pa.array(inside))
    return aggregates.combine(state, at[inside], len(code))


def _disjoint(
    paned: PaneWindows, aggregates: Aggregates, entries: Entries, codes: Int64s, queries: tuple[Int64s, Int64s]
) -> pa.Table:
    # Each entry is in one window, so entries look for their window and not windows for their entries.
    code, wid = queries
    known, rank = np.unique(wid, return_inverse=True)
    own = paned.over.wids(entries.panes)[0]
    at = np.searchsorted(known, own)
    asked = at < len(known)
    asked[asked] = known[at[asked]] == own[asked]
    places = code * len(known) + rank
    order = np.argsort(places, kind="stable")
    wanted = codes * max(len(known), 1) + at
    found = np.searchsorted(places[order], wanted)
    inside = asked & (found < len(places))
    inside[inside] = places[order][found[inside]] == wanted[inside]
    mine = np.flatnonzero(inside)
    return aggregates.combine(entries.state.take(pa.array(mine)), order[found[mine]], len(code))


def advance(
    paned: PaneWindows,
    aggregates: Aggregates,
    before: Entries,
    enter: Entries,
    leave: Entries,
    span: tuple[int, int],
    every: bool,
) -> tuple[WindowStates, Entries]:
    """Advance each key from one window to a later one; return the results between, and the later window.

    Entries since the earlier window are added, and those that left are retracted. So the cost depends on these entries,
    and not on RANGE / SLIDE (thesis §6.2.3). This needs differential aggregates in sliding windows longer than SLIDE,
    or landmark windows.

    `span` is the earlier window, LOWEST for none, and the later one. `before` is the earlier window: an entry for each
    key, in the pane of its newest. `enter` are the entries after it, up to the last pane of the later one. `leave` are
    those before the first pane of the later one, from `before` or `enter`. If not `every`, only each key's most recent
    window has a result.
    """
    after, through = span
    keys = Keys([before.keys, enter.keys, leave.keys])
    mine, entering, leaving = keys.codes
    everything = np.concatenate([mine, entering])
    panes = np.concatenate([before.panes, enter.panes])
    last_pane = latest_per_key(panes, everything, keys.size)
    if every:
        code, wid = every_window(paned, everything, panes, after, through)
        state = _between(paned, aggregates, (before, mine), (enter, entering), (leave, leaving), (code, wid))
    else:
        code = np.flatnonzero(last_pane > LOWEST)  # a key that only leaves has nothing to say
        wid = most_recent(paned, last_pane[code], through)
        code, wid = code[wid > after], wid[wid > after]
        until = np.full(keys.size, LOWEST, dtype=np.int64)
        until[code] = paned.first_and_last(wid)[0]
        gone = leave.panes < until[leaving]
        state = aggregates.combine(pa.concat_tables([before.state, enter.state]), everything, keys.size)
        if gone.any():
            state = aggregates.retract(state, aggregates.combine(leave.take(gone).state, leaving[gone], keys.size))
        state = state.take(pa.array(code))
    here = np.flatnonzero(wid == through)
    now = Entries(keys.take(code[here]), last_pane[code[here]], state.take(pa.array(here)))
    return WindowStates(keys.take(code), wid, state), now


def _between(
    paned: PaneWindows,
    aggregates: Aggregates,
    before: tuple[Entries, Int64s],
    enter: tuple[Entries, Int64s],
    leave: tuple[Entries, Int64s],
    queries: tuple[Int64s, Int64s],
) -> pa.Table:
    """Return states of many windows of a key: sums up to their ends less sums up to their beginnings."""
    code, wid = queries
    first, last = paned.first_and_last(wid)
    beginning = np.full(len(before[0]), LOWEST, dtype=np.int64)
    gained = _up_to(
        aggregates,
        pa.concat_tables([before[0].state, enter[0].state]),
        np.concatenate([before[1], enter[1]]),
        np.concatenate([beginning, enter[0].panes]),
        (code, last),
    )
    if len(leave[0]) == 0 or paned.endless:
        return gained
    lost = _up_to(aggregates, leave[0].state, leave[1], leave[0].panes, (code, first - 1))
    return aggregates.retract(gained, lost)


def _up_to(
    aggregates: Aggregates, state: pa.Table, codes: Int64s, panes: Int64s, queries: tuple[Int64s, Int64s]
) -> pa.Table:
    """Return for each (code, pane) the state of all entries of the key up to that pane."""
    code, last = queries
    order = np.lexsort((panes, codes))
    sums = prefixes(aggregates, state.take(pa.array(order)), codes[order])
    known, rank = np.unique(panes, return_inverse=True)
    width = len(known) + 1
    places = (codes * width + rank)[order]
    at = np.searchsorted(places, code * width + np.searchsorted(known, last, "right"), "left") - 1
    none = (at < 0) | (codes[order][np.maximum(at, 0)] != code) if len(codes) else np.ones(len(code), dtype=np.bool_)
    if none.any():
        sums = pa.concat_tables([sums, aggregates.empty(1)])
        at = np.where(none, len(codes), at)
    return sums.take(pa.array(at))
