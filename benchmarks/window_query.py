"""Window operators without Spark: what tasks and shards do to a batch, by the same classes, counted and timed."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from upstream.core.feedback.reports import WindowReport
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, TIMESTAMP, system_array
from upstream.operators.aggregates.algebra import Aggregates, Codes
from upstream.operators.aggregates.functions import count
from upstream.operators.aggregates.groups import GroupedRows, Groups
from upstream.operators.aggregates.parts import Aggregate, State, StatePart
from upstream.operators.runtime.feeds import punctuation_rows
from upstream.operators.state.store import DictStore
from upstream.operators.windows.kinds import SlidingWindows
from upstream.operators.windows.shards.plan import ROWS, Method, WindowPlan
from upstream.operators.windows.shards.results import frames_of
from upstream.operators.windows.shards.shard import WindowShard

__all__ = ["SCHEMA", "CountedAggregates", "Query", "rows_table", "window_plan"]

Int64s = npt.NDArray[np.int64]

SCHEMA = pa.schema([("key", pa.int64()), ("time", TIMESTAMP), ("v", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])
"""Of the rows of all figures. Row numbers are microseconds too."""


class CountedAggregates(Aggregates):
    """Counts how often a value is added to an aggregate: a row that is lifted, a partial aggregate that is combined.

    Where a query has several aggregates, that of most work counts: what cannot be subtracted.
    """

    operations = 0

    def lift(self, rows: pa.Table | pa.RecordBatch, codes: Codes, groups: int) -> pa.Table:
        """See :class:`~upstream.operators.aggregates.algebra.Aggregates`."""
        self.operations += rows.num_rows
        return super().lift(rows, codes, groups)

    def split(self, state: pa.Table) -> list[tuple[StatePart, State]]:
        """See :class:`~upstream.operators.aggregates.algebra.Aggregates`."""
        most = next((part for part in self.parts if not part.exact), self.parts[0])
        return [(_CountedPart(part, self) if part is most else part, columns) for part, columns in super().split(state)]


class _CountedPart(StatePart):
    def __init__(self, part: StatePart, counted: CountedAggregates) -> None:
        self.key, self.inputs, self.fields = part.key, part.inputs, part.fields
        self.differential, self.exact = part.differential, part.exact
        self._part, self._counted = part, counted

    def lift(self, rows: GroupedRows) -> State:
        return self._part.lift(rows)

    def combine(self, state: State, groups: Groups) -> State:
        self._counted.operations += len(state[0])
        return self._part.combine(state, groups)

    def retract(self, state: State, other: State) -> State:
        return self._part.retract(state, other)

    def running(self, state: State) -> Sequence[Int64s]:
        self._counted.operations += len(state[0])
        return self._part.running(state)

    def between(self, running: Sequence[Int64s], low: Int64s, high: Int64s) -> State:
        self._counted.operations += len(low)
        return self._part.between(running, low, high)


class _CountedPlan(WindowPlan):
    @cached_property
    def algebra(self) -> CountedAggregates:
        """The same, counting."""
        plans = {**self.aggregates, ROWS: count()}
        return CountedAggregates({name: aggregate.plan(self.schema) for name, aggregate in plans.items()})


def window_plan(
    windows: SlidingWindows,
    aggregates: Mapping[str, Aggregate],
    method: Method = "paned",
    *,
    emit: Literal["all", "lazy"] = "all",
    slack_us: int | None = None,
) -> WindowPlan:
    """Return a plan for rows of :data:`SCHEMA` in one shard that counts its operations."""
    return _CountedPlan(
        key=("key",),
        time="time",
        time_format=None,
        time_zone="UTC",
        windows=windows,
        aggregates=aggregates,
        emit=emit,
        method=method,
        lateness_us=0,
        shards=1,
        schema=SCHEMA,
        slack_us=slack_us,
    )


def rows_table(key: Int64s, time_us: Int64s, value: Int64s, feed: str = "feed") -> pa.Table:
    """Return rows in the form in which a source emits them."""
    number = np.arange(len(key), dtype=np.int64)
    system = system_array(source=feed, seq=number, arrival_us=np.zeros(len(key), dtype=np.int64))
    return pa.table([pa.array(key), pa.array(time_us).cast(TIMESTAMP), pa.array(value), system], schema=SCHEMA)


@dataclasses.dataclass
class Query:
    """A window query that runs batch by batch.

    Attributes
    ----------
    plan : WindowPlan
    store : DictStore
        What is kept.
    report : WindowReport or None
        The shard's last one.
    cpu_s : float
        Processor time of tasks and shard.
    batches : int
        How many there were.
    """

    plan: WindowPlan
    store: DictStore = dataclasses.field(default_factory=DictStore)
    report: WindowReport | None = None
    cpu_s: float = 0.0
    batches: int = 0

    @property
    def operations(self) -> int:
        """How often a value was added to an aggregate."""
        algebra = self.plan.algebra
        assert isinstance(algebra, CountedAggregates)
        return algebra.operations

    @property
    def kept_bytes(self) -> int:
        """Size of the partial aggregates and rows that are kept, and of what decides between them."""
        return sum(len(value) for (kind, _), value in self.store.values.items() if kind in ("run", "rows", "modes"))

    def batch(self, rows: pa.Table | None, bounds: Mapping[str, int | None] | None = None) -> list[dict[str, Any]]:
        """Take rows, and punctuation by feed (None: the feed has ended); returns the results."""
        tables = [] if rows is None else [rows]
        for feed, bound in (bounds or {}).items():
            at = pa.array([bound], pa.int64()).cast(TIMESTAMP)
            tables.append(punctuation_rows(SCHEMA, [feed], 0, time=at).cast(SCHEMA))
        return self.run(pa.concat_tables(tables))

    def run(self, table: pa.Table) -> list[dict[str, Any]]:
        """Take rows and punctuation of :data:`SCHEMA`; returns the results."""
        began = time.process_time()
        final = None if self.report is None else self.report.final
        packed = frames_of(table, self.plan, [0], final)
        shard = WindowShard(0, self.plan, self.store)
        found, self.report = shard.run(packed.column(1).to_pylist())
        self.cpu_s += time.process_time() - began
        self.batches += 1
        if found is None:
            return []
        mark = pc.struct_field(found.column(SYSTEM), "punctuation")
        return found.filter(pc.invert(mark)).drop_columns([SYSTEM]).to_pylist()
