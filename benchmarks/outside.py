"""Staleness as a reader of the table would see it: from the table's commits and the feed's arrivals, not from anybody's
counters.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from upstream.conf.options import parse_options
from upstream.datasource.connectors.synthetic.connector import SyntheticOptions
from upstream.datasource.connectors.synthetic.stream import synthetic_arrivals

__all__ = ["Ages", "Seen", "ages", "arrivals", "seen"]

Int64s = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Seen:
    """Staleness over all keys and all of the time looked at, in seconds, and how much was shown.

    Attributes
    ----------
    mean, p50, p99, max : float
        Over keys and instants.
    results_per_second : float
        Changes of a key's row.
    commits : int
    """

    mean: float
    p50: float
    p99: float
    max: float
    results_per_second: float
    commits: int


def arrivals(options: dict[str, Any], checkpoint: Path, until_us: int) -> tuple[Int64s, Int64s]:
    """Return keys and arrivals (microseconds) of all rows up to a time, by the feed's own seed."""
    origin = began_us(checkpoint)
    [asked] = parse_options(options, [SyntheticOptions])
    recipe = asked.recipe()
    at, key = synthetic_arrivals(recipe, until_us - origin)
    return key, at + origin


def began_us(checkpoint: Path) -> int:
    """Return when the feed began. Each of the query's offsets has it, and Spark keeps the last hundred."""
    for path in (checkpoint / "offsets").glob("[0-9]*"):
        if found := re.search(r'"origin_us": ?(\d+)', path.read_text()):
            return int(found.group(1))
    raise SystemExit(f"no offset in {checkpoint} says when the feed began")


def seen(table: Path, checkpoint: Path, options: dict[str, Any], warm_s: float, until_s: float) -> Seen:
    """Return what the table showed from `warm_s` to `until_s` seconds after the feed began.

    Staleness of a key at an instant: 0 if its row is the newest that has come, else the age of the first row that came
    after it. Sampled ten times a second, for all keys.
    """
    from deltalake import DeltaTable

    origin = began_us(checkpoint)
    key, at = arrivals(options, checkpoint, origin + int(until_s * 1e6))
    order = np.lexsort((at, key))
    key, at = key[order], at[order]
    keys = int(options["keys"]) if "keys" in options else len(options["rates"].split(","))
    # One number for (key, time), so that one search finds the first row of a key after an instant.
    span = int(at.max()) + 2
    joined = key * (span - origin) + (at - origin)
    delta = DeltaTable(str(table))
    versions = sorted(_commit_times(table).items())
    shown = np.full(keys, origin - 1, dtype=np.int64)
    samples: list[npt.NDArray[np.float64]] = []
    results, commits = 0, 0
    next_us = origin + int(warm_s * 1e6)
    end_us = origin + int(until_s * 1e6)
    since = np.full(keys, end_us, dtype=np.int64)

    def oldest_pending() -> Int64s:
        place = np.searchsorted(joined, np.arange(keys) * (span - origin) + (shown - origin), side="right")
        place = np.minimum(place, len(joined) - 1)
        later = (key[place] == np.arange(keys)) & (at[place] > shown)
        return np.where(later, at[place], end_us)

    since = oldest_pending()
    for version, committed_us in [*versions, (None, end_us)]:
        stop = min(committed_us, end_us)
        while next_us < stop:
            samples.append(np.maximum(next_us - since, 0) / 1e6)
            next_us += 100_000
        if version is None or committed_us >= end_us:
            break
        delta.load_as_version(version)
        rows = delta.to_pyarrow_table(columns=["key", "time"])
        if rows.num_rows == 0:
            continue
        number = rows.column("key").to_numpy()
        time = rows.column("time").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy()
        changed = time > shown[number]
        if committed_us >= origin + warm_s * 1e6:
            results += int(changed.sum())
            commits += 1
        shown[number] = np.maximum(shown[number], time)
        since = oldest_pending()
    every = np.concatenate(samples)
    p50, p99 = np.percentile(every, [50, 99])
    seconds = until_s - warm_s
    return Seen(float(every.mean()), float(p50), float(p99), float(every.max()), results / seconds, commits)


@dataclasses.dataclass(frozen=True)
class Ages:
    """The age of a table's rows, the mean over keys of now less the time of the row, in seconds.

    Attributes
    ----------
    mean, max : float
        Over all of the time looked at.
    halves : (float, float)
        The means over its halves: an age that climbs shows in them.
    commits : int
    """

    mean: float
    max: float
    halves: tuple[float, float]
    commits: int


def ages(table: Path, checkpoint: Path, warm_s: float, until_s: float) -> Ages:
    """Return the ages of a table's rows from `warm_s` to `until_s` seconds after the feed began, by its column time."""
    from deltalake import DeltaTable

    origin = began_us(checkpoint)
    begin, end = warm_s * 1e6, until_s * 1e6
    delta = DeltaTable(str(table))
    shown = [(0.0, 0.0)]  # since when rows of which mean time were shown: none is as old as the feed
    for version, committed_us in sorted(_commit_times(table).items()):
        delta.load_as_version(version)
        times = delta.to_pyarrow_table(columns=["time"]).column("time").cast(pa.timestamp("us", tz="UTC"))
        if len(times):
            shown.append((float(committed_us - origin), float((times.cast(pa.int64()).to_numpy() - origin).mean())))
    since, mean = (np.array(each) for each in zip(*shown, strict=True))
    until = np.append(since[1:], np.inf)

    def mean_age(first: float, last: float) -> float:
        low, high = np.clip(since, first, last), np.clip(until, first, last)
        return float(((high - low) * ((low + high) / 2 - mean)).sum() / (last - first) / 1e6)

    low, high = np.clip(since, begin, end), np.clip(until, begin, end)
    oldest = (high - mean)[high > low].max() / 1e6
    middle = (begin + end) / 2
    commits = int(((since >= begin) & (since < end)).sum())
    return Ages(mean_age(begin, end), float(oldest), (mean_age(begin, middle), mean_age(middle, end)), commits)


def _commit_times(table: Path) -> dict[int, int]:
    """Return when each version became visible, in microseconds: the log file's own time, which no writer sets."""
    found: dict[int, int] = {}
    for entry in (table / "_delta_log").glob("*.json"):
        if entry.stem.isdigit() and any("commitInfo" in json.loads(line) for line in entry.read_text().splitlines()):
            found[int(entry.stem)] = entry.stat().st_mtime_ns // 1000
    return found
