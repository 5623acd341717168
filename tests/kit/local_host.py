"""All hosted queries without Spark: the scan, the stages and their stores in one process."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Row

from upstream.core.feedback.lanes import LANE
from upstream.hosting.host_plan import HostPlan, HostPlans
from upstream.hosting.messages import TICK, Command
from upstream.hosting.output import OutputControl
from upstream.hosting.scan import ScanStep
from upstream.hosting.stages import FirstStage, SecondStage
from upstream.operators.runtime.shard_processor import ShardProcessor
from upstream.operators.state.store import DictStore

if TYPE_CHECKING:
    from upstream.hosting.registry import Registry


@dataclass(frozen=True)
class OutputRow:
    """A row that left the second stage."""

    leaving: OutputControl
    frame: bytes | None


class LocalHost:
    """Runs the batches of hosted queries with the classes that Spark runs, over stores in memory.

    With `shuffle`, rows reach a shard in random order, since Spark guarantees none; by default, in the order sent.
    Shards report below the `checkpoint`. `letters` has the table for the late rows of a stream.
    """

    def __init__(
        self,
        registry_of: Callable[[int], Registry],
        shards: int,
        shuffle: random.Random | None = None,
        checkpoint: str | None = None,
        letters: Mapping[str, str] | None = None,
    ) -> None:
        self._plans = HostPlans(registry_of, range(shards))
        self._shuffle = shuffle
        self._checkpoint = checkpoint
        self._letters = letters
        self.first = [DictStore() for _ in range(shards)]
        """The state of each shard of the first stage."""
        self.second = [DictStore() for _ in range(shards)]
        """The state of each shard of the second stage."""

    def plan(self, version: int) -> HostPlan:
        return self._plans(version)

    def batch(self, command: Command, tasks: Mapping[str, Sequence[pa.Table]]) -> list[OutputRow]:
        """Run a batch, and return the second stage's output in the order of its shards.

        `tasks` has the rows of each task of a stream's scan, with the system column, and the task's lane as metadata
        if it has one.
        """
        shards = len(self.first)
        sent = [Row(slot=shard, frame=None, control=TICK) for shard in range(shards)]
        for stream, tables in tasks.items():
            step = ScanStep(lambda: command, self._plans, stream)
            for table in tables:
                LANE.set((table.schema.metadata or {}).get(b"lane", b"both").decode())  # type: ignore[arg-type]
                sent += _rows(step(iter(table.to_batches())))
                LANE.set("both")
        between = self._stage(
            FirstStage(lambda: command, self._plans, None, self._checkpoint, self._letters), self.first, sent
        )
        results = self._stage(SecondStage(lambda: command, self._plans, self._checkpoint), self.second, between)
        return [OutputRow(OutputControl.of(each.control), each.frame) for each in results]

    def snapshot(self, shuffle: random.Random | None = None) -> LocalHost:
        """Return a host with a copy of the state, like a restarted job."""
        again = LocalHost(self._plans.registry_of, len(self.first), shuffle, letters=self._letters)
        for mine, other in zip([*self.first, *self.second], [*again.first, *again.second], strict=True):
            other.values.update(mine.values)
        return again

    def _stage(self, processor: ShardProcessor, stores: Sequence[DictStore], rows: Iterable[Row]) -> list[Row]:
        by_shard: list[list[Row]] = [[] for _ in stores]
        for row in rows:
            by_shard[row.slot].append(row)
        found: list[Row] = []
        for shard, (store, some) in enumerate(zip(stores, by_shard, strict=True)):
            if some:
                if self._shuffle is not None:
                    self._shuffle.shuffle(some)
                table = processor.batch(shard, store, iter(some))
                found += [] if table is None else _rows(table.to_batches())
        return found


def _rows(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    return [Row(**row) for batch in batches for row in batch.to_pylist()]
