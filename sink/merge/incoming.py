"""The rows of a task: checked, separated from punctuation, and coalesced in bounded memory."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...conf.column_names import spark_name
from ...conf.errors import MalformedRowError
from ...core.rows.columns import columns_at, null_rows
from ...core.rows.invalid_text import rows_without_text
from ...core.rows.system_column import SYSTEM, deleted_mask, punctuation_mask
from ...delta_format.latest_table import SEQ
from ..spec.layout import Layout
from ..table.files import conform
from .feed_bounds import bound_values, later_bound
from .newest_rows import newest_rows, unheard
from .pending import UNKNOWN, Mask, Pending, as_pending, concat_pending, int64s, seq_of

if TYPE_CHECKING:
    from .outputs import SideRowWriter

__all__ = ["Incoming"]

_MOST_SEQ = 1 << 62
# Rows, and their size, taken before they are coalesced. Bounds a task's memory by this much beyond one row per key.
_COALESCE_AT = 2_000_000
_COALESCE_BYTES = 256 << 20


class Incoming:
    """A task's rows without punctuation, coalesced to the newest per key.

    `base` is added to the numbers of rows, and `highest` is the highest with it; -1 if no row has one. `bounds`
    has the latest watermark by input partition: None if it ended, NOTHING_YET if it was only announced. `kept`
    is the number of rows, and of bytes, after the last coalescing. `lost` receives rows that lose in a
    conflict.
    """

    def __init__(
        self, layout: Layout, schema: pa.Schema, side_rows: SideRowWriter | None = None, base: int = 0
    ) -> None:
        self._layout = layout
        self._base = base
        self.highest = -1
        self._side_rows = side_rows
        self.lost = unheard if side_rows is None else side_rows.lost
        self._schema = schema
        self._parts: list[Pending] = []
        self._held = self._bytes = 0
        self.kept = (0, 0)
        self.rows = 0
        self.updates = 0
        self.bounds: dict[str, Any] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add one batch from Spark; raise a MalformedRowError if a row has no usable key or time."""
        table = pa.Table.from_batches([batch])
        system = table.column(SYSTEM) if SYSTEM in table.column_names else None
        if system is not None:
            marks = punctuation_mask(table)
            if pc.any(marks).as_py():
                self._punctuate(table.filter(marks))
                table = table.filter(pc.invert(marks))
                system = table.column(SYSTEM)
        if table.num_rows == 0:
            return
        self.rows += table.num_rows
        if self._side_rows is not None and self._side_rows.looks_at_text:
            table = self._text_only(table, self._side_rows)
            system = None if system is None else table.column(SYSTEM)
        part = self._part(table, system)
        _check_rows(part, self._layout)
        if system is not None and self._side_rows is not None:
            self._side_rows.look(part.rows, system, part.deleted)
        self._keep(part)

    def take(self, part: Pending) -> None:
        """Add rows that are numbered from the base on, without punctuation."""
        if part.rows.num_rows == 0:
            return
        self.rows += part.rows.num_rows
        self._reach(int(seq_of(part.rows).max()))
        _check_rows(part, self._layout)
        self._keep(part)

    def drain(self) -> Pending:
        """Return the newest row of each key since the last call, and release them."""
        newest = self._newest()
        self._hold([])
        return newest

    def _newest(self) -> Pending:
        if not self._parts:
            return Pending(self._schema.empty_table(), None, None, np.empty(0, dtype=np.int64))
        return newest_rows(concat_pending(self._parts), self._layout, self.lost)

    def _keep(self, part: Pending) -> None:
        self.updates += int(part.covered.sum())
        self._parts.append(part)
        self._held += part.rows.num_rows
        self._bytes += part.rows.nbytes
        if self._held >= self.kept[0] + _COALESCE_AT or self._bytes >= self.kept[1] + _COALESCE_BYTES:
            self._hold([self._newest()])

    def _hold(self, parts: list[Pending]) -> None:
        self._parts = parts
        self._held = sum(part.rows.num_rows for part in parts)
        self._bytes = sum(part.rows.nbytes for part in parts)
        self.kept = (self._held, self._bytes)

    def _text_only(self, table: pa.Table, side_rows: SideRowWriter) -> pa.Table:
        """Return the rows whose text is UTF-8; write the others to the side table, before any other check."""
        names = [name for name in self._schema.names if name in table.column_names]
        wrong = rows_without_text(table.select(names))
        if not wrong.any():
            return table
        others = table.filter(pa.array(wrong))
        system = others.column(SYSTEM) if SYSTEM in others.column_names else None
        part = self._part(others, system)
        side_rows.no_text(part.rows, system, part.deleted)
        return table.filter(pa.array(~wrong))

    def _part(self, table: pa.Table, system: pa.ChunkedArray | None) -> Pending:
        if system is None:
            return dataclasses.replace(as_pending(conform(table, self._schema)), deleted=self._deleted(table))
        fields = dict(zip((field.name for field in system.type), system.flatten(), strict=True))
        arrival, first = fields["arrival"], fields["first_arrival"]
        return Pending(
            conform(table.append_column(SEQ, self._numbered(fields["seq"])), self._schema),
            int64s(arrival, UNKNOWN),
            int64s(pc.coalesce(first, arrival) if first.null_count else first, UNKNOWN),
            int64s(fields["covered"], 1),
            self._deleted(table),
        )

    def _numbered(self, seq: pa.ChunkedArray) -> pa.ChunkedArray:
        highest = pc.max(seq).as_py()
        if highest is not None:
            self._reach(highest + self._base)
        return pc.add(seq, self._base) if self._base else seq

    def _reach(self, highest: int) -> None:
        self.highest = max(self.highest, highest)
        if self.highest >= _MOST_SEQ:
            raise MalformedRowError(
                f"a row is numbered {highest - self._base} by {SYSTEM}.seq, after {self._base} that the table has had "
                "of other checkpoints",
                expected=f"together less than {_MOST_SEQ}",
                hint=f"keep {SYSTEM} as the source made it; or write to a new table",
            )

    def _deleted(self, table: pa.Table) -> Mask | None:
        """Return which rows are tombstones, by the system column or the user's column; None if none is."""
        marks: list[pa.ChunkedArray | pa.Array] = [deleted_mask(table)] if SYSTEM in table.column_names else []
        if self._layout.delete_when is not None:
            marks.append(pc.fill_null(table.column(self._layout.delete_when), False))
        if not any(pc.any(mark).as_py() for mark in marks):
            return None
        return np.logical_or.reduce([mark.to_numpy(zero_copy_only=False) for mark in marks])

    def _punctuate(self, table: pa.Table) -> None:
        if self._layout.progress_time is None:
            return
        # With its key set, punctuation speaks for that key alone.
        whole = np.ones(table.num_rows, dtype=np.bool_)
        for column in columns_at(table, self._layout.key):
            whole &= column.is_null().to_numpy()
        table = table.filter(pa.array(whole))
        times = table.column(self._layout.progress_time)
        sources = pc.fill_null(pc.struct_field(table.column(SYSTEM), ["source"]), "").to_pylist()
        for source, bound in zip(sources, bound_values(times), strict=True):
            self.bounds[source] = later_bound(self.bounds.get(source, bound), bound)


