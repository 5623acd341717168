"""The last applied time of each key, so that no older row follows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ...core.rows.exact_integers import HIGHEST, LOWEST, Int64s, Mask
from ...core.rows.newest import key_codes, newest_per_key
from ..state.entries import PANE
from ..state.runs import Runs
from ..state.store import Store

_NUMBER = "__upstream_number"
# With fewer entries, compaction costs more than it saves.
_FEW = 8192


class TimedKeys(NamedTuple):
    """The keys and times of some rows. Equal keys have equal numbers."""

    columns: Sequence[pa.ChunkedArray]  # the key's columns; none if different keys always have different numbers
    numbers: Int64s
    times: Int64s

    def take(self, which: Mask) -> TimedKeys:
        mask = pa.array(which)
        return TimedKeys([column.filter(mask) for column in self.columns], self.numbers[which], self.times[which])

    def codes(self) -> tuple[Int64s, int]:
        """Return a code for each row's key, and the size of their range."""
        return key_codes(self.columns or [pa.array(self.numbers)])


class AppliedTimes:
    """The time of each key's newest applied row, until the low-watermark passes it.

    Entries are in runs by time. A lookup reads only runs with later times than its rows, and expiry removes whole runs.
    `key` has no fields if the keys' numbers distinguish them. If its columns have changed, the saved times are
    discarded.
    """

    def __init__(self, store: Store, key: pa.Schema, saved: Mapping[str, Any]) -> None:
        self._names = key.names
        self._schema = pa.schema([*key, pa.field(_NUMBER, pa.int64()), pa.field(PANE, pa.int64())])
        self._runs = Runs(store, "applied", saved.get("runs", ()), 1, combine=self._newest)
        self._compacted: int = saved.get("compacted", 0)
        self._types = [str(field.type) for field in key]
        if saved.get("types", self._types) != self._types:
            self.clear()

    def to_json(self) -> dict[str, Any]:
        return {"runs": self._runs.known, "compacted": self._compacted, "types": self._types}

    def __len__(self) -> int:
        """Return the number of entries; a key may have several."""
        return self._runs.rows

    def older(self, rows: TimedKeys) -> Mask:
        """Return a mask of the rows that are older than an applied row of their key."""
        older = np.zeros(len(rows.times), dtype=np.bool_)
        known = self._runs.tables(int(rows.times.min()) + 1, HIGHEST) if len(older) else []
        if not known:
            return older
        latest = max(table.column(PANE)[-1].as_py() for table in known)  # those of a run are sorted
        some = rows.times < latest
        older[some] = older_than(rows.take(some), self._keys_of(pa.concat_tables(known)))
        return older

    def add(self, rows: TimedKeys, bound: int, *, distinct: bool = False) -> None:
        """Add applied rows, one a key if `distinct`, and remove entries below `bound`: any row there is late anyway."""
        stays = rows.times >= bound
        if stays.any():
            rows = rows if stays.all() else rows.take(stays)
            entries = pa.table([*rows.columns, pa.array(rows.numbers), pa.array(rows.times)], schema=self._schema)
            self._runs.add(entries if distinct else self._newest(entries))
        self._runs.drop_below(bound)
        if self._runs.rows > 2 * max(self._compacted, _FEW):
            entries = self._newest(pa.concat_tables(self._runs.tables(bound, HIGHEST)))
            self._runs.drop_below(HIGHEST)
            self._runs.add(entries)
            self._compacted = entries.num_rows

    def clear(self) -> None:
        self._runs.drop_below(HIGHEST)
        self._compacted = 0

    def _keys_of(self, entries: pa.Table) -> TimedKeys:
        numbers, times = (entries.column(name).to_numpy() for name in (_NUMBER, PANE))
        return TimedKeys([entries.column(name) for name in self._names], numbers, times)

    def _newest(self, entries: pa.Table) -> pa.Table:
        rows = self._keys_of(entries)
        at = newest_per_key(*rows.codes(), rows.times)
        return entries if len(at) == entries.num_rows else entries.take(pa.array(at))


def older_than(rows: TimedKeys, others: TimedKeys) -> Mask:
    """Return a mask of the rows that are older than one of `others` with the same key."""
    others = others.take(_among(others.numbers, rows.numbers))
    both = zip(rows.columns, others.columns, strict=True)
    columns = [pa.chunked_array([*mine.chunks, *more.chunks]) for mine, more in both]
    codes, size = TimedKeys(columns, np.concatenate([rows.numbers, others.numbers]), rows.times).codes()
    n = len(rows.times)
    newest = np.full(size, LOWEST, dtype=np.int64)
    np.maximum.at(newest, codes[n:], others.times)
    return rows.times < newest[codes[:n]]


def behind(rows: TimedKeys) -> Mask:
    """Return a mask of the rows that are older than an earlier row of their key, in delivery order."""
    found = rows.times < np.maximum.accumulate(rows.times)  # older than any row before
    if not found.any():
        return found
    some = np.flatnonzero(_among(rows.numbers, rows.numbers[found]))
    doubted = TimedKeys([column.take(pa.array(some)) for column in rows.columns], rows.numbers[some], rows.times[some])
    codes, _ = doubted.codes()
    order = np.argsort(codes, kind="stable")
    # One running maximum serves all keys: a number is the key's position, then the rank of the time.
    ranks = np.unique(doubted.times[order], return_inverse=True)[1]
    place = np.cumsum(np.diff(codes[order], prepend=codes[order[0]]) != 0) * len(order) + ranks
    found[some[order]] = place < np.maximum.accumulate(place)
    return found


def _among(numbers: Int64s, others: Int64s) -> Mask:
    """Return a mask of the numbers that may be in `others`: all that are, and few more."""
    size = 1 << max(10, (8 * len(others) - 1).bit_length())
    seen = np.zeros(size, dtype=np.bool_)
    seen[others & (size - 1)] = True
    return seen[numbers & (size - 1)]
