"""The entries and rows that a shard keeps for later batches."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa

from ....core.rows.exact_integers import LOWEST, Int64s
from ...state.entries import PANE, Entries, combined
from ...state.runs import Runs
from ...state.store import Store
from ..panes import PaneWindows
from .adaptive_keys import KeyModes
from .plan import WindowPlan
from .results import with_state


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
