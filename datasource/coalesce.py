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
    """All the chunks' rows as one, newest per key. Chunks come in arrival order."""
    kept: Rows | None = None
    for rows in chunks:
        if not rows.table.num_rows:
            continue
        newest = newest_rows(rows, key)
        kept = newest if kept is None else newest_rows(_concatenated(kept, newest), key)
    if kept is not None:
        yield kept


def _concatenated(earlier: Rows, later: Rows) -> Rows:
    assert earlier.first_arrival_us is not None and later.first_arrival_us is not None
    assert earlier.covered is not None and later.covered is not None
    times = (
        None
        if earlier.time_us is None or later.time_us is None
        else np.concatenate([earlier.time_us, later.time_us])
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
