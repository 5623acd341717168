"""The parts of ``benchmarks.queue`` that need no Spark: the queue alone, pack and shards, the order across shards."""

from __future__ import annotations

import dataclasses
import heapq
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from upstream.core.feedback.reports import QueueReport
from upstream.core.rows.system_column import SYSTEM, system_array, system_field
from upstream.operators.queue.cells import Updates
from upstream.operators.queue.keys import HashedKeys, key_numbers
from upstream.operators.queue.queue import ONE_PER_KEY, Control, Policy, ShardPlan, UpdateQueue
from upstream.operators.queue.shard import QueueShard
from upstream.operators.queue.tick_planner import allot
from upstream.operators.runtime.pack import pack
from upstream.operators.state.store import DictStore

__all__ = ["Fixed", "Order", "Shards", "fixed_cost", "order", "queue_alone", "queue_row_by_row", "throughput"]

Int64s = npt.NDArray[np.int64]

COST_S = 1e-4
SHARDS = 16


def queue_alone(policy: Policy, pending: int, rows: int, budget: int) -> tuple[float, list[int]]:
    """Queue `rows` beside `pending` keys and serve `budget`; return the processor seconds and the keys served."""
    queue = UpdateQueue(policy, HashedKeys(None), page_slots=4096, stored=True)
    queue.monitor.served(1000, 1000 * COST_S)
    queue.enqueue(_updates(np.arange(pending), 0), 0)
    number_of = key_numbers([pa.chunked_array([np.arange(pending)])])
    batch = _updates(_drawn(pending, rows), pending)
    began = time.process_time()
    queue.enqueue(batch, pending + rows, drop=0.5)
    served = queue.dequeue(budget, pending + rows).cells.number
    seconds = time.process_time() - began
    order = np.argsort(number_of)
    return seconds, order[np.searchsorted(number_of, served, sorter=order)].tolist()


def queue_row_by_row(policy: str, pending: int, rows: int, budget: int) -> tuple[float, list[int]]:
    """Run the same work with a dictionary and a heap, one row at a time."""
    waiting: dict[int, tuple[int, int, int]] = {}
    heap: list[tuple[int, int, int]] = []

    def enqueue(key: int, time: int, serial: int) -> None:
        old = waiting.get(key)
        if policy == "append":
            heapq.heappush(heap, (time, serial, key))
        elif old is None or policy == "fifo":
            waiting[key] = (time, serial, time)
            heapq.heappush(heap, (time, serial, key))
        elif time >= old[2]:
            waiting[key] = (old[0], old[1], time)

    for key in range(pending):
        enqueue(key, key, key)
    batch = _drawn(pending, rows).tolist()
    began = time.process_time()
    for serial, key in enumerate(batch, pending):
        enqueue(key, serial, serial)
    served: list[int] = []
    while len(served) < budget and heap:
        place, serial, key = heapq.heappop(heap)
        if policy == "append" or waiting.get(key, (0, -1, 0))[:2] == (place, serial):
            waiting.pop(key, None)
            served.append(key)
    return time.process_time() - began, served


@dataclasses.dataclass
class Shards:
    """All shards of a queue, their state in memory, and what they reported last."""

    plan: ShardPlan
    stores: list[DictStore] = dataclasses.field(default_factory=lambda: [DictStore() for _ in range(SHARDS)])
    reports: list[QueueReport] = dataclasses.field(default_factory=list)
    ran: list[QueueShard] = dataclasses.field(default_factory=list)

    @classmethod
    def of(cls, policy: Policy) -> Shards:
        """Return shards without rows."""
        return cls(ShardPlan(key=("key",), time="ms", shards=SHARDS, policy=policy, cost_s=COST_S))

    def batch(self, rows: pa.Table, now_us: int, budget: int) -> list[pa.Table]:
        """Run one batch of all shards in turn, with a budget as the planner divides it; return their output."""
        coalesce = self.plan.policy in ONE_PER_KEY
        frames: dict[int, list[bytes]] = {}
        for packed in pack(["key"], range(SHARDS), "ms", coalesce)(iter(rows.to_batches(max_chunksize=10_000))):
            for shard, frame in zip(packed.column("slot").to_pylist(), packed.column("frame").to_pylist(), strict=True):
                frames.setdefault(shard, []).append(frame)
        places = [report.places for report in self.reports] or [[]] * SHARDS
        self.ran = [QueueShard(number, self.plan, store) for number, store in enumerate(self.stores)]
        shares = allot(budget, places, SHARDS)
        done = [
            shard.run(frames.get(number, []), control=Control(now_us, shares[number], COST_S * SHARDS).to_json())
            for number, shard in enumerate(self.ran)
        ]
        self.reports = [report for _, report in done]
        return [table for table, _ in done if table is not None]


def throughput(policy: Policy, rows: int, keys: int, budget: int, batches: int = 3) -> list[float]:
    """Return processor seconds per batch of `rows` through pack and all shards, without the first into empty shards."""
    shards, seconds = Shards.of(policy), []
    for number in range(batches + 1):
        table = _rows(_drawn(keys, rows, number), number * rows)
        began = time.process_time()
        shards.batch(table, (number + 1) * rows, budget)
        seconds.append(time.process_time() - began)
    return seconds[1:]


