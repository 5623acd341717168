"""Arrangements: the rows that an operator keeps, found by a number of their key."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from ...core.rows.exact_integers import Int64s
from ...core.rows.frames import from_frame, to_frame
from ..grouped import groups
from ..state.pages import KeyPages
from ..state.store import DictStore, Store
from .slices_table import SliceLog
from .zsets import TIME, conformed, dtypes_of, int64s, key_numbers, to_table

NUMBER = "__number"
"""The column with the number by which a row is found."""


class Arrangement:
    """The rows of an operator's state, in pages by key.

    A step calls :meth:`read` once, and :meth:`write` at most once.

    Parameters
    ----------
    pages : KeyPages
        Of ``schema`` and the column :data:`NUMBER`.
    schema : pyarrow.Schema
        Of the rows.
    """

    def __init__(self, pages: KeyPages, schema: pa.Schema) -> None:
        self._pages = pages
        self._schema = schema.append(pa.field(NUMBER, pa.int64()))
        self._dtypes = dtypes_of(schema)
        self._read = self._schema.empty_table()
        self._mine: npt.NDArray[np.bool_] = np.empty(0, dtype=np.bool_)  # of the rows on the pages that were read

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self._pages.rows

    @property
    def numbers(self) -> Int64s:
        """The numbers of the rows that the last call read."""
        return _numbers(self._read)[self._mine]

    def read(self, numbers: Int64s) -> pl.DataFrame:
        """Return all rows with some numbers."""
        numbers = np.unique(numbers)
        self._read = self._pages.read(self._pages.pages(numbers))
        self._mine = np.isin(_numbers(self._read), numbers)
        return self._frame(self._read.filter(pa.array(self._mine)))

    def read_all(self) -> pl.DataFrame:
        """Return all rows."""
        self._read = self._pages.read(self._pages.all_pages)
        self._mine = np.ones(self._read.num_rows, dtype=np.bool_)
        return self._frame(self._read)

    def keep(self, stays: Callable[[pl.DataFrame], npt.NDArray[np.bool_]]) -> bool:
        """Remove the rows that do not stay; return whether there were any."""
        if self.rows == 0:
            return False
        rows = self.read_all()
        there = stays(rows)
        if not there.all():
            self.write(rows.filter(pl.Series(there)), _numbers(self._read)[there])
        return not there.all()

    def write(self, rows: pl.DataFrame, numbers: Int64s, replaced: npt.NDArray[np.bool_] | None = None) -> None:
        """Put rows in place of those that were read.

        Parameters
        ----------
        rows
            With numbers that were read, as they are from now on.
        numbers : int64 array of length rows
            Their numbers.
        replaced : bool array, optional
            Which of the rows that were read they replace. Without it, all.
        """
        was = _numbers(self._read)
        mine = self._mine.copy()
        if replaced is not None:
            mine[mine] = replaced
        pages = self._pages.pages(np.concatenate([was[mine], numbers]))
        touched = self._pages.among(was, pages)
        others = self._read.filter(pa.array(touched & ~mine))
        table = to_table(conformed(rows, self._dtypes), pa.schema(list(self._schema)[:-1]))
        table = table.append_column(NUMBER, pa.array(numbers))
        self._pages.write(pages, int(touched.sum()), pa.concat_tables([others.select(table.column_names), table]))

    def _frame(self, table: pa.Table) -> pl.DataFrame:
        frame = pl.from_arrow(table.drop_columns([NUMBER]))
        assert isinstance(frame, pl.DataFrame)
        return conformed(frame, self._dtypes)


def _numbers(table: pa.Table) -> Int64s:
    return table.column(NUMBER).to_numpy()


_ROWS = 4096
_SMALL_PAGES = 16


class DueRows:
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


class OperatorState:
    """The data that an operator keeps between steps. ``values`` are small values of the operator itself, in JSON."""

    def __init__(self, store: Store, name: str, saved: Mapping[str, Any]) -> None:
        self._store = store
        self._name = name
        self._prefix = ""
        self._saved: dict[str, Any] = dict(saved.get("parts", {}))
        self._pages: dict[str, KeyPages] = {}
        self._pending: dict[str, DueRows] = {}
        self._logs: dict[str, SliceLog] = {}
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

    def arrangement(self, part: str, schema: pa.Schema) -> Arrangement:
        part = self._prefix + part
        numbered = schema.append(pa.field(NUMBER, pa.int64()))
        pages = KeyPages(self._store, self._kind(part), NUMBER, numbered, self._saved.get(part, {}))
        self._pages[part] = pages
        return Arrangement(pages, schema)

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

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self._parts.values())

    def to_json(self) -> dict[str, Any]:
        parts = {part: each.to_json() for part, each in self._parts.items()}
        return {"parts": parts, "values": self.values}

    def clear(self) -> None:
        """Remove all parts from the store, even those that this process has not used."""
        for part, saved in {**self._saved, **self.to_json()["parts"]}.items():
            numbers = DueRows.pages_of(saved) if "pages" in saved else range(1 << int(saved.get("bits", 0)))
            for page in numbers:
                self._store.remove(self._kind(part), page)

    @property
    def _parts(self) -> dict[str, KeyPages | DueRows | SliceLog]:
        return {**self._pages, **self._pending, **self._logs}

    def _kind(self, part: str) -> str:
        return f"{self._name}.{part}"


_ROWS_BUCKET_ARRANGEMENT, _BITS = "__rows", "__bits"
_SIZES = pa.schema([("__key", pa.int64()), (_ROWS_BUCKET_ARRANGEMENT, pa.int64()), (_BITS, pa.int64())])


class BucketArrangement:
    """The rows of an operator's state by key; those of a large key are in buckets by their values.

    A step calls :meth:`read` once, and :meth:`write` at most once. ``columns`` divide the rows of a key into buckets;
    ``numbers_of`` returns the numbers of rows' keys.

    State: the rows, and the number of rows and of buckets of each large key.
    """

    def __init__(
        self,
        schema: pa.Schema,
        columns: Sequence[str],
        numbers_of: Callable[[pl.DataFrame], Int64s],
        state: OperatorState,
        part: str,
    ) -> None:
        self._columns = list(columns)
        self._numbers_of = numbers_of
        self._arrangement: Arrangement = state.arrangement(part, schema)
        self._sizes: Arrangement = state.arrangement(f"sizes of {part}", _SIZES)
        self._last: _LastRead

    @property
    def rows(self) -> int:
        return self._arrangement.rows

    def read_all(self) -> pl.DataFrame:
        return self._arrangement.read_all()

    def read(self, changes: pl.DataFrame, own: Int64s, whole: Int64s) -> tuple[pl.DataFrame, Int64s]:
        """Return the rows that may equal a change, and all rows of the ``whole`` keys, with the numbers of their keys.

        ``own`` has the number of each change's key.
        """
        keys = np.unique(np.concatenate([own, whole]))
        rows, bits = np.zeros((2, len(keys)), dtype=np.int64)
        if not self._sizes.rows:
            found = self._arrangement.read(keys)
            numbers, is_whole = self._arrangement.numbers, np.ones(len(keys), dtype=np.bool_)
            self._last = _LastRead(keys, rows, bits, is_whole, found, numbers, np.ones(found.height, dtype=np.bool_))
            return found, numbers
        sizes = self._sizes.read(keys)
        at = np.searchsorted(keys, self._sizes.numbers)
        rows[at], bits[at] = int64s(sizes, _ROWS_BUCKET_ARRANGEMENT), int64s(sizes, _BITS)
        is_whole = np.isin(keys, whole) | (bits == 0) | (groups.buckets_for(rows, bits) != bits)
        of_own = np.searchsorted(keys, own)
        wanted = groups.pairs(of_own, self._buckets(changes, bits[of_own]))
        every = np.flatnonzero(is_whole)
        wanted = np.union1d(wanted, groups.every_bucket(every, bits[every]))
        found = self._arrangement.read(groups.place_of(keys[wanted >> groups.BITS], wanted & groups.LOW))
        numbers = self._numbers_of(found)
        at = np.minimum(np.searchsorted(keys, numbers), len(keys) - 1)
        # Buckets of two keys may have the same place.
        mine = (keys[at] == numbers) & np.isin(groups.pairs(at, self._buckets(found, bits[at])), wanted)
        self._last = _LastRead(keys, rows, bits, is_whole, found, numbers, mine)
        return found.filter(pl.Series(mine)), numbers[mine]

    def write(self, rows: pl.DataFrame, numbers: Int64s, replaced: npt.NDArray[np.bool_]) -> None:
        """Put new and changed rows, with the numbers of their keys, in place of some of the rows that were read."""
        last = self._last
        gone = last.mine.copy()
        gone[gone] = replaced
        if not self._sizes.rows and last.found.height + rows.height <= groups.ROWS_OF_BUCKET:
            self._arrangement.write(rows, numbers, gone)
            return
        stays, comes = last.keys_of(last.mine), np.searchsorted(last.keys, numbers)
        count = len(last.keys)
        counted = np.where(last.bits == 0, np.bincount(stays, minlength=count), last.rows)
        after = counted + np.bincount(comes, minlength=count) - np.bincount(last.keys_of(gone), minlength=count)
        bits = np.where(last.is_whole, groups.buckets_for(after, last.bits), last.bits)
        moves = last.mine & ~gone
        moves[last.mine] &= (bits != last.bits)[stays]
        moved = last.keys_of(moves)
        rows = pl.concat([rows.select(last.found.columns), last.found.filter(pl.Series(moves))])
        at = np.concatenate([comes, moved])
        places = groups.place_of(last.keys[at], self._buckets(rows, bits[at]))
        self._arrangement.write(rows, places, gone | moves)
        if ((bits > 0) | (last.bits > 0)).any():
            if not self._sizes.rows:
                self._sizes.read(last.keys)
            self._write_sizes(last.keys, after, bits)

    def keep(self, stays: Callable[[pl.DataFrame], npt.NDArray[np.bool_]]) -> bool:
        """Remove the rows that do not stay; return whether there were any."""
        if self.rows == 0:
            return False
        rows = self._arrangement.read_all()
        there = stays(rows)
        if there.all():
            return False
        rows = rows.filter(pl.Series(there))
        keys, at, sizes = np.unique(self._numbers_of(rows), return_inverse=True, return_counts=True)
        bits = groups.buckets_for(sizes, np.zeros(len(keys), dtype=np.int64))
        self._arrangement.write(rows, groups.place_of(keys[at], self._buckets(rows, bits[at])))
        self._sizes.read_all()
        self._write_sizes(keys, sizes, bits)
        return True

    def _write_sizes(self, keys: Int64s, rows: Int64s, bits: Int64s) -> None:
        large = bits > 0
        columns = {"__key": keys[large], _ROWS_BUCKET_ARRANGEMENT: rows[large], _BITS: bits[large]}
        self._sizes.write(pl.DataFrame(columns), keys[large])

    def _buckets(self, rows: pl.DataFrame, bits: Int64s) -> Int64s:
        """Return the bucket of each row; its key is divided into 2^bits."""
        found = np.zeros(rows.height, dtype=np.int64)
        large = np.flatnonzero(bits)
        if len(large):
            hashes = groups.mixed(key_numbers(rows.select(self._columns)[large], self._columns))
            found[large] = groups.bucket_of(hashes, bits[large])
        return found


@dataclass(frozen=True)
class _LastRead:
    """The keys and rows of the last read. ``rows`` and ``bits`` are 0 for keys that are not large."""

    keys: Int64s  # sorted numbers
    rows: Int64s  # by key, before the step
    bits: Int64s
    is_whole: npt.NDArray[np.bool_]  # by key: all its rows were read
    found: pl.DataFrame
    numbers: Int64s  # by row
    mine: npt.NDArray[np.bool_]  # by row: wanted, and not at the place of a wanted bucket by chance

    def keys_of(self, rows: npt.NDArray[np.bool_]) -> Int64s:
        """Return the positions of the keys of some rows."""
        return np.searchsorted(self.keys, self.numbers[rows])
