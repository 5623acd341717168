"""Operators in shards, as Spark's adapters drive them: frames by slot in any order, state by version."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pyarrow as pa

from upstream.core.feedback.checkpoint_layout import operator_folder, queue_folder
from upstream.core.feedback.reports import QueueReport, read_reports
from upstream.core.rows.buckets import integers_with_hash
from upstream.core.rows.exact_integers import HIGHEST
from upstream.operators.queue.queue import Control, ShardPlan
from upstream.operators.reorder.shard import ReorderPlan
from upstream.operators.runtime.pack import pack
from upstream.operators.runtime.shard import DeadLetters, OperatorProcessor
from upstream.operators.runtime.shard_processor import Next, ShardProcessor, run_shard
from upstream.operators.shards import shard_class
from upstream.operators.state.store import DictStore, Store
from upstream.operators.windows.shards.plan import WindowPlan
from upstream.operators.windows.shards.results import final_in, window_pack

from .machine import MACHINE

if TYPE_CHECKING:
    from pyspark.sql import Row

    from upstream.core.pushdown.source_steps import ArrowStep

Batches = list[pa.RecordBatch]
Packing = Callable[[list[int]], "Sequence[ArrowStep]"]
States = dict[tuple[int, int], dict[tuple[str, int], bytes]]
"""What each shard of each operator keeps."""


class _Frame(NamedTuple):
    frame: Any
    control: str | None


class MismatchError(AssertionError):
    """What came out is not what must."""


class Stage:
    """One operator."""

    def __init__(
        self, number: int, shards: int, packing: Packing, processor: ShardProcessor, *, folder: str | None = None,
        modes: bool = False,
    ) -> None:  # fmt: skip
        self.numbers = [number]
        self.shards = shards
        self._slots = [int(slot) for slot in integers_with_hash(range(shards))]
        self._packs = packing(self._slots)
        self._first = processor
        self._others: list[Next] = []
        self._folder = folder
        self._modes = modes

    def append(self, number: int, shards: int, pack: Callable[[int], ArrowStep], processor: ShardProcessor) -> None:
        """One more operator behind the others, in this stage."""
        assert shards == self.shards
        self.numbers.append(number)
        self._others.append(Next(pack, processor))

    @property
    def waits(self) -> bool:
        return self._folder is not None and any(report.waiting for report in read_reports(self._folder, QueueReport))

    def run(
        self, tasks: list[Batches], states: States, record: Any, batch: int, chance: random.Random, twins: float,
        *more: list[Batches],
    ) -> list[Batches]:  # fmt: skip
        """A batch of it; the states become those after it. All inputs are the same tasks, unless there are more."""
        ticks = record.ticks[batch]
        frames: dict[int, list[_Frame]] = defaultdict(list)
        inputs = [tasks, *more] if more else [tasks] * len(self._packs)
        for step, given_tasks in zip(self._packs, inputs, strict=True):
            for packed in (batch for task in given_tasks for batch in step(iter(task))):
                for slot, *frame in zip(*(column.to_pylist() for column in packed.columns), strict=True):
                    frames[self._slots.index(slot)].append(_Frame(*frame))
        if self._folder is not None and ticks:
            for shard in range(self.shards):
                control = Control(MACHINE.now_us if len(ticks) < 2 else ticks[1], ticks[0], 1e-6)
                frames[shard].append(_Frame(None, control.to_json()))
        if self._modes and len(ticks) > 2 and ticks[2]:
            for shard in range(self.shards):
                frames[shard].append(_Frame(None, ticks[2]))
        given: list[Batches] = []
        for number in self.numbers:
            record.by_shard[number, batch] = []
        for shard in sorted(frames):
            rows = frames[shard]
            chance.shuffle(rows)
            kept = [states.get((number, shard), {}) for number in self.numbers]
            results, after = self._shard(shard, rows, kept)
            if chance.random() < twins:
                again, _ = self._shard(shard, rows[::-1], kept)
                if list(map(_plain, results)) != list(map(_plain, again)):
                    raise MismatchError(
                        f"shard {shard} of operators {self.numbers} gives something else when run again"
                    )
            for number, state, result in zip(self.numbers, after, results, strict=True):
                states[number, shard] = state
                if result is not None:
                    record.by_shard[number, batch].append((shard, result))
            if results[-1] is not None:
                given.append(results[-1].combine_chunks().to_batches())
        return given

    def _shard(
        self, shard: int, rows: list[_Frame], kept: list[dict[tuple[str, int], bytes]]
    ) -> tuple[list[pa.Table | None], list[dict[tuple[str, int], bytes]]]:
        stores = [DictStore() for _ in kept]
        for store, values in zip(stores, kept, strict=True):
            store.values = dict(values)
        first = _Heard(self._first)
        others = [Next(each.pack, _Heard(each.processor)) for each in self._others]
        run_shard(self._slots[shard], shard, first, others, stores, cast("Iterator[Row]", iter(rows)))
        return [first.result, *(each.processor.result for each in others)], [store.values for store in stores]


class _Heard(ShardProcessor):
    """A processor whose last result is kept, for what comes after it takes all that is left."""

    state = "none"

    def __init__(self, processor: ShardProcessor) -> None:
        self._processor = processor
        self.result: pa.Table | None = None

    def batch(self, shard: int, store: Store, rows: Iterator[Row]) -> pa.Table | None:
        self.result = self._processor.batch(shard, store, rows)
        return self.result


def _plain(table: pa.Table | None) -> list[str]:
    """Rows in any order, but for their numbers."""
    if table is None:
        return []
    return sorted(str({**row, "_upstream": row["_upstream"]["punctuation"]}) for row in table.to_pylist())


def _late(number: int, checkpoint: Path) -> DeadLetters:
    return DeadLetters(str(checkpoint / "dead_letters"), str(number), "late")


def processor_of(plan: Any, folder: str, late: DeadLetters | None = None) -> OperatorProcessor:
    """The adapter of a plan's shards."""
    return OperatorProcessor(shard_class(plan), plan, folder, late)


