"""All hosted queries without Spark: the scan, the stages and their stores in one process."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from upstream.core.feedback.lanes import LANE
from upstream.hosting.host_plan import HostPlan, HostPlans
from upstream.hosting.messages import TICK, Command, PackedRow
from upstream.hosting.output import OutputControl
from upstream.hosting.scan import ScanStep
from upstream.hosting.stages import FirstStage, SecondStage, Stage
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
        first = FirstStage(command, self._plans, None, self._checkpoint, self._letters)
        between = self._stage(first, self.first, rows_for_first(command, self._plans, tasks, self._letters or ()))
        results = self._stage(SecondStage(command, self._plans, self._checkpoint), self.second, between)
        return [OutputRow(OutputControl.of(control), frame) for _, frame, control in results]

    def snapshot(self, shuffle: random.Random | None = None) -> LocalHost:
        """Return a host with a copy of the state, like a restarted job."""
        again = LocalHost(self._plans.registry_of, len(self.first), shuffle, letters=self._letters)
        for mine, other in zip([*self.first, *self.second], [*again.first, *again.second], strict=True):
            other.values.update(mine.values)
        return again

    def _stage(self, stage: Stage, stores: Sequence[DictStore], rows: Iterable[PackedRow]) -> list[PackedRow]:
        by_shard: dict[int | None, list[PackedRow]] = {}
        for row in rows:
            by_shard.setdefault(row[0], []).append(row)
        left: list[PackedRow] = []
        for shard, store in enumerate(stores):
            if shard in by_shard:
                if self._shuffle is not None:
                    self._shuffle.shuffle(by_shard[shard])
                table = stage.batch(shard, store, by_shard[shard])
                left += [] if table is None else packed_rows(table.to_batches())
        return left


def rows_for_first(
    command: Command, plans: HostPlans, tasks: Mapping[str, Sequence[pa.Table]], keep_late: Collection[str] = ()
) -> list[PackedRow]:
    """Return the rows that the command source and the scans of some tasks send to the first stage.

    The late rows of some streams are kept.
    """
    sent: list[PackedRow] = [(slot, None, TICK) for slot in plans.slots]
    for stream, tables in tasks.items():
        step = ScanStep(lambda: command, plans, stream, keeps_late=stream in keep_late)
        for table in tables:
            LANE.set((table.schema.metadata or {}).get(b"lane", b"both").decode())  # type: ignore[arg-type]
            sent += packed_rows(step(iter(table.to_batches())))
            LANE.set("both")
    return sent


def packed_rows(batches: Iterable[pa.RecordBatch]) -> list[PackedRow]:
    return [row for batch in batches for row in zip(*(each.to_pylist() for each in batch.columns), strict=True)]
