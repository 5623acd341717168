"""The entries and rows that a shard keeps for later batches, and the release of closed windows' results."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa

from ....conf.errors import CheckpointError
from ....core.rows.exact_integers import HIGHEST, LOWEST, Int64s
from ....core.rows.system_column import system_field
from ...state.entries import PANE, Entries, Keys, combined
from ...state.pages import KeyPages
from ...state.runs import Runs
from ...state.store import Store
from ..emission import latest_per_key
from ..panes import PaneWindows
from ..sessions import key_numbers
from .adaptive_keys import KeyModes
from .plan import WindowPlan
from .results import result_schema, with_state


class KeptPanes:
    """Runs of partial aggregates and runs of rows, by the method; both are read as entries."""

    def __init__(self, plan: WindowPlan, store: Store, head: dict[str, Any]) -> None:
        self._plan = plan
        span = -(-(plan.paned.most_panes or 1) // 16)
        self._entries = Runs(store, "run", head.get("runs", ()), span, self._combined, self._fitted)
        self._rows = Runs(store, "rows", head.get("rows", ()), span)
        self.modes = KeyModes(plan, store, head) if plan.method == "adaptive" else None

    def _combined(self, table: pa.Table) -> pa.Table:
        return combined(self._plan.algebra, Entries.of(table, self._plan.key)).table()

    def _fitted(self, table: pa.Table) -> pa.Table:
        return with_state(table, self._plan)

    def to_json(self) -> dict[str, Any]:
        modes = {} if self.modes is None else self.modes.to_json()
        return {"runs": self._entries.known, "rows": self._rows.known, **modes}

    @property
    def last_pane(self) -> int | None:
        return max((each for each in (self._entries.last_pane, self._rows.last_pane) if each is not None), default=None)

    def rows_from(self, pane: int) -> int:
        """Return how many entries and rows are kept at most from a pane on."""
        return self._entries.rows_from(pane) + self._rows.rows_from(pane)

    def first_from(self, pane: int) -> int | None:
        found = (self._entries.first_from(pane), self._rows.first_from(pane))
        return min((each for each in found if each is not None), default=None)

    @property
    def counts(self) -> dict[str, int]:
        """Kept entries and rows, and runs read and written, as members of the shard's report."""
        both = (self._entries, self._rows)
        return {
            "entries": self._entries.rows,
            "rows": self._rows.rows,
            "runs_read": sum(runs.read for runs in both),
            "runs_written": sum(runs.written for runs in both),
        }

    def tables(self, first: int, last: int) -> list[Entries]:
        """Return the entries of some panes, both ends inclusive; rows are lifted."""
        found = [Entries.of(table, self._plan.key) for table in self._entries.tables(first, last)]
        return found + [self._plan.lifted(table) for table in self._rows.tables(first, last)]

    def add(self, rows: pa.Table | None, entries: Entries, needed: int) -> None:
        """Keep new entries and rows, and remove those that no window needs any more.

        `rows` are those that arrived as rows, with :data:`PANE`; `entries` are all that arrived, lifted. `needed` is
        the first pane that is needed from now on; more than any if none is.
        """
        self._entries.drop_below(needed)
        self._rows.drop_below(needed)
        if rows is not None:
            rows = rows.filter(pa.array(rows.column(PANE).to_numpy() >= needed))
        entries = entries.take(entries.panes >= needed)
        if self.modes is not None:
            rows, entries = self.modes.split(rows, entries, needed)
        if rows is not None and self._plan.keeps_rows:
            self._rows.add(rows)
        if self._plan.method != "buffering":
            self._entries.add(entries.table())


_MOST = 64


@dataclasses.dataclass(frozen=True)
class HeldEntries:
    """The entries that wait for windows to close."""

    count: int = 0  # kept entries and rows of windows not yet closed; some may have been in earlier windows
    since_us: int | None = None  # arrival of the oldest of them, to a batch
    needs: int | None = None  # least low-watermark that closes a window with entries; None if nothing is held