def _check_rows(part: Pending, layout: Layout) -> None:
    rows = part.rows
    if part.deleted is not None and layout.keep.count is None:
        raise MalformedRowError(
            f"{int(part.deleted.sum())} of {rows.num_rows} rows delete their keys, and the table keeps all rows",
            expected="no deletions with keep=all: nothing ever leaves the table",
            hint="filter such rows out before writing, or write a table with keep=latest",
        )
    for name, column in zip(layout.key, columns_at(rows, layout.key), strict=True):
        if nulls := int(np.count_nonzero(null_rows(column))):
            raise MalformedRowError(
                f"{nulls} of {rows.num_rows} rows have a null in the key column {name!r}",
                expected="a key in every row; only punctuation rows have none",
                hint="filter such rows out before writing, for example "
                f'.where("{spark_name(name, rows.column_names)} IS NOT NULL OR `{SYSTEM}`.punctuation")',
            )
    role = "sequence" if layout.sequence else "time"
    for name, column in zip(layout.order, columns_at(rows, layout.order), strict=True):
        unusable = np.count_nonzero(null_rows(column))
        unusable = unusable or (pa.types.is_floating(column.type) and pc.sum(pc.is_nan(column)).as_py())
        if unusable:
            raise MalformedRowError(
                f"{unusable} of {rows.num_rows} rows have no usable {role} in the column {name!r}",
                expected=f"a {role} in every row",
                hint="filter such rows out before writing, for example "
                f'.where("{spark_name(name, rows.column_names)} IS NOT NULL")',
            )
