"""The streaming query behind hosted queries, as Spark runs it: the command is journaled before a batch, the state of
both stages is kept by batch, what leaves them comes to tasks by slot, and the driver commits.

What is the product's, is the product's: the registry and its journal, the command source, the scans, both stages, the
merge in tasks, the tables and their commits, the reports. Spark's part is here: who calls whom with which rows.
"""

from __future__ import annotations

import functools
import json
import pickle
import random
import types
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from kit.local_host import LocalHost, OutputRow

from upstream.hosting import evaluations, host_plan, table_merge
from upstream.hosting import registry as registries
from upstream.hosting.command_source import CommandPlanner
from upstream.hosting.edits import declare, record, refresh
from upstream.hosting.host_plan import HostPlan, HostPlans
from upstream.hosting.job import HostedBatches
from upstream.hosting.journal import Change, Journal, Settings
from upstream.hosting.messages import Command, command_of_batch
from upstream.hosting.registry import Registry, registry_at, registry_now
from upstream.hosting.reports import QueryReport, Reports
from upstream.hosting.table_merge import GivenForTables, MergeInShard
from upstream.operators.runtime.pack import PACKED
from upstream.sink.results import known_table, result_table
from upstream.sink.results.result_tables import ResultTables
from upstream.storage.folder import folder_at

from .hosted_inputs import HostedInputs, tasks_of
from .hosted_rows import STREAMS
from .machine import MACHINE
from .stages import MismatchError


class Frame:
    """As much of a batch DataFrame as the commit of a batch looks at: what left the second stage.

    `merge` runs in the second stage's own workers, so its result is there when the driver collects.
    """

    def __init__(self, tasks: list[pa.RecordBatch], chance: random.Random, merge: MergeInShard | None = None) -> None:
        self._tasks = tasks
        self._chance = chance
        self._merge = merge

    @property
    def sparkSession(self) -> Any:
        properties: dict[str, str] = {}
        table_merge.task_property = properties.get
        context = types.SimpleNamespace(defaultParallelism=2, setLocalProperty=properties.__setitem__)
        return types.SimpleNamespace(sparkContext=context, conf=types.SimpleNamespace(get={}.get))

    def repartition(self, tasks: int, by: str) -> Frame:
        """Rows of a slot come to one task, in any order."""
        assert by == "slot"
        rows = [row for task in self._tasks for row in task.to_pylist()]
        self._chance.shuffle(rows)
        parts = [[row for row in rows if row["slot"] % tasks == number] for number in range(tasks)]
        return Frame([pa.RecordBatch.from_pylist(part, schema=_LEFT) for part in parts if part], self._chance)

    def mapInArrow(self, step: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], _: str) -> Frame:
        sent = pickle.dumps(step)
        made = [batch for task in self._tasks for batch in pickle.loads(sent)(iter([task]))]
        MACHINE.reached("TASKS_WROTE")
        return Frame(made, self._chance)

    def collect(self) -> list[Any]:
        if self._merge is not None:
            return self.repartition(2, "slot").mapInArrow(self._merge, "").collect()
        rows = [types.SimpleNamespace(**row) for task in self._tasks for row in task.to_pylist()]
        self._chance.shuffle(rows)
        return rows


_LEFT = PACKED


def _same(command: Command) -> Command:
    return command


def _slot(left: OutputRow) -> int:
    """Where rows of a table's bucket come together; others come anywhere."""
    return zlib.crc32(f"{left.leaving.query:08x}{left.leaving.bucket}".encode()) >> 1


