"""A query as Spark runs it: offsets journaled before a batch, its state kept by version, its commit noted after; the
checkpoint is a folder.

What is the product's, is the product's: the reader with its planner and connector, what packs rows, the shards, the
frames, the sink.
"""

from __future__ import annotations

import dataclasses
import json
import pickle
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from upstream.datasource.spark_reader import UpstreamStreamReader

from .join_stages import LatestJoinStage, TableStage
from .machine import MACHINE, forget_process
from .stages import MismatchError, Stage, States

Batches = list[pa.RecordBatch]
AnyStage = Stage | LatestJoinStage | TableStage


@dataclasses.dataclass
class Record:
    """What a checkpoint stands for: Spark's journal and state, and what the batches gave."""

    # By batch what is journaled, with the versions of tables; and the states before it.
    offsets: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    ticks: list[list[Any]] = dataclasses.field(default_factory=list)
    versions: list[list[Any]] = dataclasses.field(default_factory=list)
    states: list[States] = dataclasses.field(default_factory=lambda: [{}])
    commits: int = 0
    # By batch what the source gave, and the last operator; by operator and batch what each shard gave.
    read: dict[int, list[pa.Table]] = dataclasses.field(default_factory=dict)
    left: dict[int, list[pa.Table]] = dataclasses.field(default_factory=dict)
    by_shard: dict[tuple[int, int], list[tuple[int, pa.Table]]] = dataclasses.field(default_factory=dict)
    # By operator, shard and batch how many rows of a queue are accounted for, and how many wait.
    queued: dict[tuple[int, int, int], tuple[int, int]] = dataclasses.field(default_factory=dict)
    promised: dict[int, dict[str, int]] = dataclasses.field(default_factory=dict)

    def copy(self) -> Record:
        """Another one, that goes its own way."""
        mine = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return Record(**{name: value if isinstance(value, int) else value.copy() for name, value in mine.items()})


class Query:
    """One query with its checkpoint."""

    def __init__(
        self, folder: Path, source: dict[str, str], schema: StructType, stages: Callable[[Path], Sequence[AnyStage]],
        sink: Any, seed: int,
    ) -> None:  # fmt: skip
        self.checkpoint, self._backup = folder / "checkpoint", folder / "backup"
        self._given, self._schema, self._stages_of, self._sink = source, schema, stages, sink
        self._chance = random.Random(seed)
        self._listed = seed % 2 == 0
        self.record = Record()
        self._saved: Record | None = None
        self.stages: Sequence[AnyStage] = ()
        (self.checkpoint / "offsets").mkdir(parents=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": MACHINE.query_id}))
        self.start()

    def start(self) -> None:
        """A new process takes the query up."""
        forget_process()
        given = {**self._given, "checkpointLocation": str(self.checkpoint)} if self._reports else self._given
        self._reader = UpstreamStreamReader(given, self._schema)
        self.stages = self._stages_of(self.checkpoint)
        self._sink.start()

    @property
    def _reports(self) -> bool:
        # A source of files keeps its lists there, and without it all in the offsets.
        return self._given.get("connector") == "kafka" or self._listed

    @property
    def pending(self) -> bool:
        """Whether a batch was journaled that is not noted as done."""
        return len(self.record.offsets) > self.record.commits

    def trigger(self, limit: int | None = None, budget: list[Any] | None = None, twins: float = 0.0) -> bool:
        """One batch, if there is anything; whether there was."""
        number = self.record.commits
        MACHINE.batch = number
        start = self.record.offsets[number - 1] if number else self._reader.initialOffset()
        if not self.pending:
            end = self._reader.latestOffset(start, ReadAllAvailable() if limit is None else ReadMaxRows(limit))
            waits = any(stage.waits for stage in self.stages)
            versions = [stage.offset() for stage in self.stages if isinstance(stage, TableStage)]
            if end == start and not waits and versions == (self.record.versions[number - 1] if number else versions):
                return False
            end = json.loads(json.dumps(end))
            self.record.offsets.append(end)
            self.record.ticks.append(budget or [])
            self.record.versions.append(versions)
            lines = ["v1", json.dumps({"batchTimestampMs": MACHINE.now_us // 1000}), json.dumps(end)]
            lines += map(json.dumps, versions)
            (self.checkpoint / "offsets" / str(number)).write_text("\n".join(lines))
            MACHINE.reached("JOURNALED")
            if number and self.record.offsets[number - 1] != end:
                self._reader.commit(self.record.offsets[number - 1])
        self._run(number, start, self.record.offsets[number], twins)
        self.record.commits = number + 1
        MACHINE.reached("NOTED")
        return True

    def _run(self, number: int, start: dict[str, Any], end: dict[str, Any], twins: float) -> None:
        prepared = self._sink.prepare()
        parts = self._reader.partitions(start, end) if start != end else []
        tasks = [self._task(part, twins) for part in parts]
        self.record.read[number] = [pa.Table.from_batches(task) for task in tasks if task]
        MACHINE.reached("TASKS_READ")
        states = dict(self.record.states[number])
        for stage in self.stages:
            tasks = stage.run(tasks, states, self.record, number, self._chance, twins)
        left = [pa.Table.from_batches(task) for task in tasks if task]
        self._same(number, left)
        self.record.left[number] = left
        del self.record.states[number + 1 :]
        self.record.states.append(states)
        MACHINE.reached("STATE_KEPT")
        self._sink.batch(prepared, tasks, number, self._chance, twins)

    def _task(self, part: Any, twins: float) -> Batches:
        reader = pickle.loads(pickle.dumps(self._reader))
        read = [batch for batch in reader.read(part) if batch.num_rows]
        if self._chance.random() < twins:
            again = [batch for batch in reader.read(part) if batch.num_rows]
            if bool(read) != bool(again) or (read and pa.Table.from_batches(read) != pa.Table.from_batches(again)):
                raise MismatchError("a task that is run again reads other rows")
        return read

    def _same(self, number: int, left: list[pa.Table]) -> None:
        """A batch that is run again gives the same rows."""
        before = self.record.left.get(number)
        if before is not None and _counted(before) != _counted(left):
            raise MismatchError(f"batch {number} gave other rows when it was run again")

    def backup(self) -> None:
        if self._backup.exists():
            shutil.rmtree(self._backup)
        shutil.copytree(self.checkpoint, self._backup)
        self._saved = self.record.copy()

    def swap(self) -> bool:
        """Put the copy in the checkpoint's place, and the checkpoint in the copy's; whether there was one."""
        if self._saved is None:
            return False
        aside = self._backup.with_name("aside")
        self.checkpoint.rename(aside)
        self._backup.rename(self.checkpoint)
        aside.rename(self._backup)
        self.record, self._saved = self._saved, self.record
        self.start()
        return True


def _counted(tables: list[pa.Table]) -> list[str]:
    return sorted(str(row) for table in tables for row in table.to_pylist())
