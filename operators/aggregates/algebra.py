"""Several aggregates over one set of rows, and their shared state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...conf.errors import CheckpointError, OptionError
from ...core.rows.columns import as_array
from ...core.rows.exact_integers import Int64s
from .groups import GroupedRows, Groups
from .parts import Aggregate, Plan, State, StatePart

Codes = npt.NDArray[np.integer]


class StateSize(NamedTuple):
    """The size of a state."""

    groups: int
    columns: int  # columns of each group
    bytes: int  # of the whole state, in memory


class Aggregates:
    """Aggregates that are computed together: lift rows into states, combine and retract states, lower them to results.

    A state is a table with a row per group, so it can be filtered, concatenated, shuffled and stored as rows are. Its
    holder keeps the group of each of its rows. Methods work on all groups at once and never change their arguments.

    `inputs` are the columns read from rows. The column names of `state_schema` contain their meaning and version, so
    they may be stored. `parts` are distinct. If `differential`, all of the aggregates can be retracted.

    >>> import numpy as np, pyarrow as pa
    >>> from upstream.operators.aggregates.functions import avg, count, sum_
    >>> rows = pa.table({"v": [1, 2, 3, None]})
    >>> aggregates = Aggregates.of({"total": sum_("v"), "mean": avg("v"), "n": count()}, rows.schema)
    >>> state = aggregates.lift(rows, np.array([0, 0, 1, 1]), 2)
    >>> aggregates.lower(state).to_pylist()
    [{'total': 3, 'mean': 1.5, 'n': 2}, {'total': 3, 'mean': 3.0, 'n': 2}]
    >>> aggregates.lower(aggregates.combine(state, np.array([0, 0]), 1)).to_pylist()
    [{'total': 6, 'mean': 2.0, 'n': 4}]
    """

    def __init__(self, plans: Mapping[str, Plan]) -> None:
        self._plans = dict(plans)
        parts: dict[str, StatePart] = {}
        for plan in plans.values():
            for part in plan.parts:
                kept = parts.setdefault(part.key, part)
                if (kept.inputs, kept.fields) != (part.inputs, part.fields):
                    raise OptionError(
                        f"two aggregates keep different things as {part.key}",
                        expected="different names of columns and aggregates",
                    )
        self.parts: tuple[StatePart, ...] = tuple(parts.values())
        self.inputs = tuple(dict.fromkeys(name for part in self.parts for name in part.inputs))
        self.state_schema = pa.schema(
            [pa.field(f"{part.key}.{field.name}", field.type) for part in self.parts for field in part.fields]
        )
        self.result_schema = pa.schema([pa.field(name, plan.type) for name, plan in plans.items()])
        self.differential = all(part.differential for part in self.parts)

    @classmethod
    def of(cls, aggregates: Mapping[str, Aggregate], schema: pa.Schema) -> Aggregates:
        """Plan aggregates, by result name, of rows of a schema; their common parts are computed once.

        Raise OptionError without aggregates, or if two custom ones have one name but different states. Raise
        SchemaError if a column is missing or has an unsuitable type.
        """
        if not aggregates:
            raise OptionError("there is nothing to aggregate", expected="at least one aggregate, such as count()")
        return cls({name: aggregate.plan(schema) for name, aggregate in aggregates.items()})

    def lift(self, rows: pa.Table | pa.RecordBatch, codes: Codes, groups: int) -> pa.Table:
        """Return each group's state, from the rows' groups `codes`. A group without rows gets the state of no rows."""
        by = Groups(codes, groups)
        by.check(rows.num_rows)
        lifted = GroupedRows({name: as_array(rows.column(name)) for name in self.inputs}, by)
        return self.table([part.lift(lifted) for part in self.parts])

    def combine(self, state: pa.Table, codes: Codes, groups: int) -> pa.Table:
        """Combine states into one per group, such as those of a window's panes. `codes` holds each state's group."""
        by = Groups(codes, groups)
        by.check(state.num_rows)
        return self.table([part.combine(columns, by) for part, columns in self.split(state)])

    def retract(self, state: pa.Table, other: pa.Table) -> pa.Table:
        """Return each state without the rows of the state beside it in `other`, which must be among its own rows.

        Raise OptionError unless all aggregates are `differential`.
        """
        if not self.differential:
            stuck = [part.key for part in self.parts if not part.differential]
            raise OptionError(
                f"{', '.join(stuck)} cannot be retracted",
                expected="differential aggregates: count, sum, avg, var, stddev, and your own with `retract`",
                hint="combine the states that remain instead",
            )
        if state.num_rows != other.num_rows:
            raise ValueError(f"{other.num_rows} states to take from {state.num_rows}: there must be one for each")
        pairs = zip(self.split(state), self.split(other), strict=True)
        return self.table([part.retract(left, right) for (part, left), (_, right) in pairs])

    def lower(self, state: pa.Table) -> pa.Table:
        """Compute the result of each state. Raise AggregateOverflowError if a sum does not fit its type."""
        columns = {part.key: columns for part, columns in self.split(state)}
        arrays = [plan.lower(columns) for plan in self._plans.values()]
        return pa.Table.from_arrays(arrays, schema=self.result_schema)

    def lowered(self, name: str, columns: Mapping[str, State]) -> pa.Array:
        """Compute one result, as :meth:`lower`, from the columns of its :meth:`parts_of` by their keys."""
        return self._plans[name].lower(columns)

    def parts_of(self, name: str) -> tuple[StatePart, ...]:
        return self._plans[name].parts

    def columns_of(self, name: str) -> list[str]:
        """Return the names of the state's columns from which a result is computed."""
        return [f"{part.key}.{field.name}" for part in self._plans[name].parts for field in part.fields]

    def empty(self, groups: int) -> pa.Table:
        return self.combine(self.state_schema.empty_table(), np.empty(0, dtype=np.int64), groups)

    def size_of(self, state: pa.Table) -> StateSize:
        return StateSize(state.num_rows, state.num_columns, state.nbytes)

    def table(self, states: Sequence[State]) -> pa.Table:
        """Join the columns of all `parts`, in their order, to a state."""
        return pa.Table.from_arrays([array for state in states for array in state], schema=self.state_schema)

    def split(self, state: pa.Table) -> list[tuple[StatePart, State]]:
        """Return each part with its columns of a state. Other columns are ignored."""
        missing = [field for field in self.state_schema if field not in state.schema]
        if missing:
            raise CheckpointError(
                f"the state has the columns {state.schema.names}",
                expected=f"{self.state_schema.names}",
                hint="aggregates, and the types of what they read, must be those that the state was made with; start "
                "with a new checkpoint",
            )
        columns = iter([as_array(state.column(name)) for name in self.state_schema.names])
        return [(part, [next(columns) for _ in part.fields]) for part in self.parts]


