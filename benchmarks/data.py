"""The data: files of rows (key, ms, value), made from a seed and kept below ``benchmarks/.cache``."""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .environments import CACHE

__all__ = [
    "CLOSING_KEY",
    "SPAN_MS",
    "START_MS",
    "feed",
    "feed_table",
    "folder_of",
    "join_feed",
    "join_table",
    "parts_of",
    "reference",
    "window_feed",
    "window_table",
]

Int64s = npt.NDArray[np.int64]

START_MS = 1_700_000_000_000
_DISPLACED = 0.05
_BACK_MS = 5_000
_FILES = 4
_APART_S = 1_700_000_000
# Part of the folder's name: data of an older generator is not taken for this one's.
_VERSION = 1
SPAN_MS = 480_000
CLOSING_KEY = -1
_CLOSING_MS = 720_000
_WINDOW_FILES = 8
_JOIN_REACH_MS = 60_000
_LATE_MS = 300_000


def feed_table(rows: int, keys: int, seed: int = 1) -> pa.Table:
    """Return rows with uniform keys and times that rise by 1 ms; 5 % of the times are up to 5 s too early.

    No two rows share key and time.
    """
    rng = np.random.default_rng([seed, rows, keys])
    key = rng.integers(0, keys, rows)
    back = np.where(rng.random(rows) < _DISPLACED, rng.integers(1, _BACK_MS, rows), 0)
    place = np.arange(rows)
    back = np.minimum(back, place)
    # Only displaced rows can fall on another row of their key; such a one (they are few) stays in its place.
    while True:
        moved = np.flatnonzero(back)
        target = moved - back[moved]
        taken = key[target] == key[moved]
        order = np.argsort(target * keys + key[moved], kind="stable")
        same = np.diff((target * keys + key[moved])[order]) == 0
        taken[order[1:][same]] = True
        if not taken.any():
            break
        back[moved[taken]] = 0
    value = rng.integers(0, 10_000, rows) / 10_000
    return pa.table({"key": key, "ms": START_MS + place - back, "value": value})


def feed(rows: int, keys: int, kind: str = "csv") -> Path:
    """Return a folder with the feed in four files; create it if it is missing.

    Parameters
    ----------
    rows, keys : int
        How many of each.
    kind : str
        ``csv``, ``bare`` (CSV without its header, for those who cannot skip one), ``json`` (lines) or ``parquet``.
    """
    return folder_of(f"v{_VERSION}-{rows}-{keys}-{kind}", kind, lambda: parts_of(feed_table(rows, keys), _FILES))


def reference(rows: int, keys: int) -> pa.Table:
    """Return the newest row per key, ordered by key: computed once, by sorting, without any engine."""
    import pyarrow.parquet as pq

    path = CACHE / "data" / f"v{_VERSION}-{rows}-{keys}-reference.parquet"
    if not path.exists():
        table = feed_table(rows, keys)
        key = table["key"].to_numpy()
        order = np.argsort(key * (2 * rows + _BACK_MS) + (table["ms"].to_numpy() - START_MS))
        last = np.flatnonzero(np.diff(key[order], append=-1))
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table.take(pa.array(order[last])), path.with_suffix(".tmp"))
        path.with_suffix(".tmp").rename(path)
    return pq.read_table(path)


def window_table(rows: int, keys: int, seed: int = 1) -> pa.Table:
    """Return rows for windows: uniform keys, times that rise over 480 s, whole numbers as values.

    5 % of the times are up to 5 s too early. No two rows share key and time. The last row has a key of its own. It is
    so much later that its arrival closes every ten-minute window that holds another row.
    """
    rng = np.random.default_rng([seed, rows, keys, SPAN_MS])
    place = np.arange(rows) * SPAN_MS // rows
    back = np.where(rng.random(rows) < _DISPLACED, rng.integers(1, _BACK_MS, rows), 0)
    ms = np.maximum(place - back, 0)
    key = rng.integers(0, keys, rows)
    while True:
        order = np.argsort(ms * keys + key, kind="stable")
        again = order[1:][np.diff((ms * keys + key)[order]) == 0]
        if not again.size:
            break
        key[again] = rng.integers(0, keys, again.size)
    value = rng.integers(0, 10_000, rows)
    closing = [CLOSING_KEY, SPAN_MS + _CLOSING_MS, 0]
    key, ms, value = (np.append(*each) for each in zip((key, ms, value), closing, strict=True))
    return pa.table({"key": key, "ms": START_MS + ms, "value": value})


def window_feed(rows: int, keys: int, side_by_side: int | None = None) -> Path:
    """Return a folder with :func:`window_table` in CSV files; create it if it is missing.

    Parameters
    ----------
    rows, keys : int
        How many of each.
    side_by_side : int, optional
        So many files without headers that are each in the order of time, for those who read that many at once; else
        eight with headers, one after the other in time.
    """
    name = f"windows-v{_VERSION}-{rows}-{keys}"
    if side_by_side is None:
        return folder_of(f"{name}-csv", "csv", lambda: parts_of(window_table(rows, keys), _WINDOW_FILES))

    def every() -> list[pa.Table]:
        table = window_table(rows, keys)
        return [table.take(pa.array(np.arange(first, len(table), side_by_side))) for first in range(side_by_side)]

    return folder_of(f"{name}-{side_by_side}-bare", "bare", every)