class HeldSearch:
    """A search for what a shard holds. It reads the kept panes only if windows have closed."""

    def __init__(self, saved: Any = None) -> None:
        saved = saved or {}
        self._floor: int | None = saved.get("floor")
        self._first: int | None = saved.get("first")
        self._since = Since(saved.get("since", ()))

    def to_json(self) -> dict[str, Any]:
        return {"floor": self._floor, "first": self._first, "since": self._since.to_json()}

    def after(
        self, paned: PaneWindows, kept: KeptPanes, new: Int64s, closed: int, committed: int | None, now_us: int
    ) -> HeldEntries:
        """Return what is held after a batch; `committed` is the first window to which a key is committed, if eager."""
        floor = _first_open_pane(paned, closed)
        if floor != self._floor:
            self._floor, self._first = floor, kept.first_from(floor)
        ahead = new[new >= floor]
        if len(ahead):
            self._first = int(ahead.min()) if self._first is None else min(self._first, int(ahead.min()))
            self._since.add(int(ahead.max()), now_us)
        since, count = self._since.oldest(floor), kept.rows_from(floor)
        if self._first is None or count == 0:  # eager emission keeps nothing of what it passes over
            return HeldEntries()
        first = int(paned.over.wids(self._first)[0])
        wid = committed if committed is not None else first if closed == LOWEST else max(first, closed + 1)
        return HeldEntries(count, since, int(paned.windows.extent(wid)[1]))


class Since:
    """The arrival of the oldest held entries, by the greatest pane that arrivals reached."""

    def __init__(self, saved: Any = ()) -> None:
        # [greatest pane, arrival], both increasing: what came later and reaches less far is never the last to go.
        self._reach: list[list[int]] = [list(each) for each in saved]

    def to_json(self) -> list[list[int]]:
        return self._reach

    def add(self, last_pane: int, now_us: int) -> None:
        if not self._reach or last_pane > self._reach[-1][0]:
            self._reach.append([last_pane, now_us])
        if len(self._reach) > _MOST:  # rather too old than too young
            self._reach[:2] = [[self._reach[1][0], self._reach[0][1]]]

    def oldest(self, floor: int) -> int | None:
        """Return the arrival of the oldest entries with panes from `floor` on; forget those below."""
        self._reach = [each for each in self._reach if each[0] >= floor]
        return self._reach[0][1] if self._reach else None


def _first_open_pane(paned: PaneWindows, closed: int) -> int:
    """Return the least pane with results that may not have been emitted yet, once windows up to `closed` are closed."""
    if closed == LOWEST:
        return LOWEST
    # In landmark windows, and where rows open windows, a pane is first given in the window with its own number.
    return closed + 1 if paned.endless or paned.by_row else int(paned.first_and_last(closed + 1)[0])


_NUMBER = "__upstream_number"
_PARTS = 64