def combined_ranges(aggregates: Aggregates, state: pa.Table, low: Int64s, high: Int64s) -> pa.Table:
    """Return the state of each range ``low[i] <= row < high[i]`` of states; a range may be empty.

    At worst it costs two combined states for each state, and 2·log₂ n for each range of n states: see :class:`Ranges`.
    """
    return aggregates.table([Ranges(part, columns).of(low, high) for part, columns in aggregates.split(state)])


class Ranges:
    """States of one part, prepared for many queries of ranges.

    Integer sums are differences of running sums. Minima and maxima are found by :class:`Overlapping` if it fits into
    memory. Any other state is combined from a tree of halves.
    """

    def __init__(self, part: StatePart, state: State) -> None:
        self._part = part
        self._running = part.running(state) if part.exact else None
        self._overlapping = part.overlapping(state)
        self._levels: list[State] = [state]

    def of(self, low: Int64s, high: Int64s) -> State:
        """Return the state of each range ``low[i] <= row < high[i]``."""
        high = np.maximum(high, low)
        if self._running is not None:
            return self._part.between(self._running, low, high)
        if self._overlapping is not None and self._overlapping.fits(int((high - low).max(initial=0))):
            return [self._overlapping.of(low, high)]
        ranges = len(low)
        found: list[State] = []
        owner: list[Int64s] = []
        at = np.arange(ranges)
        for level in count():
            some = low < high
            low, high, at = low[some], high[some], at[some]
            if len(at) == 0:
                break
            state = self._level(level)
            odd = low & 1 == 1
            found.append(_taken(state, low[odd]))
            owner.append(at[odd])
            low = low + odd
            odd = (high & 1 == 1) & (low < high)
            found.append(_taken(state, high[odd] - 1))
            owner.append(at[odd])
            low, high = low >> 1, (high - odd) >> 1
        columns = [pa.concat_arrays(list(each)) for each in zip(*found, strict=True)] or _taken(self._levels[0], at)
        codes = np.concatenate(owner) if owner else at
        return self._part.combine(columns, Groups(codes, ranges))

    def _level(self, number: int) -> State:
        while len(self._levels) <= number:
            last = self._levels[-1]
            size = len(last[0])
            self._levels.append(self._part.combine(last, Groups(np.arange(size) >> 1, -(-size // 2))))
        return self._levels[number]


def _taken(state: State, at: Int64s) -> State:
    which = pa.array(at)
    return [each.take(which) for each in state]


def prefixes(aggregates: Aggregates, state: pa.Table, codes: Int64s) -> pa.Table:
    """Return each state combined with those before it in its group. States of one group (`codes`) are adjacent."""
    n = len(codes)
    if n == 0:
        return state
    begins = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
    return aggregates.table([_prefixes(part, columns, begins, n) for part, columns in aggregates.split(state)])


def _prefixes(part: StatePart, state: State, begins: Int64s, n: int) -> State:
    one_by_one = part.prefixes(state, begins)
    if one_by_one is not None:
        return one_by_one
    rank = np.arange(n) - np.repeat(begins, np.diff(np.append(begins, n)))
    step, longest = 1, int(rank.max()) + 1
    rows = np.arange(n)
    while step < longest:
        # Combine each state with the one `step` before it, which covers as many states.
        behind = rows[rank >= step]
        both = [pa.concat_arrays(each) for each in zip(state, _taken(state, behind - step), strict=True)]
        state = part.combine(both, Groups(np.concatenate([rows, behind]), n))
        step *= 2
    return state
