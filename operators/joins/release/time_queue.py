"""A queue of rows that wait for a bound of time, in runs by time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from ....core.rows.exact_integers import HIGHEST, LOWEST, Int64s
from ....core.rows.sort_keys import ordered
from ....core.rows.widening import with_nulls
from ...runtime.entries import PANE
from ...runtime.runs import Runs
from ...runtime.store import Store

__all__ = ["TimeQueue"]


class TimeQueue:
    """Waiting rows by their time; `rows` counts them."""

    def __init__(self, store: Store, kind: str, schema: pa.Schema, time: str, saved: Mapping[str, Any]) -> None:
        self._schema = schema
        self._time = time
        whole = schema.append(pa.field(PANE, pa.int64()))
        self._runs = Runs(store, kind, saved.get("runs", ()), 1, fit=lambda table: with_nulls(table, whole))
        self._passed: int | None = saved.get("passed")
        self.rows = int(saved.get("rows", 0))

    def to_json(self) -> dict[str, Any]:
        return {"runs": self._runs.known, "passed": self._passed, "rows": self.rows}

    @property
    def first(self) -> int | None:
        """The least time of a row that waits; None without rows."""
        return self._runs.first_from(self._from) if self.rows else None

    def release(self, rows: pa.Table, bound: int) -> pa.Table:
        """Take rows, and return those that need not wait, with those that had waited for this bound, in no order.

        The bound is inclusive, and `LOWEST` if nothing is known. It may be less than an earlier one: rows up to that
        one still do not wait.
        """
        if self._passed is not None:
            bound = max(bound, self._passed)
        rows = rows.select(self._schema.names)
        if bound == LOWEST:
            self._wait(rows, self._times(rows))
            return self._schema.empty_table()
        found = self._due(bound)
        self._passed = bound
        times = self._times(rows)
        waits = times > bound
        if waits.any():
            self._wait(rows.filter(pa.array(waits)), times[waits])
            rows = rows.filter(pa.array(~waits))
        return pa.concat_tables([*found, rows], promote_options="default") if found else rows

    def drain(self) -> pa.Table:
        return pa.concat_tables([self._schema.empty_table(), *self._due(HIGHEST)], promote_options="default")

    @property
    def _from(self) -> int:
        return LOWEST if self._passed is None else self._passed + 1

    def _due(self, bound: int) -> list[pa.Table]:
        """Take the rows up to a time out of the queue."""
        if not self.rows or self._from > bound:
            return []
        found = [table.select(self._schema.names) for table in self._runs.tables(self._from, bound)]
        self._runs.drop_below(bound + 1)
        self.rows -= sum(table.num_rows for table in found)
        return found

    def _wait(self, rows: pa.Table, times: Int64s) -> None:
        self._runs.add(rows.append_column(PANE, pa.array(times)))
        self.rows += rows.num_rows

    def _times(self, rows: pa.Table) -> Int64s:
        if not rows.num_rows:
            return np.empty(0, dtype=np.int64)
        return ordered(rows.column(self._time)).astype(np.int64, copy=False)
