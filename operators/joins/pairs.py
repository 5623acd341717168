"""Pairs of rows as rows of a join's results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...conf.errors import QueryError
from ...core.rows.columns import as_array
from ...core.rows.exact_integers import LOWEST, Int64s
from ...core.rows.newest import key_codes
from ...core.rows.sort_keys import ordered
from ...core.rows.system_column import SYSTEM, system_array
from ..runtime.pack import micros
from ..state.entries import PANE
from ..state.runs import Run, Runs
from ..state.store import Store
from .band import LEFT, RIGHT, JoinTimeRange
from .latest_plan import LatestJoinPlan
from .pair_kernel import SortedRows, equal_keys, key_numbers, matches, sorted_rows
from .plan import JOIN_TIME, ROW_NUMBERS, JoinPlan
from .side import NUMBER, ROW

PairCondition = Callable[[pa.Table, Int64s, pa.Table, Int64s], pa.Array]
"""A function of the left's rows, positions in them, the right's rows, and positions in them: a mask of valid pairs."""


class Pairs:
    """The results of a batch; `rows` counts them."""

    def __init__(self, plan: JoinPlan) -> None:
        self._plan = plan
        self._tables: list[pa.Table] = []
        self._arrivals: list[Int64s] = []
        self._back = 0
        self.rows = 0

    def add(self, left: SortedRows, at: Int64s, right: SortedRows, other: Int64s) -> None:
        plan = self._plan
        one, two = left.table, right.table
        positions = (pa.array(at), pa.array(other))
        columns: dict[str, Any] = {
            each.name: (one, two)[each.side].column(each.source).take(positions[each.side]) for each in plan.columns
        }
        later = left.times[at] >= right.times[other]
        times = [
            rows.column(side.time).take(where)
            for rows, side, where in zip((one, two), plan.sides, positions, strict=True)
        ]
        columns[JOIN_TIME] = pc.if_else(pa.array(later), times[LEFT], times[RIGHT])
        if plan.output == "all":
            columns |= {
                name: rows.column(ROW).take(where)
                for name, rows, where in zip(ROW_NUMBERS, (one, two), positions, strict=True)
            }
        arrival = np.maximum(micros(one, "arrival")[at], micros(two, "arrival")[other])
        self._append(columns, arrival)

    def take_back(self, side: int, rows: pa.Table, arrival: Int64s) -> None:
        """Add tombstones of rows that were emitted without a partner, ahead of the batch's pairs.

        The rows have met their first partner, which arrived at `arrival`, in microseconds.
        """
        plan = self._plan
        columns = self._alone(side, rows)
        for name in columns:
            if name not in (*plan.key, plan.time):
                columns[name] = pa.nulls(rows.num_rows, plan.schema.field(name).type)
        self._append(columns, np.maximum(micros(rows, "arrival"), arrival), first=True)
        self._back += rows.num_rows

    def add_unmatched(self, side: int, rows: pa.Table) -> None:
        """Add rows of one side without a partner, with nulls for the other's columns."""
        self._append(self._alone(side, rows), micros(rows, "arrival"))

    def _alone(self, side: int, rows: pa.Table) -> dict[str, Any]:
        plan = self._plan
        columns: dict[str, Any] = {}
        for each in plan.columns:
            if each.side == side:
                columns[each.name] = rows.column(each.source)
            elif each.name in plan.left.on:  # the key is one column, from the row that exists
                columns[each.name] = rows.column(plan.right.on[plan.left.on.index(each.name)])
            else:
                columns[each.name] = pa.nulls(rows.num_rows, plan.schema.field(each.name).type)
        if not plan.left_alone:
            columns[JOIN_TIME] = rows.column(plan.sides[side].time)
        for at, name in enumerate(ROW_NUMBERS):
            if name in plan.schema.names:
                columns[name] = rows.column(ROW) if at == side else np.full(rows.num_rows, -1, dtype=np.int64)
        return columns

    def add_left(self, rows: pa.Table) -> None:
        self.rows += rows.num_rows
        self._tables.append(rows.select(self._plan.schema.names).cast(self._plan.schema))

    def table(self, shard: int, first: int) -> pa.Table:
        """Return all results, numbered from `first` on; `shard` names their input partition."""
        schema = self._plan.schema
        if not self._tables:
            return schema.empty_table()
        found = pa.concat_tables(self._tables)
        if SYSTEM in found.column_names:
            return found
        system = system_array(
            source=f"join/{shard}",
            seq=first + np.arange(found.num_rows, dtype=np.int64),
            arrival_us=np.concatenate(self._arrivals),
            deleted=np.arange(found.num_rows) < self._back if self._back else None,
        )
        return found.append_column(schema.field(SYSTEM), pa.chunked_array([system]).cast(schema.field(SYSTEM).type))

    def _append(self, columns: dict[str, Any], arrival: Int64s, *, first: bool = False) -> None:
        names = [name for name in self._plan.schema.names if name != SYSTEM]
        place = 0 if first else len(self._tables)
        self._tables.insert(place, pa.table({name: columns[name] for name in names}).cast(pa.schema(
            [self._plan.schema.field(name) for name in names]
        )))  # fmt: skip
        self._arrivals.insert(place, arrival)
        self.rows += len(arrival)


