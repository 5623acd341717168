"""Several aggregates over one set of rows, and the state that they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...conf.errors import CheckpointError, OptionError
from .groups import Groups, Rows, as_array
from .parts import Aggregate, Part, Plan, State

__all__ = ["Aggregates", "StateSize"]

Codes = npt.NDArray[np.integer]


class StateSize(NamedTuple):
    """What a state takes.

    Parameters
    ----------
    groups : int
        How many groups it has.
    columns : int
        How many columns each has.
    bytes : int
        All of it, in memory.
    """

    groups: int
    columns: int
    bytes: int


class Aggregates:
    """Aggregates that are computed together: rows are lifted into states, states combined, retracted and lowered to
    results.

    A state is a table with a row per group, so it can be filtered, concatenated, shuffled and stored as rows are. The
    holder of a state keeps the group of each of its rows. All methods work on all groups at once, and none changes what
    it is given.

    Parameters
    ----------
    plans : mapping of str to Plan
        How each result is computed. See :meth:`of`.

    Attributes
    ----------
    inputs : tuple of str
        Columns that are read of the rows.
    state_schema, result_schema : pyarrow.Schema
        Of states, and of results. The names of a state's columns contain their meaning and version: they may be stored.
    parts : tuple of Part
        What the aggregates keep, each part once.
    differential : bool
        Whether all of the aggregates can be retracted.

    Examples
    --------
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
        parts: dict[str, Part] = {}
        for plan in plans.values():
            for part in plan.parts:
                kept = parts.setdefault(part.key, part)
                if (kept.inputs, kept.fields) != (part.inputs, part.fields):
                    raise OptionError(
                        f"two aggregates keep different things as {part.key}",
                        expected="names of columns and aggregates that tell them apart",
                    )
        self.parts: tuple[Part, ...] = tuple(parts.values())
        self.inputs = tuple(dict.fromkeys(name for part in self.parts for name in part.inputs))
        self.state_schema = pa.schema(
            [pa.field(f"{part.key}.{field.name}", field.type) for part in self.parts for field in part.fields]
        )
        self.result_schema = pa.schema([pa.field(name, plan.type) for name, plan in plans.items()])
        self.differential = all(part.differential for part in self.parts)

    @classmethod
    def of(cls, aggregates: Mapping[str, Aggregate], schema: pa.Schema) -> Aggregates:
        """Plan aggregates of rows of a schema; what several of them need is kept once.

        Parameters
        ----------
        aggregates : mapping of str to Aggregate
            The results' names, and what they are.
        schema : pyarrow.Schema
            Of the rows.

        Raises
        ------
        OptionError
            There is none, or two of the user's own have one name but different states.
        SchemaError
            A column does not exist, or has a type that an aggregate cannot take.
        """
        if not aggregates:
            raise OptionError("there is nothing to aggregate", expected="at least one aggregate, such as count()")
        return cls({name: aggregate.plan(schema) for name, aggregate in aggregates.items()})

    def lift(self, rows: pa.Table | pa.RecordBatch, codes: Codes, groups: int) -> pa.Table:
        """Return the state of each group of some rows.

        Parameters
        ----------
        rows : pyarrow.Table or RecordBatch
            They have at least the columns `inputs`.
        codes : int array of length rows
            The group of each row, from 0 to `groups` - 1.
        groups : int
            How many groups there are; those without rows get the state of no rows.
        """
        by = Groups(codes, groups)
        by.check(rows.num_rows)
        lifted = Rows({name: as_array(rows.column(name)) for name in self.inputs}, by)
        return self.table([part.lift(lifted) for part in self.parts])

    def combine(self, state: pa.Table, codes: Codes, groups: int) -> pa.Table:
        """Combine states into one state per group: of a window's panes, or of tasks that saw rows of one key.

        Parameters
        ----------
        state : pyarrow.Table
            States; those of several tables are concatenated.
        codes : int array of length states
            The group of each state, from 0 to `groups` - 1.
        groups : int
            How many groups there are.
        """
        by = Groups(codes, groups)
        by.check(state.num_rows)
        return self.table([part.combine(columns, by) for part, columns in self.split(state)])

    def retract(self, state: pa.Table, other: pa.Table) -> pa.Table:
        """Return each state without the rows of the other state beside it, which must be among its own rows.

        Raises
        ------
        OptionError
            One of the aggregates cannot be retracted; check `differential` first.
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
        """Compute the results of some states, one row per group.

        Raises
        ------
        AggregateOverflowError
            A sum does not fit its type.
        """
        columns = {part.key: columns for part, columns in self.split(state)}
        arrays = [plan.lower(columns) for plan in self._plans.values()]
        return pa.Table.from_arrays(arrays, schema=self.result_schema)

    def lowered(self, name: str, columns: Mapping[str, State]) -> pa.Array:
        """Compute one of the results from the columns of its :meth:`parts_of`, by the part's key.

        Raises
        ------
        AggregateOverflowError
            A sum does not fit its type.
        """
        return self._plans[name].lower(columns)

    def parts_of(self, name: str) -> tuple[Part, ...]:
        """Return the parts from which a result is computed."""
        return self._plans[name].parts

    def columns_of(self, name: str) -> list[str]:
        """Return the names of the state's columns from which a result is computed."""
        return [f"{part.key}.{field.name}" for part in self._plans[name].parts for field in part.fields]

    def empty(self, groups: int) -> pa.Table:
        """Return the state of groups without rows."""
        return self.combine(self.state_schema.empty_table(), np.empty(0, dtype=np.int64), groups)

    def size_of(self, state: pa.Table) -> StateSize:
        """Return the size of a state. Callers weigh its memory against that of the rows that it was made of."""
        return StateSize(state.num_rows, state.num_columns, state.nbytes)

    def table(self, states: Sequence[State]) -> pa.Table:
        """Return the columns of each part, in the order of `parts`, as a state."""
        return pa.Table.from_arrays([array for state in states for array in state], schema=self.state_schema)

    def split(self, state: pa.Table) -> list[tuple[Part, State]]:
        """Return each part with its columns of a state, of which others are passed over."""
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
