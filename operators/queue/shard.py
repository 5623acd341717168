"""One shard of an update queue, which Spark's stateful processor, the tests and the benchmarks drive."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...conf import units
from ...conf.errors import CheckpointError, OptionError
from ...conf.options import word_argument
from ...core.feedback.ages import Ages
from ...core.feedback.checkpoint_layout import queue_folder
from ...core.feedback.reports import QueueReport, RowSample, read_reports
from ...core.rows.columns import covers
from ...core.rows.exact_integers import LOWEST, Int64s
from ...core.rows.frames import conflicts_in, from_frame, to_frame
from ...core.rows.sort_keys import ordered
from ...core.rows.system_column import TIMESTAMP, punctuation_mask, standing_for, system_field
from ...core.watermark.bounds import bounds_in
from ..runtime.applied_times import AppliedTimes, TimedKeys, behind
from ..runtime.feeds import ALL_FEEDS, ENDED, FeedBounds, KeyBounds, KeyShare, hear_all, punctuation_at
from ..runtime.pack import INTERVAL, WEIGHT, by_arrival, differing, micros
from ..runtime.shard import Shard, ShardInput
from ..state.pages import RowPages
from ..state.runs import RunFiles
from ..state.store import Store
from .cells import Updates
from .keys import HashedKeys, key_numbers, numbers_tell
from .monitor import StatisticsMonitor
from .queue import ALL, LAST, Control, EnqueueResult, ShardPlan, UpdateQueue, none
from .state import QueueState, queue_figures


def stalest_keys(
    checkpoint: str | os.PathLike[str],
    k: int = 10,
    *,
    by: Literal["age", "updates"] = "age",
    queue: int = 0,
    now_us: int | None = None,
) -> pa.Table:
    """Return the keys that have waited longest in a query's queue, as its last batch left them, the stalest first.

    Parameters
    ----------
    checkpoint
        The query's, which may be running. Its queue must have ``stalest_keys=`` of at least `k`.
    k
        How many keys; at least 1.
    by
        ``updates``: the keys with the most updates that wait, the hottest first.
    queue
        Which of the query's queues, counted from 0 in the order in which rows pass them.
    now_us
        The clock, in microseconds since the epoch; the real one unless given.

    Returns
    -------
    pyarrow.Table
        The key's columns, ``first_arrival`` of its oldest update, ``age_s`` since then, and ``covered``, the updates
        that wait.

    Raises
    ------
    OptionError
        The queue reports fewer than `k` keys, or there is none at this checkpoint.

    Examples
    --------
    >>> fresh = stream.queue(stalest_keys=10, shards=2).write("fresh", checkpoint="fresh_cp")
    >>> query = fresh.trigger(availableNow=True).start()
    >>> query.awaitTermination()
    >>> us.stalest_keys("fresh_cp", 10).column_names
    ['vehicle_id', 'first_arrival', 'age_s', 'covered']
    """
    word_argument("by", by, Literal["age", "updates"])
    tables, limit = keys_in_reports(checkpoint, queue)
    if not 1 <= k <= limit:
        raise OptionError(
            f"k={k}, and each shard of the queue reports {limit} keys",
            expected="at least 1, and no more than the queue reports",
            hint=f"give .queue(stalest_keys={max(k, 1)}, …); it takes effect with the next start of the query",
        )
    found = pa.concat_tables(tables).replace_schema_metadata(None)
    # By number: a column of the key may have the same name.
    first = found.num_columns - 2
    order = pc.sort_indices(found.column(first) if by == "age" else pc.negate(found.column(first + 1)))
    found = found.take(order[:k])
    now = units.now_us() if now_us is None else now_us
    age = np.maximum(now - found.column(first).cast(pa.int64()).to_numpy(), 0) / 1e6
    return found.add_column(first + 1, "age_s", pa.array(age))


def keys_in_reports(checkpoint: str | os.PathLike[str], queue: int = 0) -> tuple[list[pa.Table], int]:
    """Return the keys that the shards of a queue report, and how many each reports at least."""
    folder = queue_folder(os.fspath(checkpoint), queue)
    reports = read_reports(folder, QueueReport)
    if not reports:
        raise OptionError(
            f"no queue has reported to {folder}",
            expected="the checkpoint of a query with UpdateStream.queue(…) that has run a batch",
        )
    tables = [from_frame(base64.b64decode(each.stalest_keys)) for each in reports if each.stalest_keys is not None]
    silent = not tables or any(each.waiting and each.stalest_keys is None for each in reports)
    return tables, 0 if silent else min(int(table.schema.metadata[b"k"]) for table in tables)


def stalest_in_shard(queue: UpdateQueue, rows: RowPages, key: Sequence[str], k: int) -> str:
    """Return the `k` stalest and the `k` hottest keys of a shard for its report. It reads only their pages."""
    waiting = queue.locations
    cells = queue.cells(waiting)
    order = np.argsort(cells.first_arrival, kind="stable")
    # Where a policy keeps several rows of a key, only its oldest counts.
    _, first, key_of = np.unique(cells.number[order], return_index=True, return_inverse=True)
    updates = np.bincount(key_of, cells.covered[order], len(first)).astype(np.int64)
    some = np.union1d(np.argsort(first)[:k], np.lexsort((first, -updates))[:k])
    chosen: Int64s = order[first[some]]
    table = rows.take(waiting[chosen], list(key)).select(list(key))
    table = table.append_column("first_arrival", pa.array(cells.first_arrival[chosen]).cast(TIMESTAMP))
    table = table.append_column("covered", pa.array(updates[some]))
    return base64.b64encode(to_frame(table.replace_schema_metadata({"k": str(k)}))).decode()


class QueueShard(Shard[ShardPlan, QueueReport]):
    """A shard of an update queue: frames in, the rows to process next out, all else in pages of state."""

    began = "the queue's state in this checkpoint was written"
    same = "key, time and number of shards"
    report = QueueReport

    def __init__(self, number: int, plan: ShardPlan, store: Store, files: RunFiles | None = None) -> None:
        super().__init__(number, plan, store, files)
        self._feeds = FeedBounds(self._head)
        self._shard = KeyShare(number, plan.shards, plan.key)
        self._keys = KeyBounds(self._store, "single", plan.key, int(self._head.get("single", 0)), self._shard)
        self._queue: UpdateQueue | None = None
        self._rows: RowPages | None = None
        self._applied: AppliedTimes | None = None
        self._exact = False
        self._budget: int | None = None
        self._samples: list[int] = self._head.get("samples", [0, 0])  # versions: the last one asked for, and done
        self._kept: Mapping[str, Any] = self._head.get("kept", {})
        if not self._head and (value := self._store.get("kept", 0)) is not None:
            self._kept = json.loads(value)

    def _read_head(self) -> dict[str, Any]:
        self._state = QueueState(self._store, self._plan.page_slots)
        return self._state.head

    def step(self, given: ShardInput) -> tuple[pa.Table | None, dict[str, Any]]:
        """Enqueue rows, keep those that wait, and return those to process in order, then the shard's punctuation."""
        control = None if given.control is None else Control.from_json(given.control)
        if control and control.kept is not None:
            self._kept = control.kept
        if control and control.sample is not None:
            self._samples[0] = control.sample
        tables = [from_frame(frame) for frame in given.left]
        schema = tables[0].schema if tables else self._state.schema
        if schema is None:  # a tick for a shard that has never seen a row
            self._now_us = control.now_us if control else 0
            if control and control.kept is not None:
                self._store.put("kept", 0, json.dumps(control.kept).encode())
            return None, self._figures(EnqueueResult.nothing(), 0, Ages(), 0)
        schema = schema.remove_metadata()
        arrived = pa.concat_tables([table.cast(schema) for table in tables]) if tables else schema.empty_table()
        mark = punctuation_mask(arrived)
        punctuation = arrived.filter(mark)
        rows = by_arrival(arrived.filter(pc.invert(mark))) if punctuation.num_rows else by_arrival(arrived)
        queue, pages = self._open(schema)
        arrival = micros(rows, "arrival")
        # A clock that jumps back stands still.
        now_us = self._now_us = max(control.now_us if control else int(arrival.max(initial=0)), self._now_us)
        if control and control.cost_s is not None:
            queue.monitor.served(1000, control.cost_s * 1000)
        rows, updates, older = self._newer(rows, self._updates(rows, arrival), queue)
        took = queue.enqueue(updates, now_us, drop=control.drop if control else self._kept.get("drop", 0.0))
        conflicts = sum(map(conflicts_in, tables))
        conflicts += int(differing(rows, took.batch_ties[:, 0], rows, took.batch_ties[:, 1]).sum())
        conflicts += _conflicts(rows.take(pa.array(took.ties[:, 0])), pages.take(took.ties[:, 1]))
        pages.put(took.locations, rows.take(pa.array(took.rows)))
        self._budget = control.budget if control else self._share()
        out = queue.dequeue(self._budget, now_us)
        if self._plan.time is not None:
            conflicts += _conflicts(pages.take(out.ties[:, 0]), pages.take(out.ties[:, 1]))
        served = standing_for(pages.take(out.locations), out.cells.first_arrival, out.cells.covered)
        if self._samples[0] > self._samples[1] and served.num_rows:
            self._samples[1] = self._samples[0]
            share = RowSample.share(self._number, self._plan.shards)
            self.sample = RowSample.of(self._number, self._samples[0], given.batch_id, served, share)
        self._hear(punctuation)
        if self._applied is not None and self._feeds.bounds:  # without punctuation nothing would be forgotten
            bound = self._feeds.low_watermark
            left = TimedKeys(self._apart(served), out.cells.number, out.cells.time)
            self._applied.add(left, LOWEST if bound is None else bound, distinct=queue.one_per_key)
        promises = self._punctuation(queue, pages, schema, now_us)
        result = served if promises.num_rows == 0 else pa.concat_tables([served, promises], promote_options="default")
        took = dataclasses.replace(
            took,
            superseded=took.superseded + out.superseded + int(older.sum()),
            older=took.older + len(older),
            outdated=took.outdated + int(older.sum()),
        )
        self._write(queue, pages, schema)
        ages = Ages.of(now_us - out.cells.first_arrival)
        return result, self._figures(took, arrival.size, ages, conflicts)

    def _newer(self, rows: pa.Table, updates: Updates, queue: UpdateQueue) -> tuple[pa.Table, Updates, Int64s]:
        """Remove rows older than one of their key, applied or leaving now; return the updates that each represents."""
        if self._applied is None or updates.time is None or updates.covered is None:
            return rows, updates, none()
        keys = TimedKeys(self._apart(rows), updates.numbers, updates.time)
        older = self._applied.older(keys)
        if not queue.one_per_key:  # each row that stays is served, in the order of arrival
            older |= behind(keys)
        if not older.any():
            return rows, updates, none()
        return rows.filter(pa.array(~older)), updates.take(~older), updates.covered[older]

    def _apart(self, rows: pa.Table) -> list[pa.ChunkedArray]:
        """Return the columns that distinguish keys with equal numbers; none if equal numbers mean equal keys."""
        return [] if self._exact else [rows.column(name) for name in self._plan.key]

    def _share(self) -> int | None:
        """Return the budget of a batch without a control: the last one, or an even share."""
        kept = self._kept.get("budget")
        if isinstance(kept, int):
            return kept
        if kept == ALL:
            return None
        if (self._plan.auto or kept == LAST) and "budget" in self._head:
            return int(self._head["budget"])
        return None if self._plan.budget is None else max(1, -(-self._plan.budget // self._plan.shards))

    def _open(self, schema: pa.Schema) -> tuple[UpdateQueue, RowPages]:
        plan = self._plan
        slots, keys = self._state.slots, list(plan.key)
        rows = self._rows = RowPages(self._store, slots, schema)
        self._exact = numbers_tell([schema.field(name).type for name in keys])
        index = HashedKeys(None if self._exact else lambda locations: rows.take(locations, keys).columns)
        # All shards share the machine.
        pinned = None if plan.cost_s is None else plan.cost_s * plan.shards
        cost_s = self._kept.get("cost_s", pinned)
        monitor = StatisticsMonitor(half_life_s=plan.half_life_s, cost_s=cost_s)
        seed = plan.seed + self._number
        queue = UpdateQueue(plan.policy, index, monitor=monitor, page_slots=slots, seed=seed, stored=True)
        self._queue = queue
        if plan.time is not None:
            key = pa.schema([] if self._exact else [schema.field(name) for name in keys])
            applied = AppliedTimes(self._store, key, self._head.get("applied", {}))
            if plan.policy in ("append", "shed"):  # they give older rows too
                applied.clear()
            else:
                self._applied = applied
        if self._head:
            self._fit(schema)
            queue.restore(self._state.queue())
        return queue, rows

    def _fit(self, schema: pa.Schema) -> None:
        stored = self._state.schema
        if self._state.waiting and stored is not None and not covers(schema, stored):
            raise CheckpointError(
                "rows with other columns wait in this checkpoint's queue: "
                + ", ".join(f"{field.name} {field.type}" for field in stored),
                expected="the same columns, or more; now there are "
                + ", ".join(f"{field.name} {field.type}" for field in schema),
                hint="run the earlier query until its queue is empty, or start with a new checkpointLocation",
            )

    def _updates(self, rows: pa.Table, arrival: Int64s) -> Updates:
        keys = [rows.column(name) for name in self._plan.key]
        names = rows.column_names
        return Updates(
            (keys, key_numbers(keys)),
            None if self._plan.time is None else ordered(rows.column(self._plan.time)),
            arrival,
            micros(rows, "first_arrival", arrival),
            _field(rows, "covered", np.int64(1)),
            rows.column(WEIGHT).to_numpy().astype(np.float64) if WEIGHT in names else None,
            rows.column(INTERVAL).to_numpy().astype(np.int64) if INTERVAL in names else None,
        )

    def _hear(self, rows: pa.Table) -> None:
        name = self._plan.time
        if name is None or not rows.num_rows:
            return
        hear_all(rows, bounds_in(rows.column(name), ordered), self._plan.key, self._feeds, self._keys)

    def _punctuation(self, queue: UpdateQueue, pages: RowPages, schema: pa.Schema, now_us: int) -> pa.Table:
        """Return new punctuation by input partition, then by key: none is later than a row that waits here for it."""
        name = self._plan.time
        if name is None:
            return schema.empty_table()
        waiting = queue.locations
        limit = int(queue.column("time", waiting).min()) if len(waiting) else ENDED
        due = self._feeds.due(limit)
        found: list[pa.Table] = []
        if due:
            feeds = [f"{feed}/{self._number}" for feed, _ in due]
            found.append(punctuation_at(schema, name, feeds, [at for _, at in due], now_us))
        bound = self._feeds.low_watermark
        promised = min(limit, LOWEST if bound is None else bound)
        if len(self._keys):
            # A key is known until the punctuation of all passes its own: rows that wait hold that back.
            self._keys.raised(self._feeds.bounds, floor=promised)
        if len(self._keys):
            found.append(self._of_keys(queue, pages, schema, name, promised, now_us))
        return pa.concat_tables(found) if found else schema.empty_table()

    def _of_keys(
        self, queue: UpdateQueue, pages: RowPages, schema: pa.Schema, time: str, promised: int, now_us: int
    ) -> pa.Table:
        """Return the punctuation of single keys that is later than that of all keys."""
        keys, at = self._keys.entries
        waiting = queue.locations
        if not any(column.null_count for column in keys.columns):
            waiting = waiting[np.isin(queue.column("number", waiting), key_numbers(keys.columns))]
        if len(waiting):
            columns = pages.take(waiting, list(self._plan.key)).columns
            at = np.minimum(at, self._keys.least(columns, queue.column("time", waiting)))
        due = self._keys.due(at, promised)
        keys, at = keys.take(pa.array(due)), at[due]
        alone = self._shard.determined(keys)
        # For keys that other shards have too, this punctuation is only of its own part of each input partition.
        parts = [(ALL_FEEDS, alone), *((f"{feed}/{self._number}", ~alone) for feed in self._feeds.bounds)]
        found: list[pa.Table] = []
        for feed, which in parts:
            some = keys.filter(pa.array(which))
            found.append(punctuation_at(schema, time, [feed] * some.num_rows, at[which].tolist(), now_us, some))
        return pa.concat_tables(found)

    def _write(self, queue: UpdateQueue, pages: RowPages, schema: pa.Schema) -> None:
        more: dict[str, Any] = {"now_us": self._now_us, "budget": self._budget or 1, "single": self._keys.save()}
        more |= self._feeds.to_json() | ({"kept": self._kept} if self._kept else {})
        more |= {"samples": self._samples} if self._samples[0] else {}
        if self._applied is not None:
            more["applied"] = self._applied.to_json()
        gone = self._state.save(queue, schema, self._plan, more)
        pages.save(np.flatnonzero(queue.pages.held), gone)

    def _save(self) -> None:
        """Do nothing: :meth:`step` writes the head with the queue's cells."""

    def _figures(self, took: EnqueueResult, arrived: int, served: Ages, conflicts: int) -> dict[str, Any]:
        queue, rows = self._queue, self._rows
        stalest_keys = None
        if queue is not None and rows is not None and self._plan.stalest_keys:
            stalest_keys = stalest_in_shard(queue, rows, self._plan.key, self._plan.stalest_keys)
        return {
            **queue_figures(queue, took, arrived, served),
            "conflicts": conflicts,
            "pages_read": 0 if rows is None else rows.pages_read,
            "pages_written": 0 if rows is None else rows.pages_written,
            "stalest_keys": stalest_keys,
        }


def _field(rows: pa.Table, name: str, default: np.int64) -> Int64s:
    return pc.fill_null(system_field(rows, name), int(default)).to_numpy().astype(np.int64, copy=False)


def _conflicts(rows: pa.Table, others: pa.Table) -> int:
    every = np.arange(len(rows))
    return int(differing(rows, every, others, every).sum())
