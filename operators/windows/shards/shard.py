"""One shard of a window operator, which Spark's stateful processor, the tests and the benchmarks drive."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....core.rows.exact_integers import HIGHEST, LOWEST, Int64s
from ....core.rows.frames import from_frame, to_frame
from ...runtime.feeds import ENDED, FeedBounds
from ...runtime.pack import by_arrival, split_punctuation
from ...runtime.shard import ShardInput
from ...state.entries import PANE, Entries
from ...state.runs import RunFiles
from ...state.store import Store
from ..evaluate import WindowStates
from ..operator import Commitments, EagerOperator, PerKeyWatermarks, WindowOperator, WindowProgress
from .kept_state import HeldEntries, HeldSearch, KeptPanes, ResultFlush
from .plan import WindowPlan
from .results import (
    WindowStateShard,
    hear,
    is_partial,
    key_bounds,
    key_punctuation,
    outside_in,
    punctuation_before,
    result_schema,
    results_table,
    since_of,
    with_state,
)
from .row_numbers import ArrivalNumbers, RowNumbers

_COMMITTED = "__upstream_committed"


class WindowShard(WindowStateShard):
    """A shard of windows over times: frames in, results of windows out, all else in runs of entries.

    `late` has the rows that missed a window which was final.
    """

    def __init__(self, number: int, plan: WindowPlan, store: Store, files: RunFiles | None = None) -> None:
        super().__init__(number, plan, store, files)
        self._feeds = FeedBounds(self._head)
        self._panes = KeptPanes(plan, self._store, self._head)
        self._since = since_of(self._head, plan, self._panes.last_pane)
        self._numbers = _numbers(plan, self._store, self._head.get("numbers", {}))
        opened = None if self._numbers is None else self._numbers.opened
        self._operator = WindowOperator(plan.paned, plan.algebra, every=plan.every, early=plan.early, opened=opened)
        bounds = key_bounds(plan, self._store, self._head, number)
        self._ahead = PerKeyWatermarks(bounds, self._complete_each, endless=plan.paned.endless)
        self._nothing = Entries.none(plan.algebra, plan.key_schema)
        self._flush = ResultFlush(plan, self._store, self._head)
        self._late = self._outside = 0
        self._committed: int | None = None

    def step(self, given: ShardInput) -> tuple[pa.Table | None, dict[str, Any]]:
        """Process the rows, and return the results of windows that are complete, then the shard's own punctuation."""
        plan = self._plan
        tables = self._opened(given.left)
        now_us = self._now_us
        before, final = self._head.get("closed", LOWEST), self._head.get("final", LOWEST)
        whole, punctuation = self._whole([table for table in tables if not is_partial(table)])
        new, rows = self._arrived([table for table in tables if is_partial(table)], whole, final)
        if punctuation.num_rows:
            self._hear(punctuation)
        bound = self._bound()
        closed = max(before, self._complete(bound))
        if closed > before and self._panes.modes is not None:
            self._panes.modes.closed(self._operator.keep_from(before, final))
        last_final = max(final, min(closed, self._complete(bound, plan.lateness_us)))
        if plan.emit == "eager":
            found, partial, wanted, needed = self._eagerly(WindowProgress(before, closed, final), new)
            leaving = [found]
        else:
            found, partial = self._as_closed(WindowProgress(before, closed, final), new, ended=bound == ENDED)
            wanted, needed = None, self._operator.keep_from(closed, last_final) if bound != ENDED else HIGHEST
            leaving = self._by_key(found, new, closed)
            if partial is not None and len(self._ahead):  # closed for its key, a window has no partial result any more
                partial = partial.take(~self._ahead.given(partial))
        parts = [(each, True) for each in leaving] + ([] if partial is None else [(partial, False)])
        results, self._seq = results_table(plan, parts, self._number, now_us, self._seq, self._since)
        n = sum(map(len, leaving))
        released = self._flush.leaving(results.slice(0, n), new, closed, ended=bound == ENDED)
        promises = self._punctuation(last_final, bound, now_us), self._of_keys(now_us)
        result = pa.concat_tables([released, results.slice(n), *promises])
        self._panes.add(rows, new if wanted is None else new.take(wanted), needed)
        holding = HeldSearch(self._head.get("holding"))
        # At the end of all feeds every window has closed, the last of which no number need have.
        ended = bound == ENDED
        held = (
            HeldEntries()
            if ended
            else holding.after(plan.paned, self._panes, new.panes, closed, self._committed, now_us)
        )
        needs = [each for each in (held.needs, self._flush.needs) if each is not None]
        self._head["holding"] = holding.to_json()
        self._head.update(closed=closed, final=last_final)
        corrected = int(np.count_nonzero(leaving[0].wids <= before))
        return result, {
            "bound": None if plan.by_number else bound,
            "closed": closed,
            "final": last_final,
            "ahead": self._ahead.farthest,
            "results": n - corrected,
            "partial": 0 if partial is None else len(partial),
            "corrected": corrected,
            "late": self._late,
            "superseded": 0 if wanted is None else plan.rows_of(new.take(~wanted).state),
            "outside": self._outside,
            "running": self._head.get("running", 0),
            "plan": plan.identity(),
            **self._settings,
            "held": held.count,
            "held_since_us": held.since_us,
            "needs": None if plan.by_number else min(needs, default=None),
            "due": self._flush.due,
            "waiting": self._flush.waiting,
            "bounds": {} if plan.by_number else dict(self._feeds.bounds),
            **self._panes.counts,
        }

    def _by_key(self, found: WindowStates, new: Entries, closed: int) -> list[WindowStates]:
        """Return results without those emitted earlier for single keys, and new results of single keys."""
        plan = self._plan
        if len(self._ahead) == 0:
            return [found]
        found = found.take(~self._ahead.given(found))

        def all_of(first: int, last: int) -> Entries:
            if not plan.paned.endless:
                return Entries.concat([new.between(first, last), self._kept(first, last)])
            # Landmark windows that have closed for all keys are only in the kept one.
            after = first if closed == LOWEST else int(plan.paned.first_and_last(closed)[1]) + 1
            return Entries.concat([new.between(after, last), self._kept(after, last), self._running()])

        bounds, bound = self._feeds.bounds, self._bound()
        more = self._ahead.close(plan.paned, plan.algebra, plan.every, closed, bounds, bound, all_of)
        return [found] if more is None else [found, more]

    def _complete_each(self, bound: Int64s) -> Int64s:
        """Return the greatest window that each bound of a single key completes."""
        plan = self._plan
        # A window that closes by its key's punctuation is not corrected: it waits for the allowed lateness.
        return plan.windows.last_complete(
            np.where(bound == ENDED, bound, np.maximum(bound, LOWEST + plan.lateness_us) - plan.lateness_us)
        )

    def _whole(self, tables: Sequence[pa.Table]) -> tuple[pa.Table, pa.Table]:
        """Return the rows that arrived unaggregated, in the order of arrival, and punctuation."""
        schema = tables[0].schema.remove_metadata() if tables else None
        if schema is None:
            none = pa.schema([*self._plan.schema]).empty_table()
            return none, none
        rows, punctuation = split_punctuation(pa.concat_tables([table.cast(schema) for table in tables]))
        return by_arrival(rows), punctuation

    def _arrived(self, partial: Sequence[pa.Table], whole: pa.Table, final: int) -> tuple[Entries, pa.Table | None]:
        """Return the arrived entries in a window that is not final, and the rows themselves if rows are kept."""
        plan = self._plan
        self._outside = sum(map(outside_in, partial))
        parts = [Entries.of(table.replace_schema_metadata(None), plan.key) for table in partial]
        for at, entries in enumerate(parts):
            first, last = plan.paned.over.wids(entries.panes)
            floor = np.maximum(final, self._ahead.closed_for(entries.keys))
            closed = first <= floor
            if closed.any():  # the reports that `pack` reads were lost: only the number of the rows is left
                self._late += plan.rows_of(entries.take(closed).state)
                parts[at] = entries.take(last > floor)
        kept: pa.Table | None = None
        if whole.num_rows:
            times = plan.times(whole)
            self._head["seen_us"] = max(int(times.max()), self._head.get("seen_us", LOWEST))
            came = whole
            if isinstance(self._numbers, ArrivalNumbers):
                whole = self._numbers.marked(whole)
            first, last = plan.windows.wids(times)
            floor = np.maximum(final, self._ahead.closed_for(whole.select(list(plan.key))))
            late = (first <= floor) & (last >= first)
            if late.any():
                missed = self.late = came.filter(pa.array(late))
                self._late += missed.num_rows
            open_ = (last > floor) | (last < first)
            if not open_.all():
                whole, times = whole.filter(pa.array(open_)), times[open_]
            rows, panes, outside = plan.placed(whole, times)
            self._outside += outside
            if plan.method == "wid":  # of its windows a late row is only in those that are not final
                alive = panes > np.maximum(final, self._ahead.closed_for(rows.select(list(plan.key))))
                rows, panes = rows.filter(pa.array(alive)), panes[alive]
            if self._panes.modes is not None:
                self._panes.modes.heard(rows, panes, self._feeds.over)
            kept = rows.select(plan.stored_columns).append_column(PANE, pa.array(panes))
            parts.append(plan.lifted(kept))
        return Entries.concat([*parts, self._nothing]), kept

    def _hear(self, punctuation: pa.Table) -> None:
        # Windows that slide by several rows wait for the low-watermark of all keys.
        hear(self._plan, punctuation, self._feeds, self._ahead.bounds if self._numbers is None else None)

    def _bound(self) -> int | None:
        """Return the low-watermark; None before there is one."""
        bound, seen_us = self._feeds.low_watermark, self._head.get("seen_us", LOWEST)
        if self._plan.slack_us is None or bound == ENDED:
            return bound
        return None if seen_us == LOWEST else seen_us - self._plan.slack_us

    def _complete(self, bound: int | None, lateness_us: int = 0) -> int:
        if bound is None or bound <= LOWEST + lateness_us:
            return LOWEST
        return int(self._plan.windows.last_complete(bound if bound == ENDED else bound - lateness_us))

    def _as_closed(
        self, progress: WindowProgress, new: Entries, *, ended: bool
    ) -> tuple[WindowStates, WindowStates | None]:
        """Return results of windows as they close; the kept window is replaced."""
        before, closed = progress.before, progress.now
        running = self._running() if self._needs_running(new, before, closed) else None
        now = self._evaluated(closed, before, new, running, ended)
        step = self._operator.step(dataclasses.replace(progress, now=now), new, self._kept, running)
        if closed > now or ended:  # in a window after the last entries there are none
            self._keep_table("running", None)
        elif step.running is not None and step.running is not running:
            self._keep_table("running", step.running.table())
        return step.closed, step.partial

    def _eagerly(self, progress: WindowProgress, new: Entries) -> tuple[WindowStates, None, npt.NDArray[np.bool_], int]:
        """Return results of the windows to which keys were committed."""
        plan = self._plan
        operator = EagerOperator(plan.paned, plan.algebra)
        table = self._table("running")
        if table is None:
            before = operator.none(plan.key_schema)
        else:
            wids, last = (table.column(name).to_numpy() for name in (_COMMITTED, PANE))
            before = Commitments(table.select(list(plan.key)), wids, last)
        known = len(self._ahead) > 0
        self._ahead.advance(self._feeds.bounds, self._bound())
        step = operator.step(progress, new, self._kept, before, self._ahead if known else None)
        now = step.commitments
        self._committed = int(now.wids.min()) if len(now) else None
        table = now.keys.append_column(_COMMITTED, pa.array(now.wids)).append_column(PANE, pa.array(now.last_panes))
        self._keep_table("running", table)
        return step.closed, None, step.wanted, step.keep_from

    def _evaluated(self, closed: int, before: int, new: Entries, running: Entries | None, ended: bool) -> int:
        """Return the last window to compute: the last complete one, but no further than there are entries."""
        paned = self._plan.paned
        last = [int(new.panes.max())] if len(new) else []
        last += [] if self._panes.last_pane is None else [self._panes.last_pane]
        last += [int(running.panes.max())] if running is not None and len(running) else []
        if not last or closed <= before:
            return before
        first_wid, last_wid = paned.over.wids(max(last))
        if paned.endless:
            return max(before, min(closed, int(first_wid))) if ended else closed
        return max(before, min(closed, int(last_wid)))

    def _kept(self, first: int, last: int) -> Entries:
        return Entries.concat([*self._panes.tables(first, last), self._nothing])

    def _needs_running(self, new: Entries, before: int, closed: int) -> bool:
        if not self._operator.keeps_window or before == LOWEST:
            return self._operator.keeps_window
        paned = self._plan.paned
        late = len(new) > 0 and bool((new.panes <= int(paned.first_and_last(before)[1])).any())
        return closed > before or late or (paned.endless and self._plan.early)

    def _keep_table(self, kind: str, table: pa.Table | None) -> None:
        """Replace the table of a kind. The head counts its rows, so that a missing table is never read."""
        rows = 0 if table is None else table.num_rows
        if table is not None and rows:
            self._store.put(kind, 0, to_frame(table))
        elif self._head.get(kind):
            self._store.remove(kind, 0)
        self._head[kind] = rows

    def _table(self, kind: str) -> pa.Table | None:
        frame = self._store.get(kind, 0) if self._head.get(kind) else None
        return None if frame is None else from_frame(frame)

    def _running(self) -> Entries:
        table = self._table("running")
        return self._nothing if table is None else Entries.of(with_state(table, self._plan), self._plan.key)

    def _punctuation(self, final: int, bound: int | None, now_us: int) -> pa.Table:
        """Return the punctuation: all results before the next window's have been emitted, corrections included."""
        schema = result_schema(self._plan)
        if bound is None or final == LOWEST or self._plan.by_number:
            return schema.empty_table()
        ended, following = bound == ENDED, final + 1
        least = self._flush.least
        if least is not None and least < following:  # a result that has not left
            ended, following = False, least
        at = ENDED if ended else int(self._plan.windows.last_instant(following))
        promised = self._head.get("told_us", LOWEST)
        if at <= promised:
            return schema.empty_table()
        self._head["told_us"] = at
        return punctuation_before(self._plan, None if ended else following, self._number, now_us)

    def _of_keys(self, now_us: int) -> pa.Table:
        """Return the punctuation of single keys that have more emitted results than all keys have."""
        plan = self._plan
        if len(self._ahead) == 0:
            return result_schema(plan).empty_table()
        bounds = self._ahead.bounds.entries[1]
        following, least = self._ahead.closed(bounds), self._flush.least
        nothing, ended = following == LOWEST, bounds == ENDED
        following = np.where(ended | nothing, 0, following) + 1
        if least is not None:  # a result that has not left
            following, ended = np.where(ended, least, np.minimum(following, least)), np.zeros(len(ended), np.bool_)
        ends = plan.windows.last_instant(following), plan.windows.start_and_end(following)[1]
        at, end = (np.where(nothing, LOWEST, np.where(ended, ENDED, each)) for each in ends)
        promised = self._head.get("told_us", LOWEST)
        return key_punctuation(plan, self._ahead.bounds, (at, end), self._number, promised, now_us)

    def saved(self) -> dict[str, Any]:
        flush = self._flush.to_json()
        return {
            **super().saved(),
            "running": self._head.get("running", 0),
            "ahead": self._ahead.bounds.save(),
            "closed": self._head["closed"],
            "final": self._head["final"],
            "told_us": self._head.get("told_us", LOWEST),
            "seen_us": self._head.get("seen_us", LOWEST),
            "holding": self._head["holding"],
            "since": self._since,
            **({} if self._numbers is None else {"numbers": self._numbers.to_json()}),
            **({"flush": flush} if flush else {}),
            **self._panes.to_json(),
            **self._feeds.to_json(),
        }


def _numbers(plan: WindowPlan, store: Store, saved: Any) -> RowNumbers | ArrivalNumbers | None:
    if plan.numbers_arrivals:
        return ArrivalNumbers(store, plan, saved)
    return RowNumbers(store, plan, saved) if plan.rows_apart > 1 else None