def disordered(
    policy: Policy, rows: int, keys: int, budget: int, behind: float, batches: int = 5
) -> tuple[list[float], float]:
    """Return processor seconds per batch of `rows`, and the share of all rows that is superseded.

    A share `behind` of the rows has times up to a batch back, and the low-watermark is two batches behind.
    """
    shards, seconds, superseded = Shards.of(policy), [], 0
    for number in range(batches + 2):
        generator = np.random.default_rng(number)
        times = np.arange(number * rows, (number + 1) * rows)
        times -= np.where(generator.random(rows) < behind, generator.integers(0, rows, rows), 0)
        table = pa.concat_tables([_rows(_drawn(keys, rows, number), number * rows, times=times), _bound(times, 2)])
        began = time.process_time()
        shards.batch(table, (number + 1) * rows, budget)
        seconds.append(time.process_time() - began)
        superseded += sum(report.superseded for report in shards.reports)
    return seconds[2:], superseded / (batches + 2) / rows


@dataclasses.dataclass(frozen=True)
class Fixed:
    """What a small batch costs.

    Attributes
    ----------
    seconds : list of float
        Processor time of each batch, all shards.
    pending : int
        Rows that waited at the end.
    state_bytes : int
        Written by the last batch.
    """

    seconds: list[float]
    pending: int
    state_bytes: int


def fixed_cost(policy: Policy, pending: int, rows: int, batches: int) -> Fixed:
    """Measure batches of `rows`, with as many served, while about `pending` keys wait."""
    shards, seconds = Shards.of(policy), []
    shards.batch(_rows(np.arange(pending), 0), pending, 0)
    now = pending
    for number in range(batches + 1):
        table = _rows(_drawn(2 * pending, rows, number), now)
        now += rows
        began = time.process_time()
        shards.batch(table, now, rows // 2)
        seconds.append(time.process_time() - began)
    written = sum(report.state_bytes for report in shards.reports)
    return Fixed(seconds[1:], sum(report.waiting for report in shards.reports), written)


@dataclasses.dataclass(frozen=True)
class Order:
    """How near service is to the globally oldest first.

    Attributes
    ----------
    served : int
    wrong_share : float
        Of the rows served, those that are not among as many oldest ones of all that waited.
    late_ms_mean, late_ms_max : float
        By how much their places are newer than the newest of those.
    queue_ms : float
        From the oldest to the newest place that waited, on average.
    """

    served: int
    wrong_share: float
    late_ms_mean: float
    late_ms_max: float
    queue_ms: float


def order(skew: float, keys: int, rows: int, budget: int, batches: int) -> Order:
    """Measure the order of service with Zipf's skew, one batch a second."""
    shards, generator = Shards.of("in-place"), np.random.default_rng(1)
    weight = np.arange(1, keys + 1) ** -skew
    total, newer, spans = 0, [np.empty(0, dtype=np.int64)], []
    for number in range(batches):
        drawn = generator.choice(keys, rows, p=weight / weight.sum())
        now = (number + 1) * 1_000_000
        table = _rows(drawn, number * rows, np.sort(generator.integers(now - 1_000_000, now, rows)))
        given = [
            system_field(table, "first_arrival").cast(pa.int64()).to_numpy()
            for table in shards.batch(table, now, budget)
        ]
        served = np.concatenate(given)
        queues: list[Any] = [shard._queue for shard in shards.ran]
        left = np.concatenate([queue.column("place", queue.locations) for queue in queues])
        every = np.sort(np.concatenate([served, left]))
        newest = every[len(served) - 1]
        if number >= batches // 4:  # the queue has to fill first
            total += len(served)
            newer.append(served[served > newest] - newest)
            spans.append((every[-1] - every[0]) / 1e3)
    late = np.concatenate(newer) / 1e3
    return Order(
        total,
        len(late) / total,
        float(late.mean()) if len(late) else 0.0,
        float(late.max(initial=0)),
        float(np.mean(spans)),
    )


def _drawn(keys: int, rows: int, seed: int = 0) -> Int64s:
    return np.random.default_rng(seed).integers(0, keys, rows)


def _updates(keys: Int64s, first: int) -> Updates:
    time = first + np.arange(len(keys))
    columns = [pa.chunked_array([keys])]
    return Updates((columns, key_numbers(columns)), time, time)


def _rows(keys: Int64s, first: int, arrival_us: Int64s | None = None, times: Int64s | None = None) -> pa.Table:
    seq = first + np.arange(len(keys))
    system = system_array(source="feed", seq=seq, arrival_us=seq if arrival_us is None else arrival_us)
    return pa.table({"key": keys, "ms": seq if times is None else times, "value": seq / 3, SYSTEM: system})


def _bound(times: Int64s, back: int) -> pa.Table:
    """Return the punctuation of a feed that is so many batches behind the greatest of the times."""
    zero = np.zeros(1, dtype=np.int64)
    at = np.array([int(times.max()) - back * len(times)])
    system = system_array(source="feed", seq=zero, arrival_us=zero, punctuation=True)
    return pa.table({"key": pa.nulls(1, pa.int64()), "ms": at, "value": pa.nulls(1, pa.float64()), SYSTEM: system})
