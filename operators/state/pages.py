"""Pages of rows by the number of their key. A batch reads and writes only the pages of its keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.rows.columns import with_nulls
from ...core.rows.exact_integers import Int64s
from ...core.rows.frames import from_frame, to_frame
from .store import Store

_ROWS = 1024
_MIX = np.uint64(0x9E3779B97F4A7C15)


class KeyPages:
    """A shard's rows, in pages by the column `number`; equal keys have equal numbers.

    Rows from an earlier run of the job have null in new columns of `schema`. `least` names integer columns whose least
    value on each page is recorded, for :meth:`below`. With `sized`, the size of each page is recorded, for
    :attr:`bytes`.
    """

    def __init__(
        self,
        store: Store,
        kind: str,
        number: str,
        schema: pa.Schema,
        saved: Any,
        least: Sequence[str] = (),
        *,
        sized: bool = False,
    ) -> None:
        self._store = store
        self._kind = kind
        self._number = number
        self._schema = schema
        self._columns = tuple(least)
        self._least: dict[int, list[int]] = {int(page): values for page, values in saved.get("least", {}).items()}
        self._bits = int(saved.get("bits", 0))
        self.rows = int(saved.get("rows", 0))
        sizes = saved.get("sizes")
        if sized and sizes is None:  # an earlier run of the job did not ask for them
            frames = {page: store.get(kind, page) for page in self.all_pages.tolist()} if self.rows else {}
            sizes = {page: len(frame) for page, frame in frames.items() if frame is not None}
        self._sizes: dict[int, int] | None = {int(page): size for page, size in sizes.items()} if sized else None

    def to_json(self) -> dict[str, Any]:
        least = {"least": self._least} if self._columns else {}
        sizes = {} if self._sizes is None else {"sizes": self._sizes}
        return {"bits": self._bits, "rows": self.rows, **least, **sizes}

    @property
    def bytes(self) -> int:
        """The size of all pages in the store; 0 if sizes are not recorded."""
        return sum((self._sizes or {}).values())

    def below(self, column: str, limit: int) -> Int64s:
        """Return the pages with a row that has less than `limit` in `column`, one of the columns `least`."""
        at = self._columns.index(column)
        return np.array([page for page, values in self._least.items() if values[at] < limit], dtype=np.int64)

    def least(self, column: str) -> int | None:
        """Return the least value in `column`, one of the columns `least`; None without rows."""
        at = self._columns.index(column)
        return min((values[at] for values in self._least.values()), default=None)

    @property
    def all_pages(self) -> Int64s:
        return np.arange(1 << self._bits)

    def pages(self, numbers: Int64s) -> Int64s:
        return np.unique(self._page(numbers))

    def among(self, numbers: Int64s, pages: Int64s) -> npt.NDArray[np.bool_]:
        return np.isin(self._page(numbers), pages)

    def read(self, pages: Int64s) -> pa.Table:
        found = [table for page in pages.tolist() if (table := self._load(page)) is not None]
        return pa.concat_tables(found).combine_chunks() if found else self._schema.empty_table()

    def write(self, pages: Int64s, before: int, rows: pa.Table) -> None:
        """Replace the rows of some pages, which had `before` rows in all."""
        self.rows += rows.num_rows - before
        if self.rows > _ROWS << self._bits:
            others = np.setdiff1d(self.all_pages, pages)
            rows = pa.concat_tables([rows, self.read(others)])
            for page in others.tolist():
                self._remove(page)
            self._least.clear()
            while self.rows > _ROWS << self._bits:
                self._bits += 1
            pages = np.union1d(pages, self.pages(rows.column(self._number).to_numpy()))
        page = self._page(rows.column(self._number).to_numpy())
        order = np.argsort(page, kind="stable")
        rows, page = rows.take(pa.array(order)), page[order]
        begins, ends = np.searchsorted(page, pages), np.searchsorted(page, pages, "right")
        for number, begin, end in zip(pages.tolist(), begins.tolist(), ends.tolist(), strict=True):
            if begin == end:
                self._remove(number)
                self._least.pop(number, None)
            else:
                mine = rows.slice(begin, end - begin).combine_chunks()
                frame = to_frame(mine)
                self._store.put(self._kind, number, frame)
                if self._sizes is not None:
                    self._sizes[number] = len(frame)
                if self._columns:
                    self._least[number] = [int(mine.column(name).to_numpy().min()) for name in self._columns]

    def clear(self) -> None:
        for page in self.all_pages.tolist():
            self._remove(page)
        self._least.clear()
        self.rows = self._bits = 0

    def _remove(self, page: int) -> None:
        self._store.remove(self._kind, page)
        if self._sizes is not None:
            self._sizes.pop(page, None)

    def _page(self, numbers: Int64s) -> Int64s:
        if self._bits == 0:
            return np.zeros(len(numbers), dtype=np.int64)
        mixed = numbers.view(np.uint64) * _MIX
        return (mixed >> np.uint64(64 - self._bits)).astype(np.int64)

    def _load(self, page: int) -> pa.Table | None:
        frame = self._store.get(self._kind, page)
        if frame is None:
            return None
        return with_nulls(from_frame(frame), self._schema)


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
