"""Several aggregates over one set of rows, and their shared state."""

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
        """Plan aggregates, by result name, of rows of a schema; their common parts are computed once.

        Raise OptionError without aggregates, or if two custom ones have one name but different states. Raise
        SchemaError if a column is missing or has an unsuitable type.
        """
        if not aggregates:
            raise OptionError("there is nothing to aggregate", expected="at least one aggregate, such as count()")
        return cls({name: aggregate.plan(schema) for name, aggregate in aggregates.items()})

    def lift(self, rows: pa.Table | pa.RecordBatch, codes: Codes, groups: int) -> pa.Table:
        """Return the state of each group of some rows.

        `codes` holds each row's group, from 0 to ``groups - 1``. A group without rows gets the state of no rows.
        """
        by = Groups(codes, groups)
        by.check(rows.num_rows)
        lifted = Rows({name: as_array(rows.column(name)) for name in self.inputs}, by)
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

    def parts_of(self, name: str) -> tuple[Part, ...]:
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

    def split(self, state: pa.Table) -> list[tuple[Part, State]]:
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
