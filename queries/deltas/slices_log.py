"""Partial aggregates in the state: each step adds a page, and pages of similar size are merged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...core.pushdown.ipc_frames import from_frame, to_frame
from ...operators.runtime.store import Store

__all__ = ["SLICE", "SliceLog"]

SLICE = "__slice"
"""The column with a slice's number: its end, in widths since the epoch."""

_AT_ONCE = 64


class SliceLog:
    """Tables with a column :data:`SLICE`, one on each page.

    A page is replaced only by one at least as large, so rewrites of a row are logarithmic in the size of the state.
    """

    def __init__(self, store: Store, kind: str, saved: Any) -> None:
        self._store = store
        self._kind = kind
        self._pages: list[list[int]] = [list(page) for page in saved.get("pages", [])]
        self._next = int(saved.get("next", 0))

    def to_json(self) -> dict[str, Any]:
        return {"pages": self._pages, "next": self._next}

    @property
    def rows(self) -> int:
        """The number of rows; a slice of a group counts once on each page that has it."""
        return sum(page[2] for page in self._pages)

    @property
    def greatest(self) -> int | None:
        return max((page[1] for page in self._pages), default=None)

    def add(self, table: pa.Table, merge: Callable[[Sequence[pa.Table]], pa.Table]) -> None:
        """Write a nonempty table, merged with the last pages that are not larger."""
        together = [table]
        rows = table.num_rows
        while self._pages and self._pages[-1][2] <= max(rows, _AT_ONCE):
            page = self._pages[-1]
            together.append(self._load(page))
            rows += page[2]
            self._remove(page)
        table = merge(together[::-1]) if len(together) > 1 else table
        if table.num_rows == 0:
            return
        greatest = pc.max(table.column(SLICE)).as_py()
        self._store.put(self._kind, self._next, to_frame(table.combine_chunks()))
        self._pages.append([self._next, greatest, table.num_rows])
        self._next += 1

    def can_drop(self, through: int) -> bool:
        return any(page[1] <= through for page in self._pages)

    def drop(self, through: int) -> None:
        for page in [page for page in self._pages if page[1] <= through]:
            self._remove(page)

    def tables(self) -> list[pa.Table]:
        return [self._load(page) for page in self._pages]

    def _load(self, page: list[int]) -> pa.Table:
        frame = self._store.get(self._kind, page[0])
        assert frame is not None, f"page {page[0]} of {self._kind} is not in the state store"
        return from_frame(frame)

    def _remove(self, page: list[int]) -> None:
        self._store.remove(self._kind, page[0])
        self._pages.remove(page)