def pair_condition(plan: JoinPlan | LatestJoinPlan) -> PairCondition | None:
    """Return a plan's condition over pairs, None if it has none."""
    evaluator = plan.pair_condition
    if evaluator is None:
        return None
    sides = [tuple(name.split(".", 1)) for name in evaluator.reads]

    def holds(left: pa.Table, at: Int64s, right: pa.Table, other: Int64s) -> pa.Array:
        rows = {"l": (left, pa.array(at)), "r": (right, pa.array(other))}
        columns = [rows[side][0].column(name).take(rows[side][1]) for side, name in sides]
        made, failed = evaluator.evaluate(pa.table(columns, names=evaluator.reads))
        if failed:
            raise QueryError(
                f"condition={plan.condition!r} has no value for {failed['holds'].sum()} pairs",
                expected="a condition with a value for each pair",
                hint="use a try_ form, such as try_cast or try_divide, which gives null",
            )
        return as_array(pc.fill_null(made["holds"], False))

    return holds


def supersedes(plan: JoinPlan, side: int) -> bool:
    """Return whether, by the condition, a newer row of a side meets all that an older one of its key meets."""
    if plan.output != "latest" or plan.pair_condition is None:
        return plan.output == "latest"
    return {name[2:] for name in plan.pair_condition.reads if name[0] == "lr"[side]} <= set(plan.sides[side].on)


_LOW, _HIGH = "__upstream_low", "__upstream_high"


class NewestPairs:
    """The last emitted result of each key, as long as another pair may have the same time.

    A latest table takes the row with the greatest time, and of two with one time the one that arrives later. A pair of
    an older row, found late, must not replace the newer pair with the same time. A pair is newer than a row without a
    partner at its time, since such a row may have been emitted early.
    """

    def __init__(self, store: Store, plan: JoinPlan, known: Sequence[Any]) -> None:
        self._plan = plan
        self._given = Runs(store, "newest", known, 1)
        # A time that is one of the columns of `on` is there once, under the left's name.
        names = dict(zip(plan.right.on, plan.left.on, strict=True))
        names |= {each.source: each.name for each in plan.columns if each.side == RIGHT}
        self._other_time = names[plan.right.time]

    @property
    def known(self) -> list[Run]:
        return self._given.known

    @property
    def bytes(self) -> int:
        return self._given.bytes

    def filtered(self, results: pa.Table, promised: int) -> pa.Table:
        """Return the newest result of each key, unless a newer one with its time was emitted before.

        Later results are not before `promised`.
        """
        plan, segment = self._plan, self._plan.band.segment
        if results.num_rows:
            keys = list(plan.left.on)
            low, high = self._times(results)
            codes, size = key_codes([results.column(name) for name in keys])
            last = np.full(size, -1)
            order = np.lexsort((low, high))
            last[codes[order]] = order  # of equal indices the last one stays
            best = np.sort(last[last >= 0])
            results, low, high = results.take(pa.array(best)).combine_chunks(), low[best], high[best]
            numbers = key_numbers([results.column(name) for name in keys])
            stale = np.zeros(len(low), dtype=np.bool_)
            for table in self._given.tables(int(high.min()) // segment, int(high.max()) // segment):
                rows = sorted_rows(table.column(NUMBER).to_numpy(), table.column(_HIGH).to_numpy(), table)
                for at, there in matches(numbers, high, high, rows):
                    newer = rows.table.column(_LOW).to_numpy()[there] > low[at]
                    if not plan.exact:
                        same = equal_keys(results, plan.left.on, at, rows.table, plan.left.on, there)
                        newer &= same.to_numpy(zero_copy_only=False)
                    stale[at[newer]] = True
            results, low, high, numbers = results.filter(pa.array(~stale)), low[~stale], high[~stale], numbers[~stale]
            again = pa.array(high >= promised)
            kept = results.select(keys)
            for name, values in ((PANE, high // segment), (NUMBER, numbers), (_LOW, low), (_HIGH, high)):
                kept = kept.append_column(name, pa.array(values))
            self._given.add(kept.filter(again))
        self._given.drop_below(promised // segment)
        return results

    def _times(self, results: pa.Table) -> tuple[Int64s, Int64s]:
        """Return the earlier and the later time of each result's two rows; `LOWEST` for a missing row."""
        high = ordered(results.column(JOIN_TIME)).astype(np.int64, copy=False)
        low = high
        for name in (self._plan.left.time, self._other_time):
            if name not in results.column_names:
                continue
            column = results.column(name)
            there = column.is_valid().to_numpy()
            times = np.full(len(high), LOWEST, dtype=np.int64)
            times[there] = ordered(column.filter(pc.is_valid(column)))
            low = np.minimum(low, times)
        return low, high


def superseded(
    rows: SortedRows, names: tuple[str, ...], exact: bool, band: JoinTimeRange, side: int, bound: int
) -> Int64s:
    """Return the positions of rows whose later pairs are all older than another pair of their key.

    A newer row of the key meets all that the row may still meet, and each such pair is newer. Rows of one time stay
    together: the later arrival of their pairs counts, and is not known here. No later row of the other side is before
    `bound`.
    """
    numbers, times = rows.numbers, rows.times
    if len(numbers) < 2:
        return np.empty(0, dtype=np.int64)
    other_key = numbers[1:] != numbers[:-1]
    begins = np.flatnonzero(np.concatenate([[True], other_key | (times[1:] != times[:-1])]))
    ends = np.append(begins[1:], len(numbers))
    newer = np.repeat(ends, ends - begins)  # the first row with a later time, if it has the key
    at = np.flatnonzero(newer < len(numbers))
    at = at[numbers[newer[at]] == numbers[at]]
    least = band.partners(side, times)[0]
    # Later rows that meet the older row are not before the first partner of the newer one.
    at = at[least[newer[at]] <= np.maximum(least[at], bound)]
    if not exact and len(at):
        at = at[_same(rows, names, at, newer[at])]
    return at


def _same(rows: SortedRows, names: tuple[str, ...], at: Int64s, newer: Int64s) -> npt.NDArray[np.bool_]:
    return equal_keys(rows.table, names, at, rows.table, names, newer).to_numpy(zero_copy_only=False)
