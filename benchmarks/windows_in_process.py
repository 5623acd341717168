"""The window operator without Spark: ``pack`` and shards over state in memory, a backlog at once and second by second.

``python -m benchmarks.windows_in_process``: rows per second of processor time for a backlog, and what one more second
costs a window that has been running, for RANGE / SLIDE from 1 to 600 and for aggregates that can and cannot be
retracted. What Spark adds is in ``benchmarks.windows``.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import time
from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa

from upstream.core.feedback.reports import WindowReport
from upstream.core.rows.frames import ROWS_AT_ONCE
from upstream.core.rows.system_column import TIMESTAMP
from upstream.operators import aggregates as agg
from upstream.operators.aggregates.parts import Aggregate
from upstream.operators.runtime.feeds import punctuation_rows
from upstream.operators.state.store import DictStore
from upstream.operators.windows.emission import Emit
from upstream.operators.windows.kinds import SlidingWindows
from upstream.operators.windows.shards.plan import WindowPlan
from upstream.operators.windows.shards.results import frames_of
from upstream.operators.windows.shards.shard import WindowShard

from .harness import arguments, machine
from .window_query import SCHEMA, rows_table

SHARDS = 16
SECOND = 1_000_000
DELAY_S = 5

RETRACTABLE: dict[str, Aggregate] = {"n": agg.count(), "total": agg.sum_("v")}
OTHERS: dict[str, Aggregate] = {**RETRACTABLE, "most": agg.max_("v")}


@dataclasses.dataclass
class Measure:
    """What one batch cost, in seconds of processor time, and what the shards say of it."""

    pack_s: float
    shards_s: float
    reports: list[WindowReport]

    def total(self, name: str) -> int:
        """Return the sum of a figure over all shards."""
        return sum(getattr(report, name) for report in self.reports)


class Shards:
    """All shards of a window operator."""

    def __init__(
        self, range_s: int, slide_s: int, emit: Emit = "lazy", aggregates: dict[str, Aggregate] | None = None
    ) -> None:
        windows = SlidingWindows(range_s * SECOND, slide_s * SECOND)
        given = aggregates or RETRACTABLE
        self._plan = WindowPlan(("key",), "time", None, "UTC", windows, given, emit, "paned", 0, SHARDS, schema=SCHEMA)
        self._stores = [DictStore() for _ in range(SHARDS)]
        self._batch = 0

    def take(self, rows: pa.Table) -> Measure:
        """Run one batch."""
        self._batch += 1
        frames: dict[int, list[Any]] = defaultdict(list)
        began = time.process_time()
        for start in range(0, rows.num_rows, ROWS_AT_ONCE):
            packed = frames_of(rows.slice(start, ROWS_AT_ONCE), self._plan, range(SHARDS), None)
            for shard, frame in zip(packed.column(0).to_pylist(), packed.column(1), strict=True):
                frames[shard].append(frame.as_buffer())
        between = time.process_time()
        reports: list[WindowReport] = []
        for number, mine in frames.items():
            reports.append(WindowShard(number, self._plan, self._stores[number]).run(mine, batch_id=self._batch)[1])
        return Measure(between - began, time.process_time() - between, reports)


class Feed:
    """Rows of a second or more, uniform over keys, and punctuation some seconds behind."""

    def __init__(self, keys: int, rows_per_second: int) -> None:
        self._keys = keys
        self._rate = rows_per_second
        self._random = np.random.default_rng(1)

    def rows(self, first_s: int, last_s: int) -> pa.Table:
        """Return the rows of ``first_s <= time < last_s``, and their punctuation."""
        n = (last_s - first_s) * self._rate
        at = np.sort(self._random.integers(first_s * SECOND, last_s * SECOND, n))
        keys, values = (self._random.integers(0, each, n) for each in (self._keys, 1000))
        bound = pa.array([(last_s - DELAY_S) * SECOND]).cast(TIMESTAMP)
        punctuation = punctuation_rows(SCHEMA, ["feed"], last_s * SECOND, time=bound).cast(SCHEMA)
        return pa.concat_tables([rows_table(keys, at, values), punctuation])


def backlog(
    name: str, range_s: int, slide_s: int, emit: Emit, keys: int, rows: int, seconds: int = 480
) -> dict[str, Any]:
    """Measure a backlog in four batches."""
    shards, feed = Shards(range_s, slide_s, emit), Feed(keys, rows // seconds)
    batches = [feed.rows(at, at + seconds // 4) for at in range(0, seconds, seconds // 4)]
    done = [shards.take(batch) for batch in batches]
    pack, rest = (sum(getattr(each, part) for each in done) for part in ("pack_s", "shards_s"))
    taken = sum(batch.num_rows for batch in batches)
    return {
        "work": name,
        "keys": keys,
        "pack_m": taken / pack / 1e6,
        "shards_m": taken / rest / 1e6,
        "both_m": taken / (pack + rest) / 1e6,
        "results": sum(each.total("results") for each in done),
    }


def steady(
    range_s: int, slide_s: int, keys: int, rate: int, batches: int, aggregates: dict[str, Aggregate]
) -> dict[str, Any]:
    """Measure a batch of one SLIDE once the window is full: medians."""
    shards, feed = Shards(range_s, slide_s, "lazy", aggregates), Feed(keys, rate)
    step = max(range_s // 10 // slide_s, 1) * slide_s
    full = -(-(range_s + DELAY_S) // step) * step
    for at in range(0, full, step):
        shards.take(feed.rows(at, at + step))
    done = [shards.take(feed.rows(at, at + slide_s)) for at in range(full, full + batches * slide_s, slide_s)]
    return {
        "range_s": range_s,
        "slide_s": slide_s,
        "batch_rows": slide_s * rate,
        "ms": statistics.median(1e3 * (each.pack_s + each.shards_s) for each in done),
        "results": statistics.median(each.total("results") for each in done),
        "entries": done[-1].total("entries"),
        "read": statistics.fmean(each.total("runs_read") for each in done),
        "written_mb": statistics.fmean(each.total("state_bytes") for each in done) / 2**20,
    }


def main() -> None:
    """Print both tables."""
    parser = arguments(__doc__ or "")
    given = parser.parse_args()
    print(json.dumps(machine()))
    keys, rows = (10_000, 200_000) if given.quick else (100_000, 5_000_000)
    print(f"\na backlog of {rows:,} rows over 480 s, four batches, {SHARDS} shards; M rows/s of processor time")
    print("  work                                          keys     pack   shards     both    results")
    works: list[tuple[str, int, int, Emit, int]] = [
        ("tumbling 60 s, latest", 60, 60, "lazy", keys),
        ("sliding 10 min by 1 min, every result", 600, 60, "all", keys),
        ("sliding 10 min by 1 s, latest", 600, 1, "lazy", keys),
        ("sliding 10 min by 1 s, every result", 600, 1, "all", keys // 100),
    ]
    found: list[dict[str, Any]] = []
    for name, range_s, slide_s, emit, some in works:
        each = backlog(name, range_s, slide_s, emit, some, rows)
        found.append(each)
        print(
            f"  {each['work']:40} {each['keys']:9,d} {each['pack_m']:8.2f} {each['shards_m']:8.2f} "
            f"{each['both_m']:8.2f} {each['results']:10,d}",
            flush=True,
        )
    rate, batches = (1_000, 5) if given.quick else (10_000, 20)
    print(f"\none more SLIDE once the window is full, {keys:,} keys, {rate:,} rows a second; a result for each key")
    print("  aggregates          RANGE s  SLIDE s     rows       ms   results    entries  runs read  written MB")
    for label, aggregates in (("count, sum", RETRACTABLE), ("count, sum, max", OTHERS)):
        for range_s in (60, 600) if given.quick or aggregates is OTHERS else (60, 300, 600, 1200):
            each = {"aggregates": label, **steady(range_s, 1, keys, rate, batches, aggregates)}
            found.append(each)
            print(
                f"  {label:18} {each['range_s']:8,d} {each['slide_s']:8,d} {each['batch_rows']:8,d} {each['ms']:8.0f} "
                f"{each['results']:9,.0f} {each['entries']:10,d} {each['read']:10.0f} {each['written_mb']:11.1f}",
                flush=True,
            )
    if given.json:
        given.json.write_text(json.dumps({"machine": machine(), "rows": found}, indent=1))


if __name__ == "__main__":
    main()
