"""The data: four files of rows (key, ms, value), made from a seed and kept below ``benchmarks/.cache``."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa

from .environments import CACHE

__all__ = ["feed", "feed_table", "reference"]

_START_MS = 1_700_000_000_000
_DISPLACED = 0.05
_BACK_MS = 5_000
_FILES = 4
# Part of the folder's name: data of an older generator is not taken for this one's.
_VERSION = 1


def feed_table(rows: int, keys: int, seed: int = 1) -> pa.Table:
    """The rows: uniform keys, times rising by 1 ms, of which 5 % are up to 5 s too early; no two rows share key and time."""
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
    return pa.table({"key": key, "ms": _START_MS + place - back, "value": value})


def feed(rows: int, keys: int, kind: str = "csv") -> Path:
    """A folder of four files of the feed, made if it is not there.

    Parameters
    ----------
    rows, keys : int
        How many of each.
    kind : str
        ``csv``, ``bare`` (CSV without its header, for those who cannot skip one), ``json`` (lines) or ``parquet``.
    """
    folder = CACHE / "data" / f"v{_VERSION}-{rows}-{keys}-{kind}"
    if folder.exists():
        return folder
    staged = folder.with_name(folder.name + ".tmp")
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(parents=True)
    table = feed_table(rows, keys)
    for number in range(_FILES):
        low, high = rows * number // _FILES, rows * (number + 1) // _FILES
        _write(table.slice(low, high - low), staged / f"part-{number}.{kind}", kind)
    staged.rename(folder)
    return folder


def reference(rows: int, keys: int) -> pa.Table:
    """The newest row per key, in the order of the keys, by sorting; computed apart from every engine, once."""
    import pyarrow.parquet as pq

    path = CACHE / "data" / f"v{_VERSION}-{rows}-{keys}-reference.parquet"
    if not path.exists():
        table = feed_table(rows, keys)
        key = table["key"].to_numpy()
        order = np.argsort(key * (2 * rows + _BACK_MS) + (table["ms"].to_numpy() - _START_MS))
        last = np.flatnonzero(np.diff(key[order], append=-1))
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table.take(pa.array(order[last])), path.with_suffix(".tmp"))
        path.with_suffix(".tmp").rename(path)
    return pq.read_table(path)


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
