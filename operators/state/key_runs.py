"""Rows by the place of their key, in sorted runs, so that a batch writes only the rows that change."""

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
from .runs import RunFiles
from .store import Store

UInt64s = npt.NDArray[np.uint64]

INNER_BITS = 32
"""The low bits of a row's place, which tell the rows of one key apart."""

_ROWS = 1024  # of a page of a run
_MANY = 4  # runs that are merged, at least
_ALL = 4  # a run is read whole if a batch needs this part of its pages or more
_MIX = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(INNER_BITS)
_LOW = np.uint64((1 << INNER_BITS) - 1)
_PLACE, _NONE = "__upstream_place", "__upstream_none"


def key_places(numbers: Int64s) -> UInt64s:
    """Return the places of keys with some numbers, where all rows of a key have one place."""
    return numbers.view(np.uint64) * _MIX


def row_places(numbers: Int64s, inner: Int64s) -> UInt64s:
    """Return the places of rows with some numbers of their keys and some of the rows themselves."""
    return (key_places(numbers) & ~_LOW) | (key_places(inner) >> _HALF)


class PlaceRanges(NamedTuple):
    """Ranges of places, both ends inclusive. Two ranges share nothing, or one contains the other."""

    first: UInt64s
    last: UInt64s

    @classmethod
    def of_keys(cls, numbers: Int64s) -> PlaceRanges:
        """Return the ranges of all rows of some keys, whose rows have :func:`row_places`."""
        first = key_places(numbers) & ~_LOW
        return cls(first, first | _LOW)

    @classmethod
    def of_buckets(cls, numbers: Int64s, buckets: Int64s, bits: Int64s) -> PlaceRanges:
        """Return the ranges of some buckets of keys: the rows of a key are divided into ``2 ** bits`` buckets."""
        shift = _HALF - bits.view(np.uint64)
        first = (key_places(numbers) & ~_LOW) | (buckets.view(np.uint64) << shift)
        return cls(first, first | ((np.uint64(1) << shift) - np.uint64(1)))

    def joined(self, places: UInt64s) -> PlaceRanges:
        """Return these ranges and some single places."""
        return PlaceRanges(np.concatenate([self.first, places]), np.concatenate([self.last, places]))

    def disjoint(self) -> PlaceRanges:
        """Return the ranges that no other one contains, in order."""
        order = np.lexsort((~self.last, self.first))
        first, last = self.first[order], self.last[order]
        outer = np.ones(len(order), dtype=np.bool_)
        outer[1:] = last[1:] > np.maximum.accumulate(last)[:-1]
        return PlaceRanges(first[outer], last[outer])


def buckets_at(places: UInt64s, bits: Int64s) -> Int64s:
    """Return the buckets of rows at some places, whose keys' rows are divided into ``2 ** bits`` buckets."""
    return ((places & _LOW) >> (_HALF - bits.view(np.uint64))).view(np.int64)


BITS = 20
"""The maximum number of buckets of a key, as a power of two."""
LOW = (1 << BITS) - 1
"""The mask of the bucket in a pair: see :func:`pairs`."""

ROWS_OF_BUCKET = 256
"""A key with fewer rows has one bucket."""


def buckets_for(rows: Int64s, bits: Int64s) -> Int64s:
    """Return the number of buckets of keys by their numbers of rows, as a power of two.

    It remains as before (`bits`) unless that is too small, or four times too large.
    """
    some = np.log2(np.maximum(rows, 1))
    # Of small keys a bucket has some hundred rows; a large key has as many buckets as a bucket has rows.
    wanted = np.ceil(np.minimum(np.maximum(some - np.log2(ROWS_OF_BUCKET), 0), some / 2)).astype(np.int64)
    wanted = np.minimum(wanted, BITS)
    return np.where((wanted > bits) | (wanted < bits - 1), wanted, bits)


def pairs(key: Int64s, bucket: Int64s) -> Int64s:
    """Return one number for each pair of a key's position and a bucket."""
    return (key << BITS) | bucket


def every_bucket(keys: Int64s, bits: Int64s) -> Int64s:
    """Return the pairs of keys and each of their buckets."""
    sizes = np.int64(1) << bits
    begins = np.cumsum(sizes) - sizes
    return pairs(np.repeat(keys, sizes), np.arange(int(sizes.sum())) - np.repeat(begins, sizes))


class _KeyRun(NamedTuple):
    """A run in the store."""

    number: int
    name: str
    rows: int
    pages: int
    size: int  # bytes in the store

    @property
    def entries(self) -> int:
        """The number of values in the store: the pages, and their first places if there are several."""
        return self.pages + (self.pages > 1)


class Found(NamedTuple):
    """Rows and their places."""

    rows: pa.Table
    places: UInt64s