def window_stage(number: int, plan: WindowPlan, checkpoint: Path) -> Stage:
    """Windows; `number` counts the operators."""
    folder = operator_folder(str(checkpoint), "windows", number)
    final = partial(final_in, folder)
    processor = processor_of(plan, folder, _late(number, checkpoint))
    return Stage(number, plan.shards, lambda slots: [window_pack(plan, slots, final)], processor)


def append_windows(stage: Stage, number: int, plan: WindowPlan, checkpoint: Path) -> None:
    """Windows in the stage of an operator."""
    processor = processor_of(plan, operator_folder(str(checkpoint), "windows", number), _late(number, checkpoint))
    stage.append(number, plan.shards, lambda slot: window_pack(plan, [slot], lambda: HIGHEST), processor)


def queue_stage(number: int, plan: ShardPlan, checkpoint: Path) -> Stage:
    """An update queue."""
    folder = queue_folder(str(checkpoint))
    coalesce = plan.policy in ("fifo", "in-place", "linecutting")

    def packs(slots: list[int]) -> list[ArrowStep]:
        return [pack(plan.key, slots, plan.time, coalesce=coalesce)]

    return Stage(number, plan.shards, packs, processor_of(plan, folder), folder=folder)


def reorder_stage(number: int, plan: ReorderPlan, checkpoint: Path) -> Stage:
    """Rows in order."""
    processor = processor_of(plan, operator_folder(str(checkpoint), "reorder", number), _late(number, checkpoint))

    def packs(slots: list[int]) -> list[ArrowStep]:
        return [pack(plan.by, slots, None, coalesce=False, operator=plan.name)]

    return Stage(number, plan.shards, packs, processor)
