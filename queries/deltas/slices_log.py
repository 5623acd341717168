"""Partial aggregates in the state: what each step adds is a page, and pages of like size become one."""

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
    """Tables with a column :data:`SLICE`.

    A page is written once and then replaced by one that is at least as large, so each row is written again as often as
    the state doubles. A step that has no rows writes nothing.

    Parameters
    ----------
    store : Store
    kind : str
        What the pages are called in the store.
    saved
        What :meth:`to_json` gave; empty at first.
    """

    def __init__(self, store: Store, kind: str, saved: Any) -> None:
        self._store = store
        self._kind = kind
        self._pages: list[list[int]] = [list(page) for page in saved.get("pages", [])]
        self._next = int(saved.get("next", 0))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value."""
        return {"pages": self._pages, "next": self._next}

    @property
    def rows(self) -> int:
        """The number of rows, equal slices of a group counted as often as there are pages with them."""
        return sum(page[2] for page in self._pages)

    @property
    def greatest(self) -> int | None:
        """The greatest number of a slice; None without slices."""
        return max((page[1] for page in self._pages), default=None)

    def add(self, table: pa.Table, merge: Callable[[Sequence[pa.Table]], pa.Table]) -> None:
        """Keep a table, and put pages together that are not larger than what came after them.

        Parameters
        ----------
        table
            It has rows.
        merge : callable
            From tables to one with what they say.
        """
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
        """Return whether there is a page on which all slices have at most this number."""
        return any(page[1] <= through for page in self._pages)

    def drop(self, through: int) -> None:
        """Forget the pages on which all slices have at most this number."""
        for page in [page for page in self._pages if page[1] <= through]:
            self._remove(page)

    def tables(self) -> list[pa.Table]:
        """Return what is on the pages, the oldest first."""
        return [self._load(page) for page in self._pages]

    def _load(self, page: list[int]) -> pa.Table:
        frame = self._store.get(self._kind, page[0])
        assert frame is not None, f"page {page[0]} of {self._kind} is not in the state store"
        return from_frame(frame)

    def _remove(self, page: list[int]) -> None:
        self._store.remove(self._kind, page[0])
        self._pages.remove(page)
