"""The streaming query behind hosted queries, as Spark runs it: the command is journaled before a batch, rows come to
tasks by slot, and the driver commits.

What is the product's, is the product's: the registry and its journal, the command source, the scans, both stages and
their states, the merge in tasks, the tables and their commits, the reports. Spark's part is here: who calls whom with
which rows.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pickle
import random
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from kit.local_host import packed_rows, rows_for_first

from upstream.core.feedback.lanes import StreamLanes, read_lanes
from upstream.core.pushdown.source_steps import ArrowStep
from upstream.hosting import evaluations, host_plan, table_merge
from upstream.hosting import registry as registries
from upstream.hosting.command_source import CommandPlanner
from upstream.hosting.edits import declare, record, refresh
from upstream.hosting.host_plan import HostPlan, HostPlans
from upstream.hosting.job import HostedBatches, host_steps
from upstream.hosting.journal import Change, Journal, Settings
from upstream.hosting.messages import Command, PackedRow, command_of_batch
from upstream.hosting.output import OutputControl
from upstream.hosting.registry import Registry, registry_at, registry_now
from upstream.hosting.reports import QueryReport, Reports
from upstream.hosting.stage_states import StageStep
from upstream.hosting.table_merge import GivenForTables
from upstream.operators.runtime.pack import PACKED
from upstream.operators.runtime.steps import ChainedSteps
from upstream.operators.state import file_store
from upstream.operators.state.file_store import FileStore
from upstream.sink.results import known_table, result_table
from upstream.sink.results.result_tables import ResultTables
from upstream.storage.folder import folder_at

from .hosted_inputs import HostedInputs, tasks_of
from .hosted_rows import STREAMS
from .machine import MACHINE
from .stages import MismatchError


class Frame:
    """As much of a batch DataFrame as a batch of hosted queries needs: rows of tasks between steps, run when collected.

    Some tasks of stages run twice (`twins`, a probability), and one of both attempts counts. `known` has what each task
    of the second stage has sent in this batch; a repeated batch must send the same.
    """

    def __init__(
        self,
        rows: Callable[[], list[pa.RecordBatch]],
        chance: random.Random,
        twins: float,
        known: dict[int, list[PackedRow]],
    ) -> None:
        self._rows = rows  # of each task
        self._chance = chance
        self._twins = twins
        self._known = known

    @property
    def sparkSession(self) -> Any:
        properties: dict[str, str] = {}
        table_merge.task_property = properties.get
        context = types.SimpleNamespace(defaultParallelism=2, setLocalProperty=properties.__setitem__)
        return types.SimpleNamespace(sparkContext=context, conf=types.SimpleNamespace(get={}.get))

    def repartition(self, tasks: int, by: str) -> Frame:
        """Rows of a slot come to one task, in any order."""
        assert by == "slot"

        def run() -> list[pa.RecordBatch]:
            rows = packed_rows(self._rows())
            self._chance.shuffle(rows)
            parts = [[row for row in rows if row[0] % tasks == number] for number in range(tasks)]
            return [_packed(part) for part in parts if part]

        return self._with(run)

    def mapInArrow(self, step: ArrowStep, _: str) -> Frame:
        def run() -> list[pa.RecordBatch]:
            tasks = self._rows()
            for each in step.steps if isinstance(step, ChainedSteps) else [step]:
                tasks = [self._ran(each, number, task) for number, task in enumerate(tasks)]
            MACHINE.reached("TASKS_WROTE")
            return tasks

        return self._with(run)

    def collect(self) -> list[Any]:
        rows = packed_rows(self._rows())
        self._chance.shuffle(rows)
        return [types.SimpleNamespace(slot=slot, frame=frame, control=control) for slot, frame, control in rows]

    def _ran(self, step: ArrowStep, number: int, task: pa.RecordBatch) -> pa.RecordBatch:
        sent = pickle.dumps(step)
        attempts = [packed_rows(pickle.loads(sent)(iter([task])))]
        if isinstance(step, StageStep) and self._chance.random() < self._twins:
            attempts.append(packed_rows(pickle.loads(sent)(iter([task]))))
        for rows in attempts if isinstance(step, StageStep) and _number(step) == 1 else ():
            # The names of files differ from attempt to attempt.
            same = [row for row in rows if json.loads(row[2])["kind"] != "state"]
            if self._known.setdefault(number, same) != same:
                raise MismatchError(f"a task of batch {MACHINE.batch} that runs again gives other rows")
        return _packed(self._chance.choice(attempts))

    def _with(self, rows: Callable[[], list[pa.RecordBatch]]) -> Frame:
        return Frame(rows, self._chance, self._twins, self._known)


def _number(step: StageStep) -> int:
    return step.stage.func.number  # type: ignore[attr-defined] it is a partial call of the class


def _same(command: Command) -> Command:
    return command


def _packed(rows: Sequence[PackedRow]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else ([], [], [])
    return pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(columns, PACKED, strict=True)], schema=PACKED
    )


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
        self.letters = str(folder / "letters")
        self.keeps_late = {name for name in STREAMS if random.Random(f"{seed} {name}").random() < 0.5}
        """The streams whose late rows become dead letters."""
        self._sent: dict[int, dict[int, list[PackedRow]]] = {}
        self.start(forgets=True)

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
        """Which incarnations the stages let fail in a batch, and why."""
        sent = [OutputControl.of(control) for rows in self._sent[batch].values() for _, _, control in rows]
        return {each.query: each.reason for each in sent if each.kind == "failed"}

    def state_keys(self) -> set[str]:
        """What the shards keep after the last batch."""
        records = self._batches._states
        stores = [FileStore(records.folder, names) for names in records.before(self.commits).values()]
        places = {place for store in stores for file in store._files for place in file.extents}
        return {str(place) for place in places if any(store.get(*place) is not None for store in stores)}

    def trigger(
        self, twins: float = 0.0, share: float | None = None, budget: int | None = None, lanes: str = "fresh"
    ) -> bool:
        """One batch, if there is anything to do; whether there was.

        The source sees the host's report on the `lanes` of its streams, with a `budget` for readers of every row.
        """
        number = self.commits
        MACHINE.batch = number
        if not self.pending and not self._plan(number, share, budget, lanes):
            return False
        command = command_of_batch(str(self.checkpoint), number)
        tasks = tasks_of(self.inputs.taken[number], self._chance)
        sent = _packed(rows_for_first(command, self.plans, tasks, self.keeps_late))
        MACHINE.reached("TASKS_READ")
        frame: Any = Frame(lambda: [sent], self._chance, twins, self._sent.setdefault(number, {}))
        steps = host_steps(
            str(self.checkpoint), functools.partial(_same, command), self.plans, GivenForTables(),
            dict.fromkeys(sorted(self.keeps_late), self.letters),
        )  # fmt: skip
        for step in steps:
            frame = frame.repartition(2, "slot").mapInArrow(step, "")
        self._batches(frame, number)
        MACHINE.reached("STATE_KEPT")
        self.commits = number + 1
        MACHINE.reached("NOTED")
        return True

    def _plan(self, number: int, share: float | None, budget: int | None, lanes: str) -> bool:
        start = self.offsets[number - 1] if number else self.planner.initial()
        end = self.planner.plan(start, MACHINE.now_us)
        if end["version"] < 0 or (end["version"] == start["version"] and not self.inputs.waits and share is None):
            return False
        if share is not None:
            ids = sorted(self.plans(int(end["version"])).queries)
            end = {**end, "served": [each for each in ids if self._chance.random() < share]}
        else:
            end = {**end, "served": None}
        self.inputs.take(self._lanes(budget, lanes))
        self.offsets.append(end)
        lines = ["v1", json.dumps({"batchTimestampMs": MACHINE.now_us // 1000})]
        lines += [json.dumps(each) for each in self.inputs.ends.values()]
        (self.checkpoint / "offsets" / str(number)).write_text("\n".join([*lines, json.dumps(end)]))
        MACHINE.reached("JOURNALED")
        return True

    def _lanes(self, budget: int | None, state: str) -> dict[str, StreamLanes]:
        """The report on the lanes as the source finds it: lost, of a time with readers of both kinds, or the last."""
        if state == "lost":
            return {}
        if state == "old":
            return dict.fromkeys(STREAMS, StreamLanes(True, True, budget))
        known, _ = read_lanes(folder_at(str(self.checkpoint)))
        return {name: dataclasses.replace(each, budget=budget) for name, each in known.items()}


def forget_hosting() -> None:
    """What a process has in memory is gone with it."""
    for memory in (
        evaluations._kept._by_lineage,
        host_plan._plans,
        registries._versions,
        known_table._known,
        file_store._known,
    ):
        memory.clear()
    result_table._kept = result_table._RowCache()
