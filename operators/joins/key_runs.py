"""Rows by the number of their key, in sorted runs, so that a batch writes only the rows that change."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.rows.columns import with_nulls
from ...core.rows.exact_integers import Int64s, Mask
from ...core.rows.frames import from_frame, to_frame
from ..state.runs import RunFiles
from ..state.store import Store
from .pair_kernel import key_numbers

UInt64s = npt.NDArray[np.uint64]

_ROWS = 1024  # of a page of a run
_MANY = 4  # runs that are merged, at least
_ALL = 4  # a run is read whole if a batch needs this part of its pages or more
_MIX = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_PLACE, _NONE = "__upstream_place", "__upstream_none"


class _KeyRun(NamedTuple):
    """A run in the store."""

    number: int
    name: str
    rows: int
    bits: int  # leading bits of a place that number its page
    size: int = 0  # bytes in the store


class Found(NamedTuple):
    """Rows and their places."""

    rows: pa.Table
    places: UInt64s


class KeyRuns:
    """The rows of a shard, found by the column `number`, in which equal keys have equal numbers.

    Runs are immutable, and a newer run replaces an older one's rows at the same places. Runs of similar size are
    merged, so a row is rewritten about once for each fourfold growth.

    Stored rows have null in columns of `schema` that are new. `within` names columns that distinguish many rows of one
    number, so that a batch writes only those that change. `files` spares reads from the store. `forget` returns which
    rows to drop, when all runs are merged.
    """

    def __init__(
        self,
        store: Store,
        kind: str,
        number: str,
        schema: pa.Schema,
        saved: Any,
        within: Sequence[str] = (),
        files: RunFiles | None = None,
        forget: Callable[[pa.Table], Mask] | None = None,
    ) -> None:
        self._store = store
        self._kind = kind
        self._number = number
        self._schema = schema
        self._within = within
        self._files = files
        self._forget = forget
        nullable = [field.with_nullable(True) for field in schema]
        self._stored = pa.schema([*nullable, pa.field(_PLACE, pa.uint64()), pa.field(_NONE, pa.bool_())])
        self._runs = [_KeyRun(*each) for each in saved.get("runs", ())]
        self._next = int(saved.get("next", 0))
        self._whole: dict[str, pa.Table] = {}
        self.rows = int(saved.get("rows", 0))
        """The number of rows that are kept."""

    def to_json(self) -> dict[str, Any]:
        return {"runs": self._runs, "next": self._next, "rows": self.rows}

    @property
    def bytes(self) -> int:
        return sum(run.size for run in self._runs)

    def compact(self) -> None:
        """Merge all runs, so that the store has current rows only."""
        if len(self._runs) > 1:
            self._merge(0, [])

    def find(self, numbers: Int64s) -> Found:
        """Return the rows with some numbers, and perhaps some others."""
        first = np.unique(self._first(numbers))
        last = first | _LOW if self._within else first
        parts: list[tuple[pa.Table, UInt64s]] = []
        for run in reversed(self._runs):
            if not len(first):
                break
            table, places = self._load(run, first, last)
            at, counts = ranges(places, first, last)
            if len(at):
                parts.append((table.take(pa.array(at)), places[at]))
            if not self._within:
                first = last = first[counts == 0]
        table, places = self._newest(parts)
        there = ~_flags(table)
        if not there.all():
            table, places = table.filter(pa.array(there)), places[there]
        return Found(self._given(table), places)

    def all_rows(self) -> pa.Table:
        table, _ = self._newest([self._load(run, None, None) for run in reversed(self._runs)])
        return self._given(table.filter(pa.array(~_flags(table))))

    def clear(self) -> None:
        self._remove(self._runs)
        self._runs, self.rows = [], 0

    def replace(self, found: Found, stays: Mask, new: pa.Table) -> None:
        """Replace the `found` rows that do not stay, and add new ones.

        `found` comes from :meth:`find`, with the numbers of all rows that change.
        """
        self.rows += new.num_rows - int(np.count_nonzero(~stays))
        places = self._places(new)
        changed = np.unique(np.concatenate([found.places[~stays], places]))
        if not len(changed):
            return
        # Two keys share a place once in 2**32 or more: to write one of them, write both.
        beside = stays & np.isin(found.places, changed)
        places = np.concatenate([places, found.places[beside]])
        rows = pa.concat_tables([self._as_stored(new), self._as_stored(found.rows.filter(pa.array(beside)))])
        rows = _placed(rows, places, gone=False)
        gone = np.setdiff1d(changed, places) if self._runs else np.empty(0, dtype=np.uint64)
        if len(gone):
            none = pa.table([pa.nulls(len(gone), field.type) for field in rows.schema], schema=rows.schema)
            rows = pa.concat_tables([rows, _placed(none, gone, gone=True)])
            places = np.concatenate([places, gone])
        if not len(places):
            return
        order = np.argsort(places, kind="stable")
        self._add(rows.combine_chunks().take(pa.array(order)).combine_chunks(), places[order])

    def _add(self, table: pa.Table, places: UInt64s) -> None:
        """Add a run, merged with those of its size or less if there are many."""
        begin, newer = len(self._runs), len(places)
        for at in reversed(range(len(self._runs))):
            rows = self._runs[at].rows
            # What fits into one page costs a call to the state store, whether it is merged or not.
            if newer + rows <= _ROWS or (rows <= newer and len(self._runs) - at >= _MANY - 1):
                begin = at
            newer += rows
        if begin < len(self._runs):
            self._merge(begin, [(table, places)])
        else:
            self._write(table, places)

    def _merge(self, begin: int, newer: list[tuple[pa.Table, UInt64s]]) -> None:
        """Merge the runs from a position on, and newer rows, into one run."""
        merged = self._runs[begin:]
        table, places = self._newest([*newer, *(self._load(run, None, None) for run in reversed(merged))])
        order = np.argsort(places, kind="stable")
        if begin == 0:
            order = order[~(_flags(table) | self._forgotten(table))[order]]
        table, places = table.take(pa.array(order)).combine_chunks(), places[order]
        self._remove(merged)
        del self._runs[begin:]
        if len(places):
            self._write(table, places)

    def _forgotten(self, table: pa.Table) -> Mask:
        if self._forget is None:
            return np.zeros(table.num_rows, dtype=np.bool_)
        forgotten = self._forget(table) & ~_flags(table)
        self.rows -= int(np.count_nonzero(forgotten))
        return forgotten

    def _remove(self, runs: Sequence[_KeyRun]) -> None:
        for run in runs:
            for page in range(1 << run.bits):
                self._store.remove(f"{self._kind}/{run.number}", page)
        if self._files is not None:
            self._files.drop(run.name for run in runs)

    def _write(self, table: pa.Table, places: UInt64s) -> None:
        bits = max(0, (len(places) - 1) // _ROWS).bit_length()
        size = 0
        pages = _pages(places, bits)
        begins = np.flatnonzero(np.concatenate([[True], pages[1:] != pages[:-1]]))
        ends = np.append(begins[1:], len(pages))
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            frame = to_frame(table.slice(begin, end - begin))
            self._store.put(f"{self._kind}/{self._next}", int(pages[begin]), frame)
            size += len(frame)
        run = _KeyRun(self._next, secrets.token_hex(16), len(places), bits, size)
        self._next += 1
        if self._files is not None:
            self._files.put(run.name, table)
        self._runs.append(run)
        self._whole[run.name] = table

    def _load(self, run: _KeyRun, first: UInt64s | None, last: UInt64s | None) -> tuple[pa.Table, UInt64s]:
        """Return a run, or at least its rows at some places, and their places."""
        table = self._whole.get(run.name)
        if table is None and self._files is not None:
            table = self._files.get(run.name)
        if table is None:
            pages = np.arange(1 << run.bits)
            if first is not None and last is not None:
                # A number's places share their upper half, and no run has more pages than that has values.
                some = np.unique(_pages(first, run.bits))
                pages = some if len(some) * _ALL < len(pages) else pages
            frames = [self._store.get(f"{self._kind}/{run.number}", page) for page in pages.tolist()]
            tables = [from_frame(frame) for frame in frames if frame is not None]
            table = pa.concat_tables(tables).combine_chunks() if tables else self._stored.empty_table()
            if len(pages) < 1 << run.bits:
                return self._fitted(table)
            assert table.num_rows == run.rows, f"{table.num_rows} of a run's {run.rows} rows are in the state store"
            if self._files is not None:
                self._files.put(run.name, table)
        self._whole[run.name] = table
        return self._fitted(table)

    def _fitted(self, table: pa.Table) -> tuple[pa.Table, UInt64s]:
        table = with_nulls(table, self._stored)
        return table, table.column(_PLACE).to_numpy()

    def _newest(self, parts: list[tuple[pa.Table, UInt64s]]) -> tuple[pa.Table, UInt64s]:
        """Return the newest part's rows at each place; parts come newest first."""
        if not parts:
            return self._stored.empty_table(), np.empty(0, dtype=np.uint64)
        table = pa.concat_tables([each for each, _ in parts])
        places = np.concatenate([each for _, each in parts])
        if len(parts) > 1:
            age = np.repeat(np.arange(len(parts)), [len(each) for _, each in parts])
            order = np.argsort(places, kind="stable")  # those of one place from the newest on
            begins = np.concatenate([[True], places[order][1:] != places[order][:-1]])
            least = age[order][np.flatnonzero(begins)][np.cumsum(begins) - 1]
            newest = np.sort(order[age[order] == least])
            if len(newest) < len(places):
                table, places = table.combine_chunks().take(pa.array(newest)), places[newest]
        return table.combine_chunks(), places

    def _given(self, table: pa.Table) -> pa.Table:
        return pa.table([table.column(name) for name in self._schema.names], schema=self._schema)

    def _as_stored(self, rows: pa.Table) -> pa.Table:
        fields = list(self._stored)[:-2]
        return pa.table([rows.column(field.name) for field in fields], schema=pa.schema(fields))

    def _first(self, numbers: Int64s) -> UInt64s:
        """Return the first place of each number."""
        mixed = numbers.view(np.uint64) * _MIX
        return mixed & ~_LOW if self._within else mixed

    def _places(self, rows: pa.Table) -> UInt64s:
        first = self._first(rows.column(self._number).to_numpy())
        if not self._within or not len(first):
            return first
        inner = key_numbers([rows.column(name) for name in self._within])
        return first | ((inner.view(np.uint64) * _MIX) >> _HALF)


def ranges(places: UInt64s, first: UInt64s, last: UInt64s) -> tuple[Int64s, Int64s]:
    """Return the positions of places in some ranges, and how many each range has."""
    begins, ends = np.searchsorted(places, first), np.searchsorted(places, last, "right")
    counts = ends - begins
    before = np.cumsum(counts) - counts
    return np.arange(int(counts.sum())) + np.repeat(begins - before, counts), counts


def _pages(places: UInt64s, bits: int) -> Int64s:
    return (places >> np.uint64(64 - bits)).astype(np.int64) if bits else np.zeros(len(places), dtype=np.int64)


def _placed(rows: pa.Table, places: UInt64s, *, gone: bool) -> pa.Table:
    rows = rows.drop_columns([name for name in (_PLACE, _NONE) if name in rows.column_names])
    marks = np.full(len(places), gone)
    return rows.append_column(_PLACE, pa.array(places)).append_column(_NONE, pa.array(marks))


def _flags(table: pa.Table) -> Mask:
    column = table.column(_NONE)
    return column.to_numpy() if pc.any(column).as_py() else np.zeros(table.num_rows, dtype=np.bool_)