class ResultFlush:
    """The results of a shard that are computed and have not left yet.

    Slow flush numbers results as their windows close, and releases them in that order. Lazy flush finds them by their
    keys. Neither changes the results or their number. Results that wait are refused if the aggregates have changed.
    """

    def __init__(self, plan: WindowPlan, store: Store, head: dict[str, Any]) -> None:
        saved = head.get("flush") or {}
        self._plan = plan
        self._numbered = Runs(store, "due", saved.get("runs", ()), 1)
        self._next: int = saved.get("next", 0)
        self._gone: int = saved.get("gone", 0)
        # Of each part that was added: the number after its last result, the least window-id of those that wait, and
        # whether its results lie in the order of windows.
        self._parts: list[list[int]] = [list(each) for each in saved.get("parts", ())]
        by_key = result_schema(plan).append(pa.field(_NUMBER, pa.int64()))
        self._by_key = KeyPages(store, "waiting", _NUMBER, by_key, saved.get("pages", {}))
        self._of_window: dict[int, int] = {int(wid): n for wid, n in saved.get("windows", {}).items()}
        if self.waiting and head.get("aggregates") != plan.aggregates_text:
            raise CheckpointError(
                f"{self.waiting} results wait in this checkpoint that were computed with other aggregates: "
                f"{head.get('aggregates')}; now {plan.aggregates_text}",
                expected="the same aggregates until all results have left",
                hint="run the earlier query until no result waits, or start with a new checkpointLocation",
            )

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value; empty if no result waits."""
        if not self.waiting:
            return {}
        return {
            "runs": self._numbered.known,
            "next": self._next,
            "gone": self._gone,
            "parts": self._parts,
            "pages": self._by_key.to_json(),
            "windows": {str(wid): n for wid, n in self._of_window.items()},
        }

    @property
    def due(self) -> int:
        """Results that the next batch may release, whatever arrives."""
        return self._next - self._gone

    @property
    def waiting(self) -> int:
        return self.due + self._by_key.rows

    @property
    def least(self) -> int | None:
        """The least window of a waiting result, or a lesser one; None if all have left."""
        return min([*(least for _, least, _ in self._parts), *self._of_window], default=None)

    @property
    def needs(self) -> int | None:
        """The least low-watermark that releases a result which is not due; None if there is none."""
        if not self._of_window:
            return None
        return int(self._plan.windows.extent(min(self._of_window) + self._plan.flush_windows)[1])

    def leaving(self, results: pa.Table, new: Entries, closed: int, *, ended: bool) -> pa.Table:
        """Add a batch's results, which are of complete windows, and return those that leave with it.

        `new` are the batch's entries, and `closed` is the greatest window that is closed for all keys. If `ended`, all
        input partitions have ended, and no more rows arrive.
        """
        if self._plan.flush == "slow":
            return self._some(results)
        if self._plan.flush == "eager" and not self.waiting:
            return results
        return self._of_keys(results, new, closed, everything=ended or self._plan.flush == "eager")

    def _some(self, results: pa.Table) -> pa.Table:
        """Return the oldest results, as many as a batch may release."""
        most = self._plan.flush_rows
        assert most is not None
        if results.num_rows:
            results = results.take(pa.array(np.argsort(_wids(results), kind="stable")))
        found: list[pa.Table] = []
        if self.due == 0:  # what leaves at once is never written
            found, results = [results.slice(0, most)], results.slice(most)
            most = 0
        if results.num_rows:
            numbers = np.arange(self._next, self._next + results.num_rows, dtype=np.int64)
            self._numbered.add(results.append_column(PANE, pa.array(numbers)))
            self._next += results.num_rows
            self._parts.append([self._next, int(_wids(results)[0]), 1])
            if len(self._parts) > _PARTS:  # rather too low than too high
                (_, one, _), (end, other, _) = self._parts[:2]
                self._parts[:2] = [[end, min(one, other), 0]]
        if most and self.due:
            found.append(self._oldest(most))
        return pa.concat_tables(found) if found else results.slice(0, 0)

    def _oldest(self, most: int) -> pa.Table:
        tables = self._numbered.tables(self._gone, self._gone + most)  # and the one after them
        table = pa.concat_tables(tables)
        table = table.take(pa.array(np.argsort(table.column(PANE).to_numpy(), kind="stable")))
        found = table.slice(0, most).drop_columns([PANE])
        self._gone += found.num_rows
        self._numbered.drop_below(self._gone)
        self._parts = [each for each in self._parts if each[0] > self._gone]
        if self._parts and self._parts[0][2]:
            self._parts[0][1] = int(_wids(table.slice(most, 1))[0])
        return found

    def _of_keys(self, results: pa.Table, new: Entries, closed: int, *, everything: bool) -> pa.Table:
        """Return the results whose keys have rows for a later window, and those that have waited long enough."""
        plan = self._plan
        if results.num_rows == 0 and self._by_key.rows == 0:
            return results
        deadline = closed if everything or closed == LOWEST else closed - plan.flush_windows
        come = key_numbers(new.keys)
        passed = min(self._of_window, default=HIGHEST) <= deadline
        pages = self._by_key.all_pages if everything or passed else self._by_key.pages(come)
        held = self._by_key.read(pages)
        before = held.num_rows
        own = results.append_column(_NUMBER, pa.array(key_numbers(results.select(list(plan.key)))))
        all_of = pa.concat_tables([held, own.cast(held.schema)])
        wids = _wids(all_of)
        # A window closed by its key's own punctuation is ahead of the others, so it makes no burst.
        leaves = (wids <= deadline) | (wids > closed) | everything
        if len(new):
            keys = Keys([new.keys, all_of.select(list(plan.key))])
            newest = latest_per_key(new.panes, keys.codes[0], keys.size)[keys.codes[1]]
            leaves |= newest > plan.paned.first_and_last(wids)[1]
        moved = np.concatenate([leaves[:before], ~leaves[before:]])
        if moved.any():
            numbers = all_of.column(_NUMBER).to_numpy()
            changed = self._by_key.pages(numbers[moved])
            inside = self._by_key.among(numbers, changed)
            others = self._by_key.read(np.setdiff1d(changed, pages))
            kept = pa.concat_tables([all_of.filter(pa.array(inside & ~leaves)), others])
            was = int(np.count_nonzero(inside[:before])) + others.num_rows
            self._by_key.write(changed, was, kept)
            self._count(wids[:before][leaves[:before]], -1)
            self._count(wids[before:][~leaves[before:]], 1)
        found = all_of.filter(pa.array(leaves)).drop_columns([_NUMBER])
        return found.take(pa.array(np.argsort(system_field(found, "seq").to_numpy(), kind="stable")))

    def _count(self, wids: Int64s, sign: int) -> None:
        for wid, n in zip(*(each.tolist() for each in np.unique(wids, return_counts=True)), strict=True):
            self._of_window[wid] = self._of_window.get(wid, 0) + sign * n
            if self._of_window[wid] == 0:
                del self._of_window[wid]


def _wids(results: pa.Table) -> Int64s:
    return results.column("window_id").to_numpy()
