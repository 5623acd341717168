"""A join without Spark: what its shard does to a batch, by the same classes, timed."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Collection
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from upstream.core.rows.frames import from_frame, split_punctuation, to_frame
from upstream.core.rows.system_column import TIMESTAMP, system_field
from upstream.operators.joins.band import SIDES, JoinTimeRange
from upstream.operators.joins.plan import JoinPlan, JoinSide
from upstream.operators.joins.shard import JoinShard
from upstream.operators.reorder.shard import ReorderPlan, ReorderShard
from upstream.operators.runtime.feeds import punctuation_rows
from upstream.operators.state.store import DictStore

from .window_query import SCHEMA

__all__ = ["JoinQuery", "Needed", "Reordered", "in_step", "punctuated"]


def punctuated(feed: str, bound_us: int) -> pa.Table:
    """Return one row of punctuation: no later row of the feed has an earlier time."""
    at = pa.array([bound_us], pa.int64()).cast(TIMESTAMP)
    return punctuation_rows(SCHEMA, [feed], 0, time=at).cast(SCHEMA)


@dataclasses.dataclass(frozen=True)
class Needed:
    """The kept rows that are needed: those that may still meet others, or that wait for their turn.

    A state drops rows in parts of about two thousand, and keeps a part until its last row is not needed.

    Attributes
    ----------
    rows : int
    size : int
        Their bytes, as they are written to state.
    more : int
        Kept rows that are not needed.
    """

    rows: int = 0
    size: int = 0
    more: int = 0

    def __add__(self, other: Needed) -> Needed:
        """Return the sum of two states."""
        return Needed(self.rows + other.rows, self.size + other.size, self.more + other.more)


def _needed(store: DictStore, kinds: Collection[str], first_us: int) -> Needed:
    """Return the rows of some kinds whose times are not earlier."""
    frames = [from_frame(value) for (kind, _), value in store.values.items() if kind in kinds]
    if not frames:
        return Needed()
    kept = pa.concat_tables(frames)
    rows = kept.filter(pc.greater_equal(kept.column("time").cast(pa.int64()), first_us)).combine_chunks()
    return Needed(rows.num_rows, len(to_frame(rows)), kept.num_rows - rows.num_rows)


def _head(store: DictStore) -> dict[str, Any]:
    found = store.get("head", 0)
    return {} if found is None else json.loads(found)


@dataclasses.dataclass
class JoinQuery:
    """An inner join of rows of :data:`~benchmarks.window_query.SCHEMA` that runs batch by batch, in one shard.

    Attributes
    ----------
    band : Band
        Which times meet, in microseconds.
    store : DictStore
        What is kept.
    cpu_s : float
        Processor time so far.
    """

    band: JoinTimeRange
    store: DictStore = dataclasses.field(default_factory=DictStore)
    cpu_s: float = 0.0

    @property
    def plan(self) -> JoinPlan:
        """The join."""
        side = JoinSide(("key",), "time", SCHEMA)
        return JoinPlan(side, side, self.band)

    @property
    def kept_bytes(self) -> int:
        """Size of the rows that are kept."""
        return sum(len(value) for (kind, _), value in self.store.values.items() if kind in SIDES)

    @property
    def needed(self) -> Needed:
        """The kept rows that may still meet others."""
        head = _head(self.store)
        both = (_needed(self.store, {side}, head[side]["from"]) for side in SIDES if side in head)
        return sum(both, Needed())

    def run(self, left: pa.Table, right: pa.Table) -> pa.Table:
        """Take rows and punctuation of both sides; returns the pairs."""
        began = time.process_time()
        plan = self.plan
        result, _ = JoinShard(0, plan, self.store).run([to_frame(left)], [to_frame(right)])
        pairs, _ = split_punctuation(plan.schema.empty_table() if result is None else result)
        self.cpu_s += time.process_time() - began
        return pairs


@dataclasses.dataclass
class Reordered:
    """A union of inputs, or rows in the order of time: the stream's ``union``, ``merge`` and ``ordered``.

    Attributes
    ----------
    inputs : tuple of str
        Their names, with which the names of their feeds begin; none for one input.
    hold : bool
        Whether rows wait until they are in order.
    store : DictStore
        What is kept.
    cpu_s : float
        Processor time so far.
    """

    inputs: tuple[str, ...] = ()
    hold: bool = True
    store: DictStore = dataclasses.field(default_factory=DictStore)
    cpu_s: float = 0.0

    @property
    def kept_bytes(self) -> int:
        """Size of what is kept of rows."""
        return sum(len(value) for (kind, _), value in self.store.values.items() if kind != "head")

    @property
    def needed(self) -> Needed:
        """The rows that wait for their turn."""
        last_us, _ = _head(self.store).get("last", (-1, 0))
        return _needed(self.store, {"held"}, last_us + 1)

    def run(self, tables: list[pa.Table]) -> pa.Table:
        """Take rows and punctuation; returns what leaves."""
        began = time.process_time()
        operator = ("merge" if self.hold else "union") if self.inputs else "ordered"
        plan = ReorderPlan(operator, ("key",), ("key",), "time", self.inputs, hold=self.hold)
        result, _ = ReorderShard(0, plan, self.store).run([to_frame(pa.concat_tables(tables))])
        self.cpu_s += time.process_time() - began
        return SCHEMA.empty_table() if result is None else result


def in_step(merge: Reordered, sides: tuple[pa.Table, pa.Table]) -> tuple[pa.Table, pa.Table]:
    """Return the rows of both sides that a merge in the order of time releases, with its punctuation on each side.

    Parameters
    ----------
    merge
        Of the inputs ``left`` and ``right``.
    sides
        Rows and punctuation of feeds whose names begin with those.
    """
    rows, punctuation = split_punctuation(merge.run(list(sides)))
    bounds = punctuation.column("time").cast(pa.int64()).to_pylist()
    source = system_field(rows, "source")
    left, right = (
        pa.concat_tables(
            [rows.filter(pc.starts_with(source, f"{side}/")), *(punctuated(f"{side}/merge", each) for each in bounds)]
        )
        for side in SIDES
    )
    return left, right
