"""Joins in shards: the rows of one source as both sides, as in the join of a feed with itself; and joins with a Delta
table that somebody changes, whose version is journaled with the offsets of each batch.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake

from upstream.core.feedback.checkpoint_layout import operator_folder
from upstream.core.pushdown.source_steps import ArrowStep
from upstream.core.rows.system_column import SYSTEM
from upstream.operators.joins.band import SIDES, IntervalBand
from upstream.operators.joins.latest_plan import LatestJoinPlan, LatestSide, VersionPlan
from upstream.operators.joins.plan import JoinPlan, JoinSide
from upstream.operators.joins.release.choice import ReleasePlan
from upstream.operators.joins.shard import join_pack, newest_pack, own_pack
from upstream.operators.runtime.steps import ChainedSteps, choosing
from upstream.operators.tables.lookup import planned
from upstream.operators.tables.versions import TableLookup, VersionReader

from .stages import Batches, MismatchError, Stage, States, processor_of

GROUP, GROUPS = "g", 3
_STEP_US = 10_000


def join_plan(stage: dict[str, Any], rows: pa.Schema) -> JoinPlan:
    """The join of a source's rows with themselves."""
    side = JoinSide(("k",), "t", rows, ("k",))
    band = IntervalBand(stage["before"] * 1000, stage["after"] * 1000)
    release = ReleasePlan("adaptive") if stage.get("in_order") else None
    return JoinPlan(
        side, side, band, how=stage["how"], shards=stage["shards"], early=stage.get("early", False), release=release,
        state_limit=stage.get("limit"), on_limit="drop_oldest",
    )  # fmt: skip


def join_stage(number: int, plan: JoinPlan, checkpoint: Path) -> Stage:
    """A join by time."""
    return Stage(
        number,
        plan.shards,
        lambda slots: [
            _packed(side.schema.names, join_pack(side.on, slots, name, whole=plan.takes_whole(at)))
            for at, (side, name) in enumerate(zip(plan.sides, SIDES, strict=True))
        ],
        processor_of(plan, operator_folder(str(checkpoint), "joins", number)),
        modes=plan.release is not None,
    )


def group_of(time_us: int) -> int:
    """What a row of a time meets in a join of newest rows."""
    return time_us // _STEP_US % GROUPS


def latest_plan(shards: int, rows: pa.Schema) -> LatestJoinPlan:
    """Each key's newest row with the newest row of its group: a key that has a new row may move to another group."""
    grouped = pa.schema([*(field for field in rows if field.name != SYSTEM), (GROUP, pa.int64()), rows.field(SYSTEM)])
    left = LatestSide((GROUP,), "", grouped, ("k",), "t")
    right = LatestSide((GROUP,), "", grouped, (GROUP,), "t")
    return LatestJoinPlan(left, right, shards=shards)


class LatestJoinStage:
    """The join of newest rows, and before it the newest rows of its left side."""

    waits = False

    def __init__(self, plan: LatestJoinPlan, checkpoint: Path) -> None:
        left, right = plan.sides
        versions = VersionPlan(left, plan.shards)
        self._versions = Stage(
            0,
            plan.shards,
            lambda slots: [
                ChainedSteps((_grouped, _packed(left.schema.names, own_pack(left, left.key, slots, SIDES[0]))))
            ],
            processor_of(versions, operator_folder(str(checkpoint), "latest")),
        )
        self._join = Stage(
            1,
            plan.shards,
            lambda slots: [
                _packed(*newest_pack(left, slots, SIDES[0])),
                ChainedSteps((_grouped, _packed(*newest_pack(right, slots, SIDES[1])))),
            ],
            processor_of(plan, operator_folder(str(checkpoint), "latest", 1)),
        )

    def run(
        self, tasks: list[Batches], states: States, record: Any, batch: int, chance: random.Random, twins: float
    ) -> list[Batches]:
        """A batch of both."""
        newest = self._versions.run(tasks, states, record, batch, chance, twins)
        return self._join.run(newest, states, record, batch, chance, twins, tasks)


def _packed(columns: list[str], step: ArrowStep) -> ArrowStep:
    return ChainedSteps((choosing(columns), step))


def _grouped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A step of the job: each row's group; punctuation has none."""
    for batch in batches:
        group = pa.array(pc.fill_null(batch.column("t"), 0).to_numpy() // _STEP_US % GROUPS)
        mark = pc.struct_field(batch.column(SYSTEM), "punctuation")
        yield batch.append_column(GROUP, pc.if_else(mark, pa.scalar(None, pa.int64()), group))


NAMED = pa.schema([("k", pa.int64()), ("name", pa.string())])
Names = dict[str, str]
"""The rows of the table: keys, as JSON has them, and names."""


def table_at(checkpoint: Path) -> str:
    """Where the table of a query is, whatever becomes of its checkpoint."""
    return str(checkpoint.parent / "names")


def change_table(checkpoint: Path, names: Names) -> None:
    """Write another version of the table."""
    rows = pa.table({"k": [int(key) for key in names], "name": [*names.values()]}, schema=NAMED)
    write_deltalake(table_at(checkpoint), rows, mode="overwrite")


class TableStage:
    """The join; `number` counts the operators."""

    waits = False

    def __init__(self, number: int, how: Any, rows: pa.Schema, checkpoint: Path) -> None:
        self._number = number
        place = table_at(checkpoint)
        plan = planned(rows, NAMED, place, {"k": "k"}, how, None, "_right", {})
        self._lookup = TableLookup(plan, str(checkpoint))
        self._versions = VersionReader(place, {})

    def offset(self) -> dict[str, Any]:
        """What Spark journals of the table for the next batch."""
        return self._versions.latestOffset({}, self._versions.getDefaultReadLimit())

    def run(
        self, tasks: list[Batches], states: States, record: Any, batch: int, chance: random.Random, twins: float
    ) -> list[Batches]:
        """A batch of it, task by task."""
        del states
        given = [[*self._lookup(iter(task))] for task in tasks]
        if chance.random() < twins and given != [[*self._lookup(iter(task))] for task in tasks]:
            raise MismatchError("a join with a table gives something else when a task is run again")
        record.by_shard[self._number, batch] = [(0, pa.Table.from_batches(each)) for each in given if each]
        return given
