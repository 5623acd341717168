"""The rows that a shard of a join keeps of one side, with marks of those that have met a partner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.rows.exact_integers import HIGHEST, LOWEST, Int64s
from ...core.rows.sort_keys import ordered
from ...core.rows.widening import with_nulls
from ..runtime.entries import PANE
from ..runtime.runs import Runs
from ..runtime.store import Store
from .matching import SortedRows, sorted_rows
from .plan import JoinSide
from .sent import received_schema

__all__ = ["NUMBER", "ROW", "KeptSide"]

Mask = npt.NDArray[np.bool_]

NUMBER, ROW = "__upstream_number", "__upstream_row"
"""Columns added to rows: the number of the key, and that of the row."""


class KeptSide:
    """The rows of one side that may still meet others, in segments of time of one length.

    With `whole`, rows have their whole system column, otherwise only their arrival.
    """

    def __init__(
        self, store: Store, name: str, side: JoinSide, segment: int, saved: Any, *, whole: bool = True
    ) -> None:
        self._side = side
        self._segment = segment
        extra = [pa.field(each, pa.int64()) for each in (PANE, NUMBER, ROW)]
        self._schema = pa.schema([*(side.schema if whole else received_schema(side.schema)), *extra])
        self._rows = Runs(store, name, saved.get("rows", ()), 1, self._sorted, fit=self._fitted)
        self._met = Runs(store, f"{name}_met", saved.get("met", ()), 1, _once)
        self.kept_from = int(saved.get("from", LOWEST))
        """Rows with an earlier time meet nothing any more."""
        self._thinned = int(saved.get("thinned", 0))
        self.shed_to = int(saved.get("shed", LOWEST))
        """Rows with an earlier time were dropped for want of space, although they might have met others."""
        self.spare = int(saved.get("spare", 0))
        """About how many of the rows meet nothing any more, although their time has not passed."""

    def to_json(self) -> dict[str, Any]:
        known = {"rows": self._rows.known, "met": self._met.known}
        return {**known, "from": self.kept_from, "thinned": self._thinned, "spare": self.spare, "shed": self.shed_to}

    @property
    def rows(self) -> int:
        """The number of kept rows, including those that only wait for the end of their segment."""
        return self._rows.rows

    @property
    def bytes(self) -> int:
        return self._rows.bytes + self._met.bytes

    def times(self) -> Int64s:
        found = [rows.times for rows in self.between(LOWEST, HIGHEST)]
        times = np.concatenate([np.empty(0, dtype=np.int64), *found])
        return times[times >= self.kept_from]

    def shed(self, cut: int) -> int:
        """Drop rows before a time for want of space, and return their number."""
        self.shed_to = max(self.shed_to, cut)
        return self.thin(lambda rows: np.flatnonzero(rows.times < cut))

    def between(self, least: int, greatest: int) -> Iterator[SortedRows]:
        """Yield the kept rows of some times, both ends inclusive, and perhaps others, in sorted tables."""
        least = max(least, self.kept_from)
        if least > greatest:
            return
        for table in self._rows.tables(least // self._segment, greatest // self._segment):
            numbers, times = table.column(NUMBER).to_numpy(), ordered(table.column(self._side.time))
            panes = table.column(PANE).to_numpy()
            sorted_already = panes[0] == panes[-1]  # as all runs are that were merged or added in that order
            yield SortedRows(numbers, times, table) if sorted_already else sorted_rows(numbers, times, table)

    def add(self, rows: SortedRows) -> None:
        """Keep rows that have their :data:`NUMBER` and :data:`ROW`."""
        self._rows.add(rows.table.append_column(PANE, pa.array(self._panes(rows.times))).select(self._schema.names))

    def mark(self, rows: Int64s, times: Int64s) -> None:
        if len(rows):
            self._met.add(_once(pa.table({PANE: self._panes(times), ROW: rows})))

    def have_met(self, rows: Int64s, times: Int64s) -> Mask:
        """Return which rows have met a partner in an earlier batch."""
        if not len(rows):
            return np.zeros(0, dtype=np.bool_)
        panes = self._panes(times)
        found = [table.column(ROW).to_numpy() for table in self._met.tables(int(panes.min()), int(panes.max()))]
        return np.isin(rows, np.concatenate(found)) if found else np.zeros(len(rows), dtype=np.bool_)

    def leaving(self, kept_from: int) -> pa.Table:
        """Return the rows that leave without a partner once rows are kept from a later time on."""
        found: list[pa.Table] = []
        if kept_from > self.kept_from:
            for rows in self.between(self.kept_from, kept_from - 1):
                gone = (rows.times >= self.kept_from) & (rows.times < kept_from)
                number = rows.table.column(ROW).to_numpy()
                gone[gone] = ~self.have_met(number[gone], rows.times[gone])
                if gone.any():
                    found.append(rows.table.filter(pa.array(gone)))
        return pa.concat_tables(found) if found else self._schema.empty_table()

    def drop_below(self, kept_from: int) -> None:
        """Keep rows from a later time on."""
        if kept_from > self.kept_from:
            self.kept_from = kept_from
            for runs in (self._rows, self._met):
                runs.drop_below(kept_from // self._segment if kept_from < HIGHEST else HIGHEST)

    @property
    def has_doubled(self) -> bool:
        """True if there are twice as many rows as :meth:`thin` left, so that it rewrites a row once on average."""
        return self.rows >= 2 * self._thinned and self.rows > 1

    def thin(self, spare: Callable[[SortedRows], Int64s]) -> int:
        """Drop the rows whose positions `spare` returns, given all of them sorted, and return their number."""
        table = pa.concat_tables([self._schema.empty_table(), *self._rows.tables(LOWEST, HIGHEST)])
        times = ordered(table.column(self._side.time)).astype(np.int64, copy=False)
        lasts = times >= self.kept_from
        table, times = table.filter(pa.array(lasts)), times[lasts]
        rows = sorted_rows(table.column(NUMBER).to_numpy(), times, table.combine_chunks())
        gone = spare(rows)
        stays = np.ones(len(rows.times), dtype=np.bool_)
        stays[gone] = False
        if not lasts.all() or len(gone):
            self._rows.drop_below(HIGHEST)
            self._rows.add(rows.table.filter(pa.array(stays)))
            self._forget_marks(rows.table.column(ROW).to_numpy()[stays])
        self._thinned = int(np.count_nonzero(stays))
        self.spare = 0
        return len(gone)

    def first(self) -> int | None:
        """Return about the least time of a row that is kept; None without rows."""
        pane = self._rows.first_from(LOWEST)
        return None if pane is None else max(pane * self._segment, self.kept_from)

    def _forget_marks(self, kept: Int64s) -> None:
        """Drop the marks of all rows but these."""
        marked = self._met.tables(LOWEST, HIGHEST)
        if marked:
            table = pa.concat_tables(marked)
            self._met.drop_below(HIGHEST)
            self._met.add(table.filter(pa.array(np.isin(table.column(ROW).to_numpy(), kept))))

    def _panes(self, times: Int64s) -> Int64s:
        return times // self._segment

    def _sorted(self, table: pa.Table) -> pa.Table:
        return sorted_rows(table.column(NUMBER).to_numpy(), ordered(table.column(self._side.time)), table).table

    def _fitted(self, table: pa.Table) -> pa.Table:
        return with_nulls(table, self._schema)


def _once(table: pa.Table) -> pa.Table:
    _, first = np.unique(table.column(ROW).to_numpy(), return_index=True)
    return table.take(pa.array(first)) if len(first) < table.num_rows else table
