"""Coalescing: of the rows that a task reads in a batch, only the newest per key leave.

Right only where nothing but the newest row per key is asked for (semantics: streams). Memory is bounded by the keys, not the rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from ..frames.newest import NewestPerKey, key_codes
from .rows import Rows

__all__ = ["coalesced", "newest_rows"]


def newest_rows(rows: Rows, key: tuple[str, ...]) -> Rows:
    """The newest row of each key, standing for the oldest arrival it covers."""
    if not rows.table.num_rows:
        return rows
    codes, size = key_codes([rows.table.column(name) for name in key])
    first = rows.arrival_us if rows.first_arrival_us is None else rows.first_arrival_us
    if len(first) and (first == first[0]).all():
        first = int(first[0])
    newest = NewestPerKey(codes, size, rows.time_us, first, 1 if rows.covered is None else rows.covered)
    kept = rows.take(newest.rows)
    return dataclasses.replace(kept, first_arrival_us=newest.first_arrival_us, covered=newest.covered)


def coalesced(chunks: Iterable[Rows], key: tuple[str, ...]) -> Iterator[Rows]:
    """All the chunks' rows, newest per feed and key; one item per feed. Chunks come in arrival order."""
    kept: dict[str, Rows] = {}
    for rows in chunks:
        if not rows.table.num_rows:
            continue
        newest = newest_rows(rows, key)
        earlier = kept.get(rows.source)
        kept[rows.source] = newest if earlier is None else newest_rows(_concatenated(earlier, newest), key)
    yield from kept.values()


def _concatenated(earlier: Rows, later: Rows) -> Rows:
    assert earlier.first_arrival_us is not None
    assert later.first_arrival_us is not None
    assert earlier.covered is not None
    assert later.covered is not None
    times = (
        None if earlier.time_us is None or later.time_us is None else np.concatenate([earlier.time_us, later.time_us])
    )
    return Rows(
        pa.concat_tables([earlier.table, later.table]),
        times,
        np.concatenate([earlier.seq, later.seq]),
        np.concatenate([earlier.arrival_us, later.arrival_us]),
        earlier.source,
        np.concatenate([earlier.first_arrival_us, later.first_arrival_us]),
        np.concatenate([earlier.covered, later.covered]),
    )