class KeyRuns:
    """The rows of a shard by place.

    Runs are immutable, and a newer run replaces an older one's rows at the same places. Runs of similar size are
    merged, so a row is rewritten about once for each fourfold growth.

    Stored rows have null in columns of `schema` that are new. `files` spares reads from the store. `forget` returns
    which rows to drop, when all runs are merged.
    """

    def __init__(
        self,
        store: Store,
        kind: str,
        schema: pa.Schema,
        saved: Any,
        files: RunFiles | None = None,
        forget: Callable[[pa.Table], Mask] | None = None,
    ) -> None:
        self._store = store
        self._kind = kind
        self._schema = schema
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

    def release(self) -> None:
        """Drop the tables of large runs from memory."""
        self._whole = {name: table for name, table in self._whole.items() if table.num_rows <= _ROWS}

    def compact(self) -> None:
        """Merge all runs, so that the store has current rows only."""
        if len(self._runs) > 1:
            self._merge(0, [])

    def find(self, places: UInt64s) -> Found:
        """Return the rows at some places."""
        places = _distinct(places)
        return self.find_between(PlaceRanges(places, places))

    def find_between(self, asked: PlaceRanges) -> Found:
        """Return the rows at the places of some disjoint ranges, which are in order."""
        first, last = asked
        parts: list[tuple[pa.Table, UInt64s]] = []
        for run in reversed(self._runs):
            if not len(first):
                break
            table, places = self._load(run, first, last)
            at, counts = ranges(places, first, last)
            if len(at) == len(places):
                parts.append((table, places))
            elif len(at):
                parts.append((table.take(pa.array(at)), places[at]))
            if first is last:
                first = last = first[counts == 0]
            else:
                older = (counts == 0) | (first != last)
                first, last = first[older], last[older]
        return self._there(*self._newest(parts))

    def find_all(self) -> Found:
        return self._there(*self._newest([self._load(run, None, None) for run in reversed(self._runs)]))

    def clear(self) -> None:
        for run in self._runs:
            self._remove(run)
        self._runs, self.rows = [], 0

    def replace(self, found: Found, stays: Mask, new: pa.Table, places: UInt64s) -> None:
        """Replace the `found` rows that do not stay, and add new ones at some places.

        `found` has all rows at the places that change.
        """
        self.rows += new.num_rows - int(np.count_nonzero(~stays))
        changed = _distinct(np.concatenate([found.places[~stays], places]))
        if not len(changed):
            return
        # Several rows may share a place: to write one of them, write all.
        beside = stays & is_among(found.places, changed)
        rows = self._as_stored(new)
        if beside.any():
            places = np.concatenate([places, found.places[beside]])
            rows = pa.concat_tables([rows, self._as_stored(found.rows.filter(pa.array(beside)))])
        rows = _placed(rows, places, gone=False)
        gone = changed[~is_among(changed, np.sort(places))] if self._runs else changed[:0]
        if len(gone):
            schema = pa.schema(list(self._stored)[:-2])
            none = pa.table([pa.nulls(len(gone), field.type) for field in schema], schema=schema)
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
            self._write(self._next, table, places)
            self._next += 1

    def _merge(self, begin: int, newer: list[tuple[pa.Table, UInt64s]]) -> None:
        """Merge the runs from a position on, and newer rows, into one run, which takes the place of the first."""
        merged = self._runs[begin:]
        table, places = self._newest([*newer, *(self._load(run, None, None) for run in reversed(merged))])
        order = np.argsort(places, kind="stable")
        if begin == 0:
            over = _flags(table) if self._forget is None else _flags(table) | self._forgotten(table, self._forget)
            order = order[~over[order]]
        table, places = table.take(pa.array(order)).combine_chunks(), places[order]
        del self._runs[begin:]
        written = self._write(merged[0].number, table, places) if len(places) else 0
        self._remove(merged[0], written)
        for run in merged[1:]:
            self._remove(run)

    def _forgotten(self, table: pa.Table, forget: Callable[[pa.Table], Mask]) -> Mask:
        forgotten = forget(table) & ~_flags(table)
        self.rows -= int(np.count_nonzero(forgotten))
        return forgotten

    def _remove(self, run: _KeyRun, first: int = 0) -> None:
        """Remove a run's values from the store, from the `first` on."""
        for page in range(first, run.entries):
            self._store.remove(f"{self._kind}/{run.number}", page)
        self._whole.pop(run.name, None)
        if self._files is not None:
            self._files.drop([run.name])

    def _write(self, number: int, table: pa.Table, places: UInt64s) -> int:
        """Add a run; return the number of values that it has in the store."""
        kind = f"{self._kind}/{number}"
        # No place is on two pages.
        begins = _distinct(np.searchsorted(places, places[::_ROWS]))
        ends = np.append(begins[1:], len(places))
        size = 0
        for page, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
            frame = to_frame(table.slice(begin, end - begin))
            self._store.put(kind, page, frame)
            size += len(frame)
        if len(begins) > 1:
            firsts = places[begins].tobytes()
            self._store.put(kind, len(begins), firsts)
            size += len(firsts)
        run = _KeyRun(number, secrets.token_hex(8), len(places), len(begins), size)
        if self._files is not None and len(begins) > 1:
            self._files.put(run.name, table)
        self._runs.append(run)
        self._whole[run.name] = table
        return run.entries

    def _load(self, run: _KeyRun, first: UInt64s | None, last: UInt64s | None) -> tuple[pa.Table, UInt64s]:
        """Return a run, or at least its rows at some places, and their places."""
        table = self._whole.get(run.name)
        if table is None and self._files is not None and run.pages > 1:
            table = self._files.get(run.name)
        if table is None:
            pages = self._pages(run, first, last)
            frames = [self._store.get(f"{self._kind}/{run.number}", page) for page in pages]
            tables = [from_frame(frame) for frame in frames if frame is not None]
            table = pa.concat_tables(tables).combine_chunks() if tables else self._stored.empty_table()
            if len(pages) < run.pages:
                return self._fitted(table)
            assert table.num_rows == run.rows, f"{table.num_rows} of a run's {run.rows} rows are in the state store"
            if self._files is not None and run.pages > 1:
                self._files.put(run.name, table)
        self._whole[run.name] = table
        return self._fitted(table)

    def _pages(self, run: _KeyRun, first: UInt64s | None, last: UInt64s | None) -> Sequence[int]:
        """Return the pages of a run with some places, or all if those are many."""
        every = range(run.pages)
        if run.pages < _ALL or first is None or last is None:
            return every
        saved = self._store.get(f"{self._kind}/{run.number}", run.pages)
        assert saved is not None, f"the first places of a run's {run.pages} pages are in the state store"
        begins = np.frombuffer(saved, dtype=np.uint64)
        low = np.maximum(np.searchsorted(begins, first, "right") - 1, 0)
        high = np.searchsorted(begins, last, "right")
        marks = np.zeros(run.pages + 1, dtype=np.int64)
        some = low < high
        np.add.at(marks, low[some], 1)
        np.add.at(marks, high[some], -1)
        pages = np.flatnonzero(np.cumsum(marks)[:-1])
        return pages.tolist() if len(pages) * _ALL < run.pages else every

    def _fitted(self, table: pa.Table) -> tuple[pa.Table, UInt64s]:
        table = with_nulls(table, self._stored)
        return table, table.column(_PLACE).to_numpy()

    def _newest(self, parts: list[tuple[pa.Table, UInt64s]]) -> tuple[pa.Table, UInt64s]:
        """Return the newest part's rows at each place; parts come newest first, each in order of its places."""
        if not parts:
            return self._stored.empty_table(), np.empty(0, dtype=np.uint64)
        if len(parts) == 1:
            return parts[0]
        found = parts[:1]
        newer = parts[0][1]
        for table, places in parts[1:]:
            over, _ = ranges(places, newer, newer)
            stays = np.ones(len(places), dtype=np.bool_)
            stays[over] = False
            found.append((table.filter(pa.array(stays)), places[stays]) if len(over) else (table, places))
            if len(found) < len(parts):
                newer = _distinct(np.concatenate([newer, found[-1][1]]))
        return pa.concat_tables([each for each, _ in found]).combine_chunks(), np.concatenate(
            [each for _, each in found]
        )

    def _there(self, table: pa.Table, places: UInt64s) -> Found:
        there = ~_flags(table)
        if not there.all():
            table, places = table.filter(pa.array(there)), places[there]
        return Found(pa.table([table.column(name) for name in self._schema.names], schema=self._schema), places)

    def _as_stored(self, rows: pa.Table) -> pa.Table:
        fields = list(self._stored)[:-2]
        return pa.table([rows.column(field.name) for field in fields], schema=pa.schema(fields))


