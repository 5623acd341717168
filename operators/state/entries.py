"""Entries: the aggregate states of keys and panes, as columns. Windows are computed from them alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.rows.exact_integers import Int64s
from ...core.rows.newest import key_codes
from ..aggregates.algebra import Aggregates

PANE = "__upstream_pane"
"""The column of pane numbers in a table of entries."""


@dataclasses.dataclass(frozen=True)
class Entries:
    """Aggregate states by key and pane. A key may have several in one pane, which combine."""

    keys: pa.Table  # the update key's columns
    panes: Int64s
    state: pa.Table

    def __len__(self) -> int:
        return len(self.panes)

    @classmethod
    def none(cls, aggregates: Aggregates, key: pa.Schema) -> Entries:
        return cls(key.empty_table(), np.empty(0, dtype=np.int64), aggregates.state_schema.empty_table())

    def take(self, which: npt.NDArray[np.bool_] | Int64s) -> Entries:
        at = pa.array(np.flatnonzero(which) if which.dtype == np.bool_ else which)
        return Entries(self.keys.take(at), self.panes[which], self.state.take(at))

    def between(self, first: int, last: int) -> Entries:
        """Return the entries of a range of panes, both ends inclusive."""
        inside = (self.panes >= first) & (self.panes <= last)
        return self if inside.all() else self.take(inside)

    @classmethod
    def concat(cls, parts: Sequence[Entries]) -> Entries:
        some = [part for part in parts if len(part)] or [parts[0]]
        if len(some) == 1:
            return some[0]
        return cls(
            pa.concat_tables([part.keys for part in some]),
            np.concatenate([part.panes for part in some]),
            pa.concat_tables([part.state for part in some]),
        )

    def table(self) -> pa.Table:
        joined = self.keys.append_column(PANE, pa.array(self.panes))
        for name in self.state.column_names:
            joined = joined.append_column(name, self.state.column(name))
        return joined

    @classmethod
    def of(cls, table: pa.Table, key: Sequence[str]) -> Entries:
        """Split a table into the key's columns, :data:`PANE`, and the state's columns."""
        state = [name for name in table.column_names if name not in (*key, PANE)]
        return cls(table.select(list(key)), table.column(PANE).to_numpy(), table.select(state))


class Keys:
    """Numbers 0 to ``size - 1`` for the distinct keys of several tables; `codes` holds each table's, row by row."""

    def __init__(self, tables: Sequence[pa.Table]) -> None:
        together = pa.concat_tables(tables)
        codes, self._first, self.size = grouped(together.columns)
        ends = np.cumsum([table.num_rows for table in tables])
        self.codes = np.split(codes, ends[:-1])
        self._table = together

    def take(self, codes: Int64s) -> pa.Table:
        return self._table.take(pa.array(self._first[codes]))


def grouped(columns: Sequence[pa.Array | pa.ChunkedArray]) -> tuple[Int64s, Int64s, int]:
    """Assign numbers from 0 to the distinct rows of some columns; return them, each group's first row, and a count."""
    codes, size = key_codes(columns)
    first = np.full(size, -1, dtype=np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    occurs = first >= 0
    if occurs.all():
        return codes, first, size
    return (np.cumsum(occurs) - 1)[codes], first[occurs], int(np.count_nonzero(occurs))


def combined(aggregates: Aggregates, entries: Entries) -> Entries:
    """Combine entries into one for each key and pane."""
    codes, first, groups = grouped([*entries.keys.columns, pa.array(entries.panes)])
    if groups == len(entries):
        return entries
    state = aggregates.combine(entries.state, codes, groups)
    return Entries(entries.keys.take(pa.array(first)), entries.panes[first], state)


def lifted(aggregates: Aggregates, rows: pa.Table, key: Sequence[str], panes: Int64s) -> Entries:
    """Reduce rows to one entry for each key and pane."""
    keys = rows.select(list(key))
    codes, first, groups = grouped([*keys.columns, pa.array(panes)])
    state = aggregates.lift(rows.select(list(aggregates.inputs)), codes, groups)
    return Entries(keys.take(pa.array(first)), panes[first], state)