def join_table(rows: int, keys: int, side: int, late: float = 0.0, seed: int = 1) -> pa.Table:
    """Return one side of a join: ``key, ms, id, value``, with uniform keys.

    Times rise so that a row meets one row of the other side within 60 s, on average. 5 % of the times are up to 5 s too
    early.

    Parameters
    ----------
    rows, keys : int
        How many of each.
    side : int
        0 or 1.
    late : float
        The part of the rows that come five minutes later than they should.
    """
    rng = np.random.default_rng([seed, rows, keys, side, round(late * 1000)])
    place = _join_places(rows, keys)
    back = np.where(rng.random(rows) < _DISPLACED, rng.integers(1, _BACK_MS, rows), 0)
    back += np.where(rng.random(rows) < late, _LATE_MS, 0)
    ms = START_MS + np.maximum(place - back, 0)
    key, value = rng.integers(0, keys, rows), rng.integers(0, 10_000, rows)
    return pa.table({"key": key, "ms": ms, "id": np.arange(rows), "value": value})


def join_feed(
    rows: int, keys: int, side: int, files: int, late: float = 0.0, *, in_turn: bool = False, apart: bool = False
) -> Path:
    """Return a folder with :func:`join_table` in Parquet files; create it if it is missing.

    Parameters
    ----------
    rows, keys, side, late
        See :func:`join_table`.
    files : int
        How many there are.
    in_turn : bool
        Each file has rows of all times, in their order, for engines that read all files at once; else the files are one
        after the other in time.
    apart : bool
        The rows that come late are in as many files of their own, in the folder ``late``; the others are in
        ``on-time``.
    """

    def every() -> list[pa.Table]:
        table = join_table(rows, keys, side, late)
        return [table.take(pa.array(np.arange(first, len(table), files))) for first in range(files)]

    name = f"joins-v{_VERSION}-{rows}-{keys}-{side}-{late}-{files}"
    if apart:
        table = join_table(rows, keys, side, late)
        behind = pc.less(table.column("ms"), pa.array(START_MS + _join_places(rows, keys) - _BACK_MS))
        parts = {"late": table.filter(behind), "on-time": table.filter(pc.invert(behind))}
        for part, some in parts.items():
            folder = folder_of(f"{name}-apart/{part}", "parquet", lambda some=some: parts_of(some, files))
            for number in range(files):  # by turns: the late ones of a time, then those that are not
                os.utime(folder / f"part-{number}.parquet", (_APART_S + 2 * number + (part == "on-time"),) * 2)
        return CACHE / "data" / f"{name}-apart"
    if in_turn:
        return folder_of(f"{name}-in-turn", "parquet", every)
    return folder_of(name, "parquet", lambda: parts_of(join_table(rows, keys, side, late), files))


def _join_places(rows: int, keys: int) -> Int64s:
    """Return the times of a join's rows if none came late, from 0 on."""
    return np.arange(rows) * (2 * _JOIN_REACH_MS) // keys


def parts_of(table: pa.Table, parts: int) -> list[pa.Table]:
    """Return a table in so many parts, one after the other."""
    bounds = [len(table) * number // parts for number in range(parts + 1)]
    return [table.slice(low, high - low) for low, high in itertools.pairwise(bounds)]


def folder_of(name: str, kind: str, tables: Callable[[], Sequence[pa.Table]]) -> Path:
    """Return the folder of that name, with a file per table; if it is missing, call `tables` and create it.

    The kinds of files are those of :func:`feed`.
    """
    folder = CACHE / "data" / name
    if folder.exists():
        return folder
    staged = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")  # another benchmark may be making it as well
    staged.mkdir(parents=True)
    made = tables()
    now = time.time()
    for number, table in enumerate(made):
        path = staged / f"part-{number}.{kind}"
        _write(table, path, kind)
        # Files are taken in the order of their times, which small ones might share.
        os.utime(path, (now - len(made) + number,) * 2)
    if folder.exists():
        shutil.rmtree(staged)
    else:
        staged.rename(folder)
    return folder


def _write(table: pa.Table, path: Path, kind: str) -> None:
    if kind in ("csv", "bare"):
        import pyarrow.csv as pacsv

        with path.open("wb") as file:
            file.write(b"" if kind == "bare" else b"key,ms,value\n")
            pacsv.write_csv(table, file, pacsv.WriteOptions(include_header=False))
    elif kind == "json":
        import polars as pl

        pl.DataFrame(table).write_ndjson(path)
    else:
        import pyarrow.parquet as pq

        pq.write_table(table, path)
