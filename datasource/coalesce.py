"""Coalescing: only the newest row per key leaves, of the rows that a task reads in a batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from ..core.rows.columns import columns_at
from ..core.rows.newest import NewestPerKey, key_codes
from ..core.rows.sort_keys import places
from .row_shaper import Rows

__all__ = ["coalesced", "newest_rows"]

# Rows of one feed held before they are brought down to one per key.
_BRING_TOGETHER = 500_000


def newest_rows(rows: Rows, key: tuple[str, ...], sequence: tuple[str, ...] = ()) -> Rows:
    """Return each key's newest row by sequence or time, with the oldest arrival and the count of the rows it covers."""
    if not rows.table.num_rows:
        return rows
    codes, size = key_codes(columns_at(rows.table, key))
    first = rows.arrival_us if rows.first_arrival_us is None else rows.first_arrival_us
    if len(first) and (first == first[0]).all():
        first = int(first[0])
    time = places(columns_at(rows.table, sequence)) if sequence else rows.time_us
    newest = NewestPerKey(codes, size, time, first, 1 if rows.covered is None else rows.covered)
    kept = rows.take(newest.rows)
    return dataclasses.replace(kept, first_arrival_us=newest.first_arrival_us, covered=newest.covered)


def coalesced(chunks: Iterable[Rows], key: tuple[str, ...], sequence: tuple[str, ...] = ()) -> Iterator[Rows]:
    """Yield the newest rows per key of all chunks, one item per feed; chunks come in arrival order.

    Memory is bounded by the keys, not by the rows.
    """
    feeds: dict[str, _Held] = {}
    for rows in chunks:
        if rows.table.num_rows:
            feeds.setdefault(rows.source, _Held(key, sequence)).add(newest_rows(rows, key, sequence))
    for held in feeds.values():
        yield held.newest()


class _Held:
    """The newest rows of one feed, combined only once they have doubled, so that a chunk does not cost all keys."""

    def __init__(self, key: tuple[str, ...], sequence: tuple[str, ...]) -> None:
        self._key = key
        self._sequence = sequence
        self._parts: list[Rows] = []
        self._count = 0
        self._limit = _BRING_TOGETHER

    def add(self, rows: Rows) -> None:
        self._parts.append(rows)
        self._count += rows.table.num_rows
        if self._count > self._limit:
            kept = self.newest()
            self._parts, self._count = [kept], kept.table.num_rows
            self._limit = max(_BRING_TOGETHER, 2 * self._count)

    def newest(self) -> Rows:
        if len(self._parts) == 1:
            return self._parts[0]
        return newest_rows(_concatenated(self._parts), self._key, self._sequence)


def _concatenated(parts: list[Rows]) -> Rows:
    times = [part.time_us for part in parts if part.time_us is not None]
    firsts = [part.first_arrival_us for part in parts if part.first_arrival_us is not None]
    covered = [part.covered for part in parts if part.covered is not None]
    deleted = [
        np.zeros(part.table.num_rows, dtype=np.bool_) if part.deleted is None else part.deleted for part in parts
    ]
    return Rows(
        pa.concat_tables([part.table for part in parts]),
        np.concatenate(times) if times else None,
        np.concatenate([part.seq for part in parts]),
        np.concatenate([part.arrival_us for part in parts]),
        parts[0].source,
        np.concatenate(firsts),
        np.concatenate(covered),
        None if all(part.deleted is None for part in parts) else np.concatenate(deleted),
    )
