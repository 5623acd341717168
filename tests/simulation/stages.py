"""Operators in shards, as Spark's adapters drive them: frames by slot in any order, state by version."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from upstream.core.feedback.checkpoint_layout import queue_folder, reorder_folder, windows_folder
from upstream.core.feedback.queue_reports import read_reports
from upstream.core.rows.buckets import integers_with_hash
from upstream.operators.queue.control import Control, ShardPlan
from upstream.operators.queue.processor import QueueProcessor
from upstream.operators.reorder.plan import ReorderPlan
from upstream.operators.reorder.processor import ReorderProcessor
from upstream.operators.runtime.pack import pack
from upstream.operators.runtime.rows_aside import RowsAside
from upstream.operators.runtime.store import DictStore
from upstream.operators.windows.shards.pack import window_pack
from upstream.operators.windows.shards.plan import WindowPlan
from upstream.operators.windows.shards.processor import WindowProcessor

from .machine import MACHINE

Batches = list[pa.RecordBatch]
States = dict[tuple[int, int], dict[tuple[str, int], bytes]]
"""What each shard of each operator keeps."""


class _Frame(NamedTuple):
    frame: Any
    control: str | None


def _as_they_are(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


class MismatchError(AssertionError):
    """What came out is not what must."""


class Stage:
    """One operator.

    Attributes
    ----------
    waits : bool
        Whether it asks for batches although nothing has come.
    """

    def __init__(
        self,
        number: int,
        shards: int,
        packing: Callable[[list[int]], Any],
        processor: Callable[[list[int]], Any],
        *,
        folder: str | None = None,
    ) -> None:
        self.number = number
        self.shards = shards
        self._slots = [int(slot) for slot in integers_with_hash(range(shards))]
        self._pack = packing(self._slots)
        self._processor = processor(self._slots)
        self._folder = folder

    @property
    def waits(self) -> bool:
        return self._folder is not None and any(report.waiting for report in read_reports(self._folder))

    def run(
        self, tasks: list[Batches], states: States, record: Any, batch: int, chance: random.Random, twins: float
    ) -> list[Batches]:
        """A batch of it; the states become those after it."""
        ticks = record.ticks[batch]
        frames: dict[int, list[_Frame]] = defaultdict(list)
        for task in tasks:
            for packed in self._pack(iter(task)):
                slots, found = packed.column(0).to_pylist(), packed.column(1).to_pylist()
                for slot, frame in zip(slots, found, strict=True):
                    frames[self._slots.index(slot)].append(_Frame(frame, None))
        if self._folder is not None and ticks:
            for shard in range(self.shards):
                control = Control(MACHINE.now_us if len(ticks) < 2 else ticks[1], ticks[0], 1e-6)
                frames[shard].append(_Frame(None, control.to_json()))
        given: list[Batches] = []
        kept_results = record.by_shard[self.number, batch] = []
        for shard in sorted(frames):
            rows = frames[shard]
            chance.shuffle(rows)
            place = (self.number, shard)
            kept = states.get(place, {})
            result, after = self._shard(shard, rows, kept)
            if chance.random() < twins:
                again, _ = self._shard(shard, rows[::-1], kept)
                if _plain(result) != _plain(again):
                    raise MismatchError(
                        f"shard {shard} of operator {self.number} gives something else when it is run again"
                    )
            states[place] = after
            if result is not None:
                kept_results.append((shard, result))
                given.append(result.combine_chunks().to_batches())
        return given

    def _shard(self, shard: int, rows: list[_Frame], kept: dict[tuple[str, int], bytes]) -> tuple[Any, Any]:
        store = DictStore()
        store.values = dict(kept)
        return self._processor.batch(shard, store, iter(rows)), store.values


def _plain(table: pa.Table | None) -> list[str]:
    """Rows in any order, but for their numbers."""
    if table is None:
        return []
    return sorted(str({**row, "_upstream": row["_upstream"]["punctuation"]}) for row in table.to_pylist())


def window_stage(number: int, plan: WindowPlan, checkpoint: Path) -> Stage:
    """Windows; `number` counts the operators."""
    folder = windows_folder(str(checkpoint), number)
    late = RowsAside(str(checkpoint / f"late-{number}"), "late")
    return Stage(
        number,
        plan.shards,
        lambda slots: window_pack(plan, slots, folder),
        lambda slots: WindowProcessor(plan, slots, folder, late, _as_they_are),
    )


def queue_stage(number: int, plan: ShardPlan, checkpoint: Path) -> Stage:
    """An update queue."""
    folder = queue_folder(str(checkpoint))
    return Stage(
        number,
        plan.shards,
        lambda slots: pack(plan.key, slots, plan.time, coalesce=plan.policy in ("fifo", "in-place", "linecutting")),
        lambda slots: QueueProcessor(plan, slots, folder),
        folder=folder,
    )


def reorder_stage(number: int, plan: ReorderPlan, checkpoint: Path) -> Stage:
    """Rows in order."""
    folder = reorder_folder(str(checkpoint), number)
    late = RowsAside(str(checkpoint / f"late-{number}"), "late")
    return Stage(
        number,
        plan.shards,
        lambda slots: pack(plan.by, slots, None, coalesce=False, operator=plan.name),
        lambda slots: ReorderProcessor(plan, slots, folder, late, _as_they_are),
    )