def ranges(places: UInt64s | Int64s, first: UInt64s | Int64s, last: UInt64s | Int64s) -> tuple[Int64s, Int64s]:
    """Return the positions of places in some ranges, and how many each range has."""
    begins = np.searchsorted(places, first)
    if first is last and len(places):
        # One search finds most: few places have several rows.
        end = len(places) - 1
        counts = (places[np.minimum(begins, end)] == first).astype(np.int64)
        more = np.flatnonzero((begins < end) & (places[np.minimum(begins + 1, end)] == first))
        counts[more] = np.searchsorted(places, first[more], "right") - begins[more]
    else:
        counts = np.searchsorted(places, last, "right") - begins
    before = np.cumsum(counts) - counts
    return np.arange(int(counts.sum())) + np.repeat(begins - before, counts), counts


def is_among(values: npt.NDArray[Any], others: npt.NDArray[Any]) -> Mask:
    """Return which values are among others, which are in order."""
    if not len(others):
        return np.zeros(len(values), dtype=np.bool_)
    at = np.searchsorted(others, values)
    return others[np.minimum(at, len(others) - 1)] == values


def _distinct(places: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return each of some places once, in order; NumPy's own function is slower for many."""
    places = np.sort(places)
    return places[np.concatenate([[True], places[1:] != places[:-1]])] if len(places) > 1 else places


def _placed(rows: pa.Table, places: UInt64s, *, gone: bool) -> pa.Table:
    marks = pa.array(np.full(len(places), gone))
    return rows.append_column(_PLACE, pa.array(places)).append_column(_NONE, marks)


def _flags(table: pa.Table) -> Mask:
    column = table.column(_NONE)
    return column.to_numpy() if pc.any(column).as_py() else np.zeros(table.num_rows, dtype=np.bool_)
