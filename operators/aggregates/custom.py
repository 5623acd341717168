"""Aggregates that users define by three functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa

from ...conf.errors import SchemaError, calling
from ...core.rows.columns import as_array
from .groups import GroupedRows, Groups
from .parts import Aggregate, Plan, State, StatePart, names_of, type_of

Columns: TypeAlias = Mapping[str, pa.Array]
Lift: TypeAlias = Callable[[Sequence[pa.Array], Groups], Columns]
Combine: TypeAlias = Callable[[Columns, Groups], Columns]
Retract: TypeAlias = Callable[[Columns, Columns], Columns]
Lower: TypeAlias = Callable[[Columns], pa.Array]


def aggregate(
    name: str,
    columns: str | Sequence[str],
    *,
    state: Mapping[str, pa.DataType],
    lift: Lift,
    combine: Combine,
    lower: Lower,
    type: pa.DataType,  # noqa: A002 - the result's, and so it is called everywhere
    retract: Retract | None = None,
    version: int = 1,
) -> Aggregate:
    """Make an aggregate of your own from three functions over Arrow arrays.

    Each function is called once for all groups.

    The result must depend neither on how rows are divided nor on their order. The combined states of two halves must be
    the state of the whole.

    Parameters
    ----------
    name : str
        The name of the state where it is stored: another name or version is another state.
    columns : str or sequence of str
        The columns that `lift` reads.
    state : mapping of str to pyarrow.DataType
        The columns of a state, one value per group.
    lift : callable
        ``lift(arrays, groups)``: rows to states. `arrays` are the columns, nulls included; ``groups.codes`` has each
        row's group, from 0 to ``groups.size`` - 1.
    combine : callable
        ``combine(state, groups)``: states to fewer states; ``groups.codes`` has the group of each state.
    lower : callable
        ``lower(state)``: one result per group, as an Arrow array.
    type : pyarrow.DataType
        The type of the result.
    retract : callable, optional
        ``retract(state, other)``: the state without the rows of `other`.
    version : int
        Raise it when the stored state changes.

    Returns
    -------
    Aggregate

    Examples
    --------
    The product of a column:

    >>> import numpy as np, pyarrow as pa
    >>> def multiplied(values, groups):
    ...     product = np.ones(groups.size)
    ...     np.multiply.at(product, groups.codes, values)
    ...     return {"product": pa.array(product)}
    >>> product = us.aggregates.aggregate(
    ...     "product",
    ...     "speed",
    ...     state={"product": pa.float64()},
    ...     lift=lambda arrays, groups: multiplied(arrays[0].fill_null(1).to_numpy(), groups),
    ...     combine=lambda state, groups: multiplied(state["product"].to_numpy(), groups),
    ...     lower=lambda state: state["product"],
    ...     type=pa.float64(),
    ... )
    >>> product
    product(speed)
    """
    names = names_of(columns)
    text = f"{name}({', '.join(names)})"

    def plan(schema: pa.Schema) -> Plan:
        for column in names:
            type_of(schema, column, text)
        part = CustomPart(name, version, names, state, lift, combine, retract)

        def lowered(found: Mapping[str, State]) -> pa.Array:
            state = found[part.key]
            with calling(f"lower of {part.key}"):
                made = lower(part.named(state))
            return _checked_array(made, type, len(state[0]), f"what lower of {part.key} returned")

        return Plan((part,), type, lowered)

    return Aggregate(text, plan)


class CustomPart(StatePart):
    """State that a user's functions compute. Parts of one name, version and columns share it."""

    def __init__(
        self,
        name: str,
        version: int,
        columns: tuple[str, ...],
        state: Mapping[str, pa.DataType],
        lift: Lift,
        combine: Combine,
        retract: Retract | None,
    ) -> None:
        self.key = f"custom {name}@{version}({', '.join(columns)})"
        self.inputs = columns
        self.fields = tuple(pa.field(field, kind) for field, kind in state.items())
        self.differential = retract is not None
        self.functions = (lift, combine, retract)

    def lift(self, rows: GroupedRows) -> State:
        with calling(f"lift of {self.key}"):
            made = self.functions[0]([rows.column(name) for name in self.inputs], rows.groups)
        return self._checked(made, rows.groups.size, "lift")

    def combine(self, state: State, groups: Groups) -> State:
        with calling(f"combine of {self.key}"):
            made = self.functions[1](self.named(state), groups)
        return self._checked(made, groups.size, "combine")

    def retract(self, state: State, other: State) -> State:
        retract = self.functions[2]
        if retract is None:
            return super().retract(state, other)
        with calling(f"retract of {self.key}"):
            made = retract(self.named(state), self.named(other))
        return self._checked(made, len(state[0]), "retract")

    def named(self, state: State) -> Columns:
        return {field.name: array for field, array in zip(self.fields, state, strict=True)}

    def _checked(self, made: Columns, groups: int, function: str) -> State:
        names = [field.name for field in self.fields]
        if set(made) != set(names):
            raise SchemaError(
                f"{function} of {self.key} returned the columns {sorted(made)}",
                expected=f"{names}",
                hint="return the columns that `state` names, or name them there",
            )
        return [
            _checked_array(
                made[field.name], field.type, groups, f"{field.name}, which {function} of {self.key} returned,"
            )
            for field in self.fields
        ]


def _checked_array(array: object, kind: pa.DataType, groups: int, what: str) -> pa.Array:
    """Return a user function's result as an Arrow array of the expected type and length."""
    found = as_array(array if isinstance(array, (pa.Array, pa.ChunkedArray)) else pa.array(array))
    if len(found) != groups:
        raise SchemaError(
            f"{what} has {len(found)} values",
            expected=f"{groups}, one per group",
            hint="return a value for groups without rows, too",
        )
    try:
        return found.cast(kind)
    except pa.ArrowInvalid as problem:
        raise SchemaError(f"{what} is {found.type}: {problem}", expected=f"{kind}") from problem
