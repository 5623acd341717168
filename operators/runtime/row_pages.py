"""Pages of a shard's rows between batches. A batch reads and writes only the pages that it touches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.pushdown.ipc_frames import from_frame, to_frame
from ...core.rows.widening import with_nulls
from .store import Store

__all__ = ["RowPages"]

Int64s = npt.NDArray[np.int64]

_KIND = "rows"
_SLOT = "__upstream_slot"


class RowPages:
    """Rows by location (``page * slots + slot``).

    Rows that arrive and leave within one batch never reach a page. A row that has left remains in its page, unread,
    until the page is rewritten or removed.
    """

    def __init__(self, store: Store, slots: int, schema: pa.Schema) -> None:
        self._store = store
        self._slots = slots
        self._schema = schema
        self._loaded: dict[int, tuple[pa.Table, Int64s]] = {}
        self._new: list[pa.Table] = []
        self._new_at: Int64s = np.empty(0, dtype=np.int64)
        self._new_rows = 0
        self.pages_read = self.pages_written = 0

    def put(self, locations: Int64s, rows: pa.Table) -> None:
        if len(locations) == 0:
            return
        self._reach(int(locations.max()) + 1)
        self._new_at[locations] = self._new_rows + np.arange(len(locations))
        self._new.append(rows)
        self._new_rows += len(locations)

    def take(self, locations: Int64s, columns: list[str] | None = None) -> pa.Table:
        """Return rows by location, in that order; all columns by default."""
        schema = self._schema if columns is None else pa.schema([self._schema.field(name) for name in columns])
        if len(locations) == 0:
            return schema.empty_table()
        self._reach(int(locations.max()) + 1)
        place = self._new_at[locations]
        parts = [part.select(schema.names) for part in self._new]
        old = np.flatnonzero(place < 0)
        if len(old):
            base, indices = self._new_rows, np.empty(len(old), dtype=np.int64)
            page = locations[old] // self._slots
            for number in np.flatnonzero(np.bincount(page)).tolist():
                table, slots = self._page(number)
                mine = np.flatnonzero(page == number)
                row_of = np.full(self._slots, -1, dtype=np.int64)
                row_of[slots] = np.arange(len(slots))
                indices[mine] = base + row_of[locations[old[mine]] % self._slots]
                parts.append(table.select(schema.names))
                base += len(table)
            place = place.copy()
            place[old] = indices
        return pa.concat_tables(parts).take(pa.array(place)) if len(parts) > 1 else parts[0].take(pa.array(place))

    def save(self, held: Int64s, empty: Sequence[int]) -> None:
        """Write the pages with new rows among the locations `held`, and remove the pages `empty`."""
        self._reach(int(held.max()) + 1 if len(held) else 0)
        changed = np.flatnonzero(np.bincount(held[self._new_at[held] >= 0] // self._slots))
        page_of = held // self._slots
        for number in changed.tolist():
            low, high = np.searchsorted(page_of, [number, number + 1])
            mine = held[low:high]
            table = self.take(mine).combine_chunks()
            slot = pa.array((mine % self._slots).astype(np.int32))
            self._store.put(_KIND, number, to_frame(table.append_column(_SLOT, slot)))
            self.pages_written += 1
        for number in empty:
            self._store.remove(_KIND, number)

    def _page(self, number: int) -> tuple[pa.Table, Int64s]:
        if number not in self._loaded:
            frame = self._store.get(_KIND, number)
            assert frame is not None, f"page {number} of rows is not in the state store"
            table = from_frame(frame)
            slots = table.column(_SLOT).to_numpy().astype(np.int64)
            self._loaded[number] = (with_nulls(table.drop_columns([_SLOT]), self._schema), slots)
            self.pages_read += 1
        return self._loaded[number]

    def _reach(self, size: int) -> None:
        if size > len(self._new_at):
            more = np.full(max(size, 2 * len(self._new_at)) - len(self._new_at), -1, dtype=np.int64)
            self._new_at = np.concatenate([self._new_at, more])
