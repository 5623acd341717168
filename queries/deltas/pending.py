"""Future changes, in pages by time: a step reads only the pages that are due."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa

from ...core.pushdown.ipc_frames import from_frame, to_frame
from ...operators.runtime.store import Store
from .zsets import TIME, conformed, dtypes_of, to_table

__all__ = ["Pending"]

_ROWS = 4096
_SMALL_PAGES = 16


class Pending:
    """Rows by the time at which they are due.

    Each step adds one page. Many small pages are merged into few and sorted by time, so a step reads few of them.
    """

    def __init__(self, store: Store, kind: str, schema: pa.Schema, saved: Any) -> None:
        self._store = store
        self._kind = kind
        self._schema = schema
        self._dtypes = dtypes_of(schema)
        self._nothing = pl.DataFrame(schema=self._dtypes)
        self._pages: list[list[int]] = [list(page) for page in saved.get("pages", [])]
        self._next = int(saved.get("next", 0))

    def to_json(self) -> dict[str, Any]:
        return {"pages": self._pages, "next": self._next}

    @staticmethod
    def pages_of(saved: Any) -> list[int]:
        """Return the numbers of the existing pages, from the result of :meth:`to_json`."""
        return [page[0] for page in saved.get("pages", [])]

    @property
    def rows(self) -> int:
        return sum(page[3] for page in self._pages)

    @property
    def first(self) -> int | None:
        return min((page[1] for page in self._pages), default=None)

    def add(self, rows: pl.DataFrame) -> None:
        if rows.height == 0:
            return
        self._append(conformed(rows, self._dtypes))
        small = [page for page in self._pages if page[3] < _ROWS // 2]
        if len(small) > _SMALL_PAGES:
            together = pl.concat([self._load(page) for page in small]).sort(TIME, maintain_order=True)
            for page in small:
                self._remove(page)
            for begin in range(0, together.height, _ROWS):
                self._append(together.slice(begin, _ROWS))

    def due(self, until: int) -> bool:
        return any(page[1] < until for page in self._pages)

    def take(self, until: int) -> pl.DataFrame:
        """Remove and return the rows with a time below ``until``."""
        if not self.due(until):
            return self._nothing
        found = [self._nothing]
        for page in [page for page in self._pages if page[1] < until]:
            rows = self._load(page)
            self._remove(page)
            if page[2] < until:
                found.append(rows)
            else:
                found.append(rows.filter(pl.col(TIME) < until))
                self._append(rows.filter(pl.col(TIME) >= until))
        return pl.concat(found)

    def all(self) -> pl.DataFrame:
        return pl.concat([self._nothing, *(self._load(page) for page in self._pages)])

    def _append(self, rows: pl.DataFrame) -> None:
        times = rows.get_column(TIME)
        least, greatest = times.min(), times.max()
        assert isinstance(least, int)
        assert isinstance(greatest, int)
        self._store.put(self._kind, self._next, to_frame(to_table(rows, self._schema).combine_chunks()))
        self._pages.append([self._next, least, greatest, rows.height])
        self._next += 1

    def _load(self, page: list[int]) -> pl.DataFrame:
        frame = self._store.get(self._kind, page[0])
        assert frame is not None, f"page {page[0]} of {self._kind} is not in the state store"
        rows = pl.from_arrow(from_frame(frame))
        assert isinstance(rows, pl.DataFrame)
        return conformed(rows, self._dtypes)

    def _remove(self, page: list[int]) -> None:
        self._store.remove(self._kind, page[0])
        self._pages.remove(page)