class HostProcess:
    """The query with its checkpoint."""

    def __init__(self, folder: Path, shards: int, inputs: HostedInputs, seed: int) -> None:
        self.checkpoint, self.lake = folder / "checkpoint", folder / "lake"
        self.inputs = inputs
        self._chance = random.Random(seed)
        self._shards = shards
        (self.checkpoint / "offsets").mkdir(parents=True)
        settings = Settings(str(self.lake), shards, tuple(STREAMS.values()))
        Journal(str(self.checkpoint)).write_settings(settings)
        self.models: list[pa.Table] = []
        """The versions of the table behind the stored relation."""
        self.write_models([])
        declare(str(self.checkpoint), "models", self._models)
        self.offsets: list[dict[str, Any]] = []
        self.commits = 0
        self._left: dict[int, list[OutputRow]] = {}
        self.start(forgets=True)
        self.letters = str(folder / "letters")
        letters = dict.fromkeys(STREAMS, self.letters)
        self._states = [LocalHost(self.plans.registry_of, shards, letters=letters)]

    def start(self, *, forgets: bool) -> None:
        """Start the query again, in a new process or in one that keeps what it has in memory."""
        if forgets:
            forget_hosting()
        place = str(self.checkpoint)
        settings = Journal(place).settings()
        assert settings is not None
        self.plans = HostPlans(functools.partial(registry_at, place, nonce=settings.nonce), range(self._shards))
        self.planner = CommandPlanner(place, tuple(range(self._shards)))
        self._batches = HostedBatches(place, self.plans, GivenForTables())
        self._batches._tables = ResultTables(MACHINE.query_id, place)

    @property
    def pending(self) -> bool:
        """Whether a batch was journaled that is not noted as done."""
        return len(self.offsets) > self.commits

    def change(self, given: dict[str, Any]) -> None:
        record(str(self.checkpoint), Change(**given))

    @property
    def _models(self) -> str:
        return str(self.checkpoint.parent / "models")

    def write_models(self, rows: Sequence[Sequence[str]]) -> None:
        """Let somebody write another version of the table behind the stored relation."""
        names, kinds = [name for name, _ in rows], [kind for _, kind in rows]
        self.models.append(pa.table({"model": pa.array(names, pa.string()), "kind": pa.array(kinds, pa.string())}))
        write_deltalake(self._models, self.models[-1], mode="overwrite")

    def refresh(self) -> None:
        refresh(str(self.checkpoint), "models")

    def models_at(self, version: int) -> pa.Table:
        """The stored relation at a version of the registry."""
        table = self.plans.registry_of(version).catalog.relations["models"].table
        assert table is not None
        return self.models[table.version]

    def registry(self) -> Registry:
        return registry_now(str(self.checkpoint))

    def plan(self, batch: int) -> HostPlan:
        return self.plans(int(self.offsets[batch]["version"]))

    def served(self, batch: int) -> frozenset[int] | None:
        """Whose results a batch is to put out; None for all."""
        served = self.offsets[batch]["served"]
        return None if served is None else frozenset(served)

    def reports(self) -> dict[int, QueryReport]:
        """What the host reports of each incarnation."""
        return dict(Reports(folder_at(str(self.checkpoint))).read())

    def failed(self, batch: int) -> dict[int, str]:
        """Which incarnations a batch let fail, and why."""
        left = [each.leaving for each in self._left[batch]]
        return {each.query: each.reason for each in left if each.kind == "failed"}

    def state_keys(self) -> set[str]:
        """What the shards keep after the last batch."""
        host = self._states[-1]
        return {str(key) for store in (*host.first, *host.second) for key in store.values}

    def trigger(self, twins: float = 0.0, share: float | None = None) -> bool:
        """One batch, if there is anything to do; whether there was."""
        number = self.commits
        MACHINE.batch = number
        if not self.pending and not self._plan(number, share):
            return False
        command = command_of_batch(str(self.checkpoint), number)
        state, left = self._run(number)
        if self._chance.random() < twins:  # another attempt of all tasks; one of both counts
            other = self._run(number)
            if other[1] != left:
                raise MismatchError(f"tasks of batch {number} that run again give other rows")
            state = self._chance.choice((state, other[0]))
        if self._left.setdefault(number, left) != left:
            raise MismatchError(f"batch {number} gave other rows when it was run again")
        MACHINE.reached("STATE_KEPT")
        rows = [{"slot": _slot(each), "frame": each.frame, "control": each.leaving.control()} for each in left]
        merge = MergeInShard(functools.partial(_same, command), self.plans, GivenForTables())
        frame: Any = Frame([pa.RecordBatch.from_pylist(rows, schema=_LEFT)], self._chance, merge)
        self._batches(frame, command.batch)
        del self._states[number + 1 :]
        self._states.append(state)
        self.commits = number + 1
        MACHINE.reached("NOTED")
        return True

    def _plan(self, number: int, share: float | None) -> bool:
        start = self.offsets[number - 1] if number else self.planner.initial()
        end = self.planner.plan(start, MACHINE.now_us)
        if end["version"] < 0 or (end["version"] == start["version"] and not self.inputs.waits and share is None):
            return False
        if share is not None:
            ids = sorted(self.plans(int(end["version"])).queries)
            end = {**end, "served": [each for each in ids if self._chance.random() < share]}
        else:
            end = {**end, "served": None}
        self.inputs.take()
        self.offsets.append(end)
        lines = ["v1", json.dumps({"batchTimestampMs": MACHINE.now_us // 1000})]
        lines += [json.dumps({"rows": len(each.rows)}) for each in self.inputs.taken[-1:]]
        (self.checkpoint / "offsets" / str(number)).write_text("\n".join([*lines, json.dumps(end)]))
        MACHINE.reached("JOURNALED")
        return True

    def _run(self, number: int) -> tuple[LocalHost, Sequence[OutputRow]]:
        """Both stages, from the state before the batch."""
        state = self._states[number].snapshot(random.Random(self._chance.random()))
        tasks = tasks_of(self.inputs.taken[number], self._chance)
        left = state.batch(command_of_batch(str(self.checkpoint), number), tasks)
        MACHINE.reached("TASKS_READ")
        return state, left


def forget_hosting() -> None:
    """What a process has in memory is gone with it."""
    for memory in (evaluations._kept._by_lineage, host_plan._plans, registries._versions, known_table._known):
        memory.clear()
    result_table._kept = result_table._RowCache()
