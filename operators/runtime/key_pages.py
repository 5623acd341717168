"""Pages of rows by the number of their key. A batch reads and writes only the pages of its keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.pushdown.ipc_frames import from_frame, to_frame
from ...core.rows.exact_integers import Int64s
from ...core.rows.widening import with_nulls
from .store import Store

__all__ = ["KeyPages"]

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
