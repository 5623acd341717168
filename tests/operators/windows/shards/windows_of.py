"""Rows, batches and shards for the tests of windows, and what the results must be, window by window and row by row."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from kit.key_promises import KeyPromises

from upstream.core.feedback.reports import WindowReport
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, TIMESTAMP, system_array
from upstream.operators.shards import shard_class
from upstream.operators.state.store import DictStore
from upstream.operators.windows.kinds import SlideByTupleWindows
from upstream.operators.windows.shards.results import final_somewhere, frames_of

Row = tuple[int, int, int]
"""Key, time in microseconds, value."""
Batch = tuple[Sequence[Row], int | None]
"""Rows, and the punctuation after them."""

SCHEMA = pa.schema([("key", pa.int64()), ("time", TIMESTAMP), ("v", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])


def rows_table(rows, arrival_us, feed="feed"):
    """Rows as they come from a source."""
    n = len(rows)
    columns = [pa.array([row[at] for row in rows], pa.int64()) for at in range(3)]
    system = system_array(source=feed, seq=np.arange(n), arrival_us=np.full(n, arrival_us, dtype=np.int64))
    return pa.table([columns[0], columns[1].cast(TIMESTAMP), columns[2], system], schema=SCHEMA)


def punctuation_table(bound, arrival_us, feed="feed", key=None):
    """A punctuation row, of a feed or of one key of it; None says that it has ended."""
    one = np.zeros(1, dtype=np.int64)
    system = system_array(source=feed, seq=one, arrival_us=one + arrival_us, punctuation=True)
    time = pa.array([bound], pa.int64()).cast(TIMESTAMP)
    return pa.table([pa.array([key], pa.int64()), time, pa.nulls(1, pa.int64()), system], schema=SCHEMA)


class Run:
    """A window operator over batches, each through `pack` and the shards as Spark would call them.

    Results and punctuation, of all keys and of single ones, are as they came, with the number of their batch.
    """

    def __init__(self, plan, stores=None):
        self.plan = plan
        self.stores = stores or [DictStore() for _ in range(plan.shards)]
        self.results: list[dict[str, Any]] = []
        self.punctuation: list[dict[str, Any]] = []
        self.of_keys: list[dict[str, Any]] = []
        self.promises = KeyPromises()
        self.reports: list[WindowReport] = []
        self.late: list[pa.Table] = []
        self._final: int | None = None
        self._batch = 0
        self._last: dict[int, WindowReport] = {}

    def tables(self, *tables, tasks=1):
        """One batch, its rows dealt out to some tasks."""
        self._batch += 1
        whole = pa.concat_tables(tables)
        parts = [whole.take(pa.array(np.arange(task, whole.num_rows, tasks))) for task in range(tasks)]
        frames: dict[int, list[bytes]] = defaultdict(list)
        for part in parts:
            packed = frames_of(part, self.plan, range(self.plan.shards), self._final)
            for shard, frame in zip(packed.column(0).to_pylist(), packed.column(1).to_pylist(), strict=True):
                frames[shard].append(frame)
        self._shards(frames)
        if frames:
            self._final = final_somewhere(self.reports[-len(frames) :])

    def forget(self):
        """Lose the reports, so that `pack` does not know which windows have closed."""
        self._final = None

    def ticks(self):
        """Batches without rows, while shards say that results may leave."""
        while due := [number for number, report in self._last.items() if report.due]:
            self._batch += 1
            self._shards({number: [] for number in due})
        return self

    def waiting(self):
        """How many results have not left."""
        return sum(report.waiting for report in self._last.values())

    def _shards(self, frames):
        for number, mine in sorted(frames.items()):
            shard = shard_class(self.plan)(number, self.plan, self.stores[number])
            result, report = shard.run(mine, batch_id=self._batch)
            self.reports.append(report)
            self._last[number] = report
            if shard.late is not None:
                self.late.append(shard.late)
            self.promises.check(result, self.plan.key, "window_time", number)
            for row in [] if result is None else result.to_pylist():
                whole = all(row[name] is None for name in self.plan.key)
                kind = self.results if not row[SYSTEM]["punctuation"] else self.punctuation if whole else self.of_keys
                kind.append({"batch": self._batch, **row})

    def batches(self, batches, tasks=1):
        """Several batches, one after the other."""
        for rows, bound in batches:
            tables = [rows_table(rows, self._batch + 1)]
            if bound is not None:
                tables.append(punctuation_table(bound, self._batch + 1))
            self.tables(*tables, tasks=tasks)
        return self


def latest_of(windows):
    """The greatest window-id of each key."""
    return dict(sorted(windows))


def agree(got, wanted, emit):
    """All windows that are wanted; if lazy, some of them, and the latest of each key."""
    if emit.startswith("all"):
        assert got == wanted
    else:
        assert got.items() <= wanted.items()
        assert latest_of(got) == latest_of(wanted)


def agree_and_increase(run, wanted):
    """Each result is that of its whole window, later than the one before of its key; the last one is the latest."""
    seen: dict[int, int] = {}
    for each in run.results:
        values = wanted[each["key"], each["window_id"]]
        assert (each["n"], each["total"]) == (len(values), sum(values))
        assert each["window_id"] > seen.get(each["key"], -(10**9))
        seen[each["key"]] = each["window_id"]
    assert seen == latest_of(wanted)


def marked(rows, which):
    """The rows, one of them a tombstone."""
    field = SCHEMA.field(SYSTEM)
    marks = [{**mark, "deleted": at == which} for at, mark in enumerate(rows.column(SYSTEM).to_pylist())]
    return rows.set_column(3, field, pa.array(marks, field.type))


def in_windows(windows, rows, bound):
    """The values in each key's windows that are complete at a bound: row by row, by `wids`."""
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    complete = int(windows.last_complete(bound))
    opened = {(key, time) for key, time, _ in rows}
    by_row = isinstance(windows, SlideByTupleWindows)
    for key, time, value in rows:
        first, last = windows.wids(time)
        for wid in range(int(first), min(int(last), complete) + 1):
            if not by_row or (key, wid) in opened:
                found[key, wid].append(value)
    return dict(found)
