"""Arrangements: the rows that an operator keeps, by key."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from ...core.rows.exact_integers import Int64s
from ...core.rows.frames import from_frame, to_frame
from ..queue.state import QueueState
from ..state.key_runs import Found, KeyRuns, PlaceRanges, UInt64s, key_places, row_places
from ..state.runs import of_worker
from ..state.store import DictStore, Store, StorePart
from .slices_table import SliceLog
from .zsets import TIME, WEIGHT, conformed, consolidated, dtypes_of, key_numbers, to_table


class Arrangement:
    """The rows of an operator's state by key.

    A step reads once, and then writes at most once. With ``within``, which names the columns that identify a row within
    its key, a step reads and writes single rows. Without them, all rows of a key are read and written together.
    """

    def __init__(self, runs: KeyRuns, schema: pa.Schema, within: Sequence[str] = ()) -> None:
        self._runs = runs
        self._schema = schema
        self._dtypes = dtypes_of(schema)
        self._within = list(within)
        self._found: Found

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self._runs.rows

    @property
    def places(self) -> UInt64s:
        """The places of the rows that the last call read."""
        return self._found.places

    def places_of(self, rows: pl.DataFrame, numbers: Int64s) -> UInt64s:
        """Return the places of rows, given the numbers of their keys."""
        return row_places(numbers, key_numbers(rows, self._within)) if self._within else key_places(numbers)

    def read(self, numbers: Int64s) -> pl.DataFrame:
        """Return all rows of the keys with some numbers."""
        if self._within:
            return self.read_between(PlaceRanges.of_keys(numbers))
        return self._frame(self._runs.find(key_places(numbers)))

    def read_table(self, numbers: Int64s) -> pa.Table:
        """Return all rows of the keys with some numbers, as Arrow keeps them."""
        self._found = self._runs.find(key_places(numbers))
        return self._found.rows

    def read_between(self, ranges: PlaceRanges) -> pl.DataFrame:
        """Return the rows at some places."""
        return self._frame(self._runs.find_between(ranges.disjoint()))

    def read_all(self) -> pl.DataFrame:
        """Return all rows."""
        return self._frame(self._runs.find_all())

    def keep(self, stays: Callable[[pl.DataFrame], npt.NDArray[np.bool_]]) -> bool:
        """Remove the rows that do not stay; return whether there were any."""
        if self.rows == 0:
            return False
        rows = self.read_all()
        there = stays(rows)
        if not there.all():
            self.write_at(rows.clear(), self.places[:0], ~there)
        return not there.all()

    def write(self, rows: pl.DataFrame, numbers: Int64s, replaced: npt.NDArray[np.bool_] | None = None) -> None:
        """Write rows, given the numbers of their keys, as :meth:`write_at`."""
        self.write_at(rows, self.places_of(rows, numbers), replaced)

    def write_at(self, rows: pl.DataFrame, places: UInt64s, replaced: npt.NDArray[np.bool_] | None = None) -> None:
        """Put rows in place of those that were read, or of those among them that are ``replaced``.

        All rows at their places were read.
        """
        self.write_table(to_table(conformed(rows, self._dtypes), self._schema), places, replaced)

    def write_table(self, rows: pa.Table, places: UInt64s, replaced: npt.NDArray[np.bool_] | None = None) -> None:
        """Write rows with the arrangement's columns, as :meth:`write_at`."""
        stays = np.zeros(len(self.places), dtype=np.bool_) if replaced is None else ~replaced
        self._runs.replace(self._found, stays, rows, places)

    def _frame(self, found: Found) -> pl.DataFrame:
        self._found = found
        frame = pl.from_arrow(found.rows)
        assert isinstance(frame, pl.DataFrame)
        return conformed(frame, self._dtypes)


_ROWS = 4096
_SMALL_PAGES = 16
_MOST_ROWS = 1 << 17  # of a page: the JVM holds several copies of a value that it stores


