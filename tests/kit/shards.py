"""A plan, and batches of frames, for each class of shards."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from upstream.core.rows.frames import to_frame
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, TIMESTAMP, system_array
from upstream.core.watermark.policies import Policy
from upstream.operators.aggregates.functions import count, sum_
from upstream.operators.grouped.plan import GroupPlan, GroupWindowPlan
from upstream.operators.ingest.plan import ARRIVAL, FEED, IntakePlan
from upstream.operators.ingest.shard import frames_of
from upstream.operators.joins.band import IntervalBand
from upstream.operators.joins.latest_plan import LatestJoinPlan, LatestSide, VersionPlan
from upstream.operators.joins.plan import AsOfPlan, JoinPlan, JoinSide
from upstream.operators.queue.queue import Control, ShardPlan
from upstream.operators.reorder.shard import ReorderPlan
from upstream.operators.runtime.feeds import punctuation_rows
from upstream.operators.shards import shard_class
from upstream.operators.windows.kinds import SlidingWindows
from upstream.operators.windows.sessions import SessionWindows
from upstream.operators.windows.shards.plan import NUMBER, WindowPlan
from upstream.operators.windows.shards.row_numbers import NumberingPlan

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])
BATCHES = (
    ([(1, 3), (2, 5), (1, 4)], 2),
    ([(1, 12), (3, 8)], 10),
    ([(2, 11), (1, 1), (3, 13)], 12),  # the second is late
    ([(2, 25), (1, 24)], 22),
)
"""Rows (key, time), and the bound of their feed after them."""


class ShardCase(NamedTuple):
    """A plan, plans that its state refuses, and whether it is that of the newest rows ahead of windows by group."""

    plan: Any
    others: tuple[Any, ...]
    versions: bool = False

    def shard(self, store, plan=None):
        """A shard that has just read its state."""
        return shard_class(plan or self.plan, versions=self.versions)(0, plan or self.plan, store)

    def inputs(self, number):
        """The frames of both sides in a batch, and the control; nothing new in one after the last."""
        rows, bound = BATCHES[number] if number < len(BATCHES) else ([], None)
        if isinstance(self.plan, IntakePlan):
            return _unmarked(rows, number), [], None
        if isinstance(self.plan, NumberingPlan) and not rows:
            return [], [], None
        frames = [to_frame(pa.concat_tables([_table(rows, number), _punctuation(bound)]))]
        two = isinstance(self.plan, JoinPlan | AsOfPlan | LatestJoinPlan)
        control = Control(1000 + number, 1).to_json() if isinstance(self.plan, ShardPlan) else None
        return frames, frames if two else [], control


def _table(rows, number):
    """Rows whose batch is their arrival."""
    n = len(rows)
    columns = [pa.array([row[at] for row in rows], pa.int64()) for at in (0, 1)]
    system = system_array(source="f", seq=np.arange(n) + 10 * number, arrival_us=np.full(n, 100 + number))
    return pa.table([*columns, pa.array(range(n), pa.int64()), system], schema=SCHEMA)


def _punctuation(bound):
    if bound is None:
        return SCHEMA.empty_table()
    return punctuation_rows(SCHEMA, ["f"], 100, t=pa.array([bound], pa.int64())).cast(SCHEMA)


def _unmarked(rows, number):
    """Rows as a DataFrame has them, one of them without a key."""
    n = len(rows) + 1
    columns = {
        "k": pa.array([*(key for key, _ in rows), None], pa.int64()),
        "t": pa.array([*(time for _, time in rows), 0], pa.int64()),
        "v": pa.array(range(n), pa.int64()),
        FEED: ["f"] * n,
        ARRIVAL: pa.array([100 + number] * n).cast(TIMESTAMP),
    }
    return frames_of(pa.table(columns), [0], (0, 0), every_shard=True).column("frame").to_pylist() if rows else []


def _windows(windows, **changes):
    given = WindowPlan(
        ("k",), "t", "epoch_us", "UTC", windows, {"n": count()}, "all", "paned", 0, 1, SCHEMA
    )  # fmt: skip
    return dataclasses.replace(given, **changes)


_SIDE, _KEYED = JoinSide(("k",), "t", SCHEMA), JoinSide(("k",), "t", SCHEMA, ("k",))
_NEWEST = LatestSide(("k",), "", SCHEMA, ("k",), "t")
_UNMARKED = pa.schema([field for field in SCHEMA if field.name != SYSTEM])
_WINDOWS = GroupWindowPlan(_windows(SlidingWindows(10, 10)), ("k",), "t", "window")
_GROUPS = GroupPlan(LatestSide(("k",), "", SCHEMA, ("k",), "t", ("v",)), {"total": sum_("v")}, 1)
_INTAKE = IntakePlan(
    name="rows", key=("k",), time="t", time_format="epoch_us", time_zone="UTC", policy=Policy("bounded", 2),
    fail=False, shards=1, schema=_UNMARKED,
)  # fmt: skip


def _case(plan, *changes, versions=False):
    return ShardCase(plan, tuple(dataclasses.replace(plan, **each) for each in changes), versions)


CASES = {
    "intake": _case(_INTAKE, {"shards": 2}, {"time": None}),
    "queue": _case(ShardPlan(("k",), "t", 1, "in-place"), {"key": ("v",)}, {"time": None}, {"shards": 2}),
    "reorder": _case(ReorderPlan("ordered", ("k",), ("k",), "t", hold=True), {"inputs": ("f", "g")}, {"by": ("v",)}),
    "union": _case(ReorderPlan("union", ("k",), ("k",), "t", late="refuse"), {"name": "merge"}),
    "windows": _case(
        _windows(SlidingWindows(10, 10)), {"windows": SlidingWindows(10, 5)}, {"shards": 2}, {"key": ("v",)}
    ),
    "windows over rows": _case(
        _windows(SlidingWindows(2, 1, attribute="rank"), time=None),
        {"windows": SlidingWindows(3, 1, attribute="rank")},
    ),
    "sessions": _case(_windows(SessionWindows(4)), {"windows": SessionWindows(5)}),
    "row numbers": ShardCase(
        NumberingPlan(pa.schema([SCHEMA.field("v"), (NUMBER, pa.int64()), SCHEMA.field(SYSTEM)])), ()
    ),
    "join": _case(
        JoinPlan(_SIDE, _SIDE, IntervalBand(2, 3), how="left"),
        {"band": IntervalBand(2, 4)},
        {"how": "inner"},
        {"condition": "l.v > 1"},
        {"output": "latest"},
        {"early": True},
    ),
    "as of": _case(AsOfPlan(_SIDE, _SIDE), {"how": "left"}, {"tolerance": 3}),
    "early as of": _case(AsOfPlan(_KEYED, _SIDE, early=True), {"how": "left"}, {"tolerance": 3}),
    "versions": _case(VersionPlan(_NEWEST, 1), {"shards": 2}),
    "latest join": _case(LatestJoinPlan(_NEWEST, _NEWEST), {"how": "left"}, {"shards": 2}),
    "groups": _case(_GROUPS, {"aggregates": {"n": count()}}, {"shards": 2}),
    "windows by group": _case(_WINDOWS, {"window": _windows(SlidingWindows(5, 5))}),
    "newest rows of windows": _case(_WINDOWS, {"window": _windows(SlidingWindows(5, 5))}, versions=True),
}
