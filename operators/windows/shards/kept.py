"""The entries and rows that a shard keeps for later batches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ...runtime.entries import PANE, Entries, combined
from ...runtime.runs import Runs
from ...runtime.store import Store
from .adaptive_keys import KeyModes
from .changed_aggregates import with_state
from .plan import WindowPlan

__all__ = ["KeptPanes"]


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
