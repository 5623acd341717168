"""One shard of session windows: a batch of frames in, results of sessions out."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ....core.rows.exact_integers import HIGHEST, LOWEST, Int64s, Mask, affine
from ....core.rows.frames import split_punctuation
from ....core.rows.system_column import TIMESTAMP
from ...runtime.feeds import ENDED, FeedBounds, KeyBounds, punctuation_rows
from ...runtime.pack import by_arrival
from ...runtime.shard import ShardInput
from ...state.entries import Keys
from ...state.pages import KeyPages
from ...state.runs import RunFiles
from ...state.store import Store
from ..evaluate import WindowStates
from ..sessions import LAST, START, Sessions, SessionWindows, ended, key_numbers
from .plan import WindowPlan
from .results import WindowStateShard, hear, is_partial, key_bounds, key_punctuation, result_schema, results_table

_NUMBER = "__upstream_number"
_END, _FINAL = "__upstream_end", "__upstream_final"


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


_CLOSED = "__upstream_closed"
_OPEN, _KEPT, _SINCE = "__upstream_open", "__upstream_kept", "__upstream_since"


class SessionShard(WindowStateShard):
    """A shard of session windows.

    It keeps each key's sessions on pages of keys. Each page records the least time of a last row. So a batch reads the
    pages of its rows' keys, and those on which a session closes. `late` has the rows whose session was final.
    """

    def __init__(self, number: int, plan: WindowPlan, store: Store, files: RunFiles | None = None) -> None:
        assert isinstance(plan.windows, SessionWindows)
        super().__init__(number, plan, store, files)
        self._gap = plan.windows.gap
        head = self._head
        self._feeds = FeedBounds(head)
        own = [pa.field(name, pa.int64()) for name in (START, LAST, _NUMBER, _OPEN, _KEPT, _SINCE)]
        schema = pa.schema([*plan.key_schema, *own, pa.field(_CLOSED, pa.bool_()), *plan.algebra.state_schema])
        self._schema = schema
        self._pages = KeyPages(
            self._store, "sessions", _NUMBER, schema, head.get("sessions", {}), (_OPEN, _KEPT, _SINCE)
        )
        # Only a result that may be re-emitted has to be retracted when another session absorbs it.
        again = plan.early or plan.lateness_us > 0
        self._given = GivenSessions(self._store, plan, head.get("given", {})) if again else None
        self._ahead = key_bounds(plan, self._store, head, number)
        self._late = self._closed = self._partial = self._corrected = self._read = 0

    def step(self, given: ShardInput) -> tuple[pa.Table | None, dict[str, Any]]:
        """Process the rows; return tombstones of retracted results, results, then the shard's own punctuation."""
        plan = self._plan
        tables = self._opened(given.left)
        now_us = self._now_us
        whole, punctuation = self._whole([table for table in tables if not is_partial(table)])
        arrived = [table for table in tables if is_partial(table)]
        before = _Bounds(copy.copy(self._ahead), self._feeds.low_watermark)
        if punctuation.num_rows:
            hear(plan, punctuation, self._feeds, self._ahead)
        raised = self._ahead.raised(self._feeds.bounds)
        now = _Bounds(self._ahead, self._feeds.low_watermark)
        parts = self._stepped(arrived, whole, before, now, now_us, None if raised is None else raised.keys)
        results, self._seq = results_table(plan, parts, self._number, now_us, self._seq, {})
        bound = self._feeds.low_watermark
        promises = self._punctuation(now.least, self._head.get("told_us", LOWEST), now_us), self._of_keys(now_us)
        result = pa.concat_tables([results, *promises])
        needs, since = self._pages.least(_OPEN), self._pages.least(_SINCE)
        held = needs is not None and needs < HIGHEST
        return result, {
            "bound": bound,
            "closed": self._complete(now.least),
            "final": self._complete(now.least, plan.lateness_us),
            "ahead": self._complete(self._ahead.farthest, plan.lateness_us),
            "results": self._closed - self._corrected,
            "partial": self._partial,
            "corrected": self._corrected,
            "late": self._late,
            "entries": self._pages.rows,
            "runs_read": self._read,
            "runs_written": self._read,
            "plan": plan.identity(),
            **self._settings,
            "held": self._pages.rows if held else 0,
            "held_since_us": since if held else None,
            "needs": min(needs, HIGHEST - 1) + 1 if needs is not None and held else None,
            "bounds": dict(self._feeds.bounds),
        }

    def saved(self) -> dict[str, Any]:
        return {
            **super().saved(),
            "told_us": self._head.get("told_us", LOWEST),
            "ahead": self._ahead.save(),
            "sessions": self._pages.to_json(),
            **self._feeds.to_json(),
            **({} if self._given is None else {"given": self._given.to_json()}),
        }

    def _whole(self, tables: Sequence[pa.Table]) -> tuple[pa.Table, pa.Table]:
        """Return the rows that arrived unaggregated, in the order of arrival, and punctuation."""
        schema = tables[0].schema.remove_metadata() if tables else self._plan.schema
        rows, punctuation = split_punctuation(
            pa.concat_tables([schema.empty_table(), *(table.cast(schema) for table in tables)])
        )
        return by_arrival(rows), punctuation

    def _complete(self, bound: int, lateness_us: int = 0) -> int:
        """Return the greatest time of a last row that no row can join any more."""
        if bound <= LOWEST + lateness_us:
            return LOWEST
        return int(self._plan.windows.last_complete(bound if bound == ENDED else bound - lateness_us))

    def _stepped(
        self,
        arrived: Sequence[pa.Table],
        whole: pa.Table,
        before: _Bounds,
        now: _Bounds,
        now_us: int,
        raised: pa.Table | None,
    ) -> list[tuple[WindowStates, bool | None]]:
        """Merge rows into the sessions, and return results by part: True if final, False if not, None if retracted."""
        plan, algebra, gap = self._plan, self._plan.algebra, self._gap
        names = algebra.state_schema.names
        rows, of_row = Sessions.lifted(algebra, whole, plan.key, plan.times(whole), gap)
        new = Sessions.concat([rows, *(Sessions.of(_plain(table), plan.key, names) for table in arrived)])
        numbers = key_numbers(new.keys)
        pages = np.unique(
            np.concatenate(
                [
                    self._pages.pages(numbers),
                    self._pages_of(raised),
                    self._pages.below(_OPEN, now.least),
                    self._pages.below(_KEPT, now.least),
                ]
            )
        )
        self._read = len(pages)
        kept = self._pages.read(pages)
        if kept.num_rows + len(new) == 0:
            return []
        old = kept.num_rows
        both = Sessions.concat([Sessions.of(kept, plan.key, names), new])
        sessions, of_part, codes = both.merged(algebra, gap)
        n = len(sessions)
        touched = _any(of_part[old:], n)
        known = _any(of_part[:old], n)
        floor = before.of(sessions.keys)
        late = touched & ~known & ended(sessions.last, floor, gap, plan.lateness_us)
        if late.any():
            missed = late[of_part[old:][: len(rows)][of_row]]
            self.late = whole.filter(pa.array(missed))
            self._late = plan.rows_of(sessions.state.filter(pa.array(late)))
        bound = now.of(sessions.keys)
        closed = ended(sessions.last, bound, gap) & ~late
        final = ended(sessions.last, bound, gap, plan.lateness_us) | late
        shut = np.zeros(n, dtype=np.bool_)
        shut[of_part[:old]] = kept.column(_CLOSED).to_numpy(zero_copy_only=False)
        since = np.full(n, now_us, dtype=np.int64)
        np.minimum.at(since, of_part[:old], kept.column(_SINCE).to_numpy())
        give = closed & (touched | ~shut)
        if not plan.every:
            give &= latest_of_key(codes, closed)
        partial = np.zeros(n, dtype=np.bool_)
        if plan.early:
            open_ = ~closed & ~late
            partial = latest_of_key(codes, open_) & _any(codes[touched & open_], n)[codes]
        parts: list[tuple[WindowStates, bool | None]] = []
        if self._given is not None:
            swallowed, self._corrected = self._given.replaced(sessions, give, partial, final)
            parts.append((swallowed, None))
        parts += [(_results(sessions.take(give), gap), True), (_results(sessions.take(partial), gap), False)]
        self._closed, self._partial = int(np.count_nonzero(give)), int(np.count_nonzero(partial))
        self._keep(pages, old, sessions, ~final, closed, since)
        return parts

    def _pages_of(self, raised: pa.Table | None) -> Int64s:
        """Return the pages of keys whose own bounds have risen; all pages if a bound is for a part of the key."""
        if raised is None:
            return np.empty(0, dtype=np.int64)
        if any(column.null_count for column in raised.columns):
            return self._pages.all_pages
        return self._pages.pages(key_numbers(raised))

    def _keep(self, pages: Int64s, before: int, sessions: Sessions, stay: Mask, closed: Mask, since: Int64s) -> None:
        plan = self._plan
        rest, closed, since = sessions.take(stay), closed[stay], since[stay]
        end = np.minimum(rest.last, HIGHEST - self._gap) + self._gap
        over = np.minimum(end, HIGHEST - plan.lateness_us) + plan.lateness_us
        table = rest.table()
        columns = {
            _NUMBER: key_numbers(rest.keys),
            _OPEN: np.where(closed, HIGHEST, end),
            _KEPT: over,
            _SINCE: np.where(closed, HIGHEST, since),
            _CLOSED: closed,
        }
        for name, values in columns.items():
            table = table.append_column(name, pa.array(values))
        self._pages.write(pages, before, table.select(self._schema.names).cast(self._schema))

    def _punctuation(self, least: int, told_us: int, now_us: int) -> pa.Table:
        """Return the punctuation on the results' times: every session that is not final ends at the bound or later."""
        schema = result_schema(self._plan)
        end = int(self._ends(np.array([least], dtype=np.int64))[0])
        if end <= told_us or end == LOWEST:
            return schema.empty_table()
        self._head["told_us"] = end
        times = {"window_time": None if end == ENDED else end - 1, "window_end": None if end == ENDED else end}
        columns = {name: pa.array([time], pa.int64()).cast(TIMESTAMP) for name, time in times.items()}
        return punctuation_rows(schema, [f"window/{self._number}"], now_us, **columns)

    def _of_keys(self, now_us: int) -> pa.Table:
        """Return the punctuation of single keys, whose next session ends later than that of all."""
        if len(self._ahead) == 0:
            return result_schema(self._plan).empty_table()
        end = self._ends(self._ahead.entries[1])
        last = np.where((end == ENDED) | (end == LOWEST), end, end - 1)
        promised = self._head.get("told_us", LOWEST)
        promised = promised if promised in (ENDED, LOWEST) else promised - 1
        return key_punctuation(self._plan, self._ahead, (last, end), self._number, promised, now_us)

    def _ends(self, bounds: Int64s) -> Int64s:
        """Return the least end of a session that is not final by each bound, or of a result that may be retracted."""
        lateness = self._plan.lateness_us
        finite = np.maximum(bounds, LOWEST + lateness + 1) - lateness
        ends = np.where((bounds == ENDED) | (bounds == LOWEST), bounds, finite)
        # A result that may still be retracted has the time with which it was emitted.
        return ends if self._given is None else np.minimum(ends, self._given.least_end)


class _Bounds:
    """The bounds of keys at one point of a batch."""

    def __init__(self, ahead: KeyBounds, least: int | None) -> None:
        self._ahead = ahead
        self.least = LOWEST if least is None else least

    def of(self, keys: pa.Table) -> Int64s:
        return np.maximum(self._ahead.of(keys.columns), self.least)


def _plain(table: pa.Table) -> pa.Table:
    return table.replace_schema_metadata(None)


def _any(members: Int64s, size: int) -> Mask:
    found = np.zeros(size, dtype=np.bool_)
    found[members] = True
    return found


def _results(sessions: Sessions, gap: int) -> WindowStates:
    return WindowStates(sessions.keys, sessions.start, sessions.state, affine(sessions.last, 1, gap))
