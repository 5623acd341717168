"""Joins without Spark: packing and shards over state in memory, in processor time.

What Spark adds is in the part ``peers`` of ``benchmarks.joins``; here it would hide how the join itself grows.
"""

from __future__ import annotations

import dataclasses
import time
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from upstream.core.feedback.reports import JoinReport
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, punctuation_mask, system_array
from upstream.operators.joins.band import SIDES, IntervalBand
from upstream.operators.joins.plan import JoinPlan, JoinSide
from upstream.operators.joins.shard import JoinShard, join_pack
from upstream.operators.runtime.feeds import punctuation_rows
from upstream.operators.state.store import DictStore

__all__ = ["Cost", "JoinShards"]

Int64s = npt.NDArray[np.int64]

_COLUMNS = ("key", "ms", "id", "value")
_SCHEMA = pa.schema([*((name, pa.int64()) for name in _COLUMNS), pa.field(SYSTEM, SYSTEM_TYPE)])
_ROWS_AT_ONCE = 100_000  # as the source hands them on


@dataclasses.dataclass(frozen=True)
class Cost:
    """What batches have cost, in seconds of processor time.

    Attributes
    ----------
    pack_s : float
        To divide the rows among the shards.
    shard_s : sequence of float
        Of each shard.
    """

    pack_s: float
    shard_s: Sequence[float]

    @property
    def total_s(self) -> float:
        """All of it."""
        return self.pack_s + sum(self.shard_s)

    def elapsed_s(self, cores: int) -> float:
        """Return the least time that so many cores take: a shard is the work of one."""
        return self.pack_s / cores + max(*self.shard_s, sum(self.shard_s) / cores)

    def plus(self, other: Cost) -> Cost:
        """Return the sum of both."""
        each = [one + two for one, two in zip(self.shard_s, other.shard_s, strict=True)]
        return Cost(self.pack_s + other.pack_s, each)


class _CountedReads(DictStore):
    """A store in memory that counts the bytes that are read."""

    def __init__(self) -> None:
        super().__init__()
        self._read = 0

    def get(self, kind: str, page: int) -> bytes | None:
        """See :class:`~upstream.operators.state.store.Store`."""
        found = super().get(kind, page)
        self._read += len(found or b"")
        return found

    def taken(self) -> int:
        """Return how many bytes were read since the last call."""
        read, self._read = self._read, 0
        return read


class JoinShards:
    """All shards of an inner join of rows ``key, ms, id, value``, which keep their state from batch to batch.

    Parameters
    ----------
    reach_ms : int
        How far apart in time rows are that meet, at most.
    delay_ms : int
        How far the watermark of a side is behind its newest row.
    shards : int

    Attributes
    ----------
    reports : list of JoinReport
        Of the last batch.
    read_bytes : int
        What the last batch read of the state.
    """

    def __init__(self, reach_ms: int, delay_ms: int, shards: int) -> None:
        side = JoinSide(("key",), "ms", _SCHEMA)
        self._plan = JoinPlan(side, side, IntervalBand(reach_ms, reach_ms), unit_us=1000, shards=shards)
        self._stores = [_CountedReads() for _ in range(shards)]
        self._delay_ms = delay_ms
        self._newest_ms = [0, 0]
        self._taken = 0
        self._pairs: list[pa.Table] = []
        self.reports: list[JoinReport] = []
        self.read_bytes = 0

    def run(self, left: pa.Table, right: pa.Table) -> Cost:
        """Run a batch of both sides' rows."""
        self._taken += 1
        packed = [self._packed(side, rows) for side, rows in enumerate((left, right))]
        pack_s = sum(seconds for _, seconds in packed)
        frames = [each for each, _ in packed]
        self.reports, shard_s = [], []
        for number, store in enumerate(self._stores):
            began = time.process_time()
            result, report = JoinShard(number, self._plan, store).run(*(each[number] for each in frames), self._taken)
            shard_s.append(time.process_time() - began)
            self.reports.append(report)
            if result is not None:
                self._pairs.append(result.select(["id", "id_right", SYSTEM]))
        self.read_bytes = sum(store.taken() for store in self._stores)
        return Cost(pack_s, shard_s)

    def pairs(self) -> pa.Table:
        """Return the ids of all pairs so far, ``id`` and ``id_right``."""
        every = pa.concat_tables(self._pairs)
        return every.filter(pc.invert(punctuation_mask(every))).select(["id", "id_right"])

    @property
    def kept(self) -> int:
        """Rows of both sides that are kept after the last batch."""
        return sum(each.left_kept + each.right_kept for each in self.reports)

    @property
    def state_bytes(self) -> int:
        """Bytes of the state."""
        return sum(len(value) for store in self._stores for value in store.values.values())

    def _packed(self, side: int, rows: pa.Table) -> tuple[dict[int, list[bytes]], float]:
        """Return frames for each shard, and the seconds that making them took."""
        count = rows.num_rows
        feed = f"file:/{SIDES[side]}"
        if count:
            self._newest_ms[side] = max(self._newest_ms[side], int(rows.column("ms").to_numpy().max()))
        seq = np.arange(count) + (self._taken << 32)
        system = system_array(source=feed, seq=seq, arrival_us=np.full(count, self._taken))
        table = pa.table([*rows.select(list(_COLUMNS)).columns, system], schema=_SCHEMA)
        bound = pa.array([self._newest_ms[side] - self._delay_ms])
        table = pa.concat_tables([table, punctuation_rows(_SCHEMA, [feed], self._taken, ms=bound)])
        batches = table.combine_chunks().to_batches(max_chunksize=_ROWS_AT_ONCE)
        shards = self._plan.shards
        pack = join_pack(("key",), range(shards), SIDES[side], whole=self._plan.takes_whole(side))
        found: dict[int, list[bytes]] = defaultdict(list)
        began = time.process_time()
        made = list(pack(iter(batches)))
        seconds = time.process_time() - began
        for batch in made:
            for number, frame in zip(batch.column("slot").to_pylist(), batch.column("frame").to_pylist(), strict=True):
                found[number].append(frame)
        return found, seconds