class DueRows:
    """Rows by the time at which they are due.

    Each step adds a page, or several of neighbouring times if it has very many rows. Many small pages are merged into
    few and sorted by time, so a step reads few of them.
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
    def bytes(self) -> int:
        return sum(page[4] for page in self._pages)

    @property
    def first(self) -> int | None:
        return min((page[1] for page in self._pages), default=None)

    @property
    def last(self) -> int | None:
        """The last time at which rows are due; None if they never are."""
        return max((page[2] for page in self._pages), default=None)

    def add(self, rows: pl.DataFrame) -> None:
        if rows.height == 0:
            return
        if rows.height > _MOST_ROWS:
            rows = rows.sort(TIME, maintain_order=True)
        for begin in range(0, rows.height, _MOST_ROWS):
            self._append(conformed(rows.slice(begin, _MOST_ROWS), self._dtypes))
        small = [page for page in self._pages if page[3] < _ROWS // 2]
        if len(small) > _SMALL_PAGES:
            together = pl.concat([self._load(page) for page in small])
            together = consolidated(together) if WEIGHT in self._dtypes else together
            together = together.sort(TIME, maintain_order=True)
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
        frame = to_frame(to_table(rows, self._schema).combine_chunks())
        self._store.put(self._kind, self._next, frame)
        self._pages.append([self._next, least, greatest, rows.height, len(frame)])
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


_QUEUE = "queue"


class OperatorState:
    """The data that an operator keeps between steps. ``values`` are small values of the operator itself, in JSON."""

    def __init__(self, store: Store, name: str, saved: Mapping[str, Any]) -> None:
        self._store = store
        self._name = name
        self._prefix = ""
        self._saved: dict[str, Any] = dict(saved.get("parts", {}))
        self._runs: dict[str, KeyRuns] = {}
        self._pending: dict[str, DueRows] = {}
        self._logs: dict[str, SliceLog] = {}
        self._queues = [part for part, kept in self._saved.items() if kept == _QUEUE]
        self._arrangements: list[Arrangement] = []
        self.values: dict[str, Any] = dict(saved.get("values", {}))

    @classmethod
    def in_memory(cls) -> OperatorState:
        """Return a new, private state that is not persisted."""
        return cls(DictStore(), "", {})

    def within(self, part: str) -> OperatorState:
        """Return the same state for a nested operator, with a prefix for the names of its parts."""
        inner = copy.copy(self)
        inner._prefix = f"{self._prefix}{part}."
        return inner

    def arrangement(self, part: str, schema: pa.Schema, within: Sequence[str] = ()) -> Arrangement:
        part = self._prefix + part
        runs = KeyRuns(self._store, self._kind(part), schema, self._saved.get(part, {}), of_worker())
        self._runs[part] = runs
        self._arrangements.append(Arrangement(runs, schema, within))
        return self._arrangements[-1]

    def keep(self, stays: Callable[[pl.DataFrame], npt.NDArray[np.bool_]]) -> None:
        """Remove the rows that do not stay from all arrangements."""
        for each in self._arrangements:
            each.keep(stays)

    def pending(self, part: str, schema: pa.Schema) -> DueRows:
        part = self._prefix + part
        pending = DueRows(self._store, self._kind(part), schema, self._saved.get(part, {}))
        self._pending[part] = pending
        return pending

    def log(self, part: str) -> SliceLog:
        part = self._prefix + part
        log = SliceLog(self._store, self._kind(part), self._saved.get(part, {}))
        self._logs[part] = log
        return log

    def queue(self, part: str) -> StorePart:
        """Return the place of the cells of a queue, which :attr:`rows` and :attr:`bytes` leave out."""
        part = self._prefix + part
        self._queues = [part, *(each for each in self._queues if each != part)]
        return StorePart(self._store, self._kind(part))

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self._parts.values())

    @property
    def bytes(self) -> int:
        """The bytes in the store, without those of :attr:`values`."""
        return sum(each.bytes for each in self._parts.values())

    def to_json(self) -> dict[str, Any]:
        parts = {part: each.to_json() for part, each in self._parts.items()}
        return {"parts": {**parts, **dict.fromkeys(self._queues, _QUEUE)}, "values": self.values}

    def clear(self) -> None:
        """Remove all parts from the store, even those that this process has not used."""
        for part, saved in {**self._saved, **self.to_json()["parts"]}.items():
            if "runs" in saved:
                KeyRuns(self._store, self._kind(part), pa.schema([]), saved, of_worker()).clear()
            elif saved == _QUEUE:
                QueueState(self.queue(part)).clear()
            else:
                for page in DueRows.pages_of(saved):
                    self._store.remove(self._kind(part), page)

    def release(self) -> None:
        """Drop what the last step has read and no later one needs from memory."""
        for runs in self._runs.values():
            runs.release()

    @property
    def _parts(self) -> dict[str, KeyRuns | DueRows | SliceLog]:
        return {**self._runs, **self._pending, **self._logs}

    def _kind(self, part: str) -> str:
        return f"{self._name}.{part}"
