"""Parts that select rows: least, greatest, first, last, and the first few. None is differential."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .groups import GroupedRows, Groups, valid_mask
from .parts import RangeExtremes, State, StatePart, has_keys, outermost, sort_keys, taken


class Extreme(StatePart):
    """The least or greatest value of a column of an ordered type."""

    def __init__(self, column: str, kind: pa.DataType, greatest: bool) -> None:
        self.key = f"{'max' if greatest else 'min'}@1({column})"
        self.inputs = (column,)
        self.fields = (pa.field("value", kind),)
        self._greatest = greatest

    def lift(self, rows: GroupedRows) -> State:
        return self._of(*rows.valid(self.inputs[0]))

    def combine(self, state: State, groups: Groups) -> State:
        array = state[0]
        return self._of(array.drop_null(), groups.at(valid_mask(array)))

    def overlapping(self, state: State) -> RangeExtremes | None:
        return RangeExtremes(state[0], self._greatest) if has_keys(state[0].type) else None

    def _of(self, array: pa.Array, groups: Groups) -> State:
        return [taken(array, outermost(groups, [sort_keys(array)], self._greatest))]


class Outermost(StatePart):
    """The value of the first or last row, and its place in the order, so that the order of arrival does not matter.

    `by` has the most important column first.
    """

    def __init__(self, column: str, by: Sequence[str], schema: pa.Schema, last: bool, ignore_nulls: bool) -> None:
        nulls = "; not null" if ignore_nulls else ""
        self.key = f"{'last' if last else 'first'}@1({column}; by {', '.join(by)}{nulls})"
        self.inputs = (column, *by)
        self.fields = (
            pa.field("value", schema.field(column).type),
            *(pa.field(f"by {name}", schema.field(name).type) for name in by),
        )
        self._last, self._ignore_nulls = last, ignore_nulls

    def lift(self, rows: GroupedRows) -> State:
        column, *by = self.inputs
        arrays = [rows.column(column), *(rows.complete(name, f"what {self.key} orders by") for name in by)]
        if self._ignore_nulls and arrays[0].null_count:
            arrays, groups = _where(arrays, valid_mask(arrays[0]), rows.groups)
            return self._of(arrays, groups)
        return self._of(arrays, rows.groups)

    def combine(self, state: State, groups: Groups) -> State:
        # Without a place there was no row.
        return self._of(*_where(state, valid_mask(state[1]), groups))

    def _of(self, arrays: Sequence[pa.Array], groups: Groups) -> State:
        place = outermost(groups, [sort_keys(array) for array in arrays[1:]], self._last)
        return [taken(array, place) for array in arrays]


class FirstValues(StatePart):
    """The first `limit` values that are not null. `by` orders them, the most important column first."""

    def __init__(self, column: str, by: Sequence[str], schema: pa.Schema, limit: int) -> None:
        self.key = f"collect@1({column}; by {', '.join(by)}; limit {limit})"
        self.inputs = (column, *by)
        self.fields = (
            pa.field("values", pa.list_(schema.field(column).type)),
            *(pa.field(f"by {name}", pa.list_(schema.field(name).type)) for name in by),
        )
        self._limit = limit

    def lift(self, rows: GroupedRows) -> State:
        column, *by = self.inputs
        arrays = [rows.column(column), *(rows.complete(name, f"what {self.key} orders by") for name in by)]
        if arrays[0].null_count:
            return self._of(*_where(arrays, valid_mask(arrays[0]), rows.groups))
        return self._of(arrays, rows.groups)

    def combine(self, state: State, groups: Groups) -> State:
        lengths = state[0].value_lengths().to_numpy()
        return self._of([lists.flatten() for lists in state], Groups(np.repeat(groups.codes, lengths), groups.size))

    def _of(self, arrays: Sequence[pa.Array], groups: Groups) -> State:
        order = np.lexsort((*(sort_keys(array) for array in reversed(arrays[1:])), groups.codes))
        ends = np.cumsum(groups.counts)
        codes = groups.codes[order]
        rank = np.arange(len(order)) - (ends - groups.counts)[codes]
        kept = pa.array(order[rank < self._limit])
        sizes = np.minimum(groups.counts, self._limit)
        offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
        return [
            pa.ListArray.from_arrays(offsets, array.take(kept), type=field.type)
            for array, field in zip(arrays, self.fields, strict=True)
        ]


def _where(arrays: Sequence[pa.Array], mask: npt.NDArray[np.bool_], groups: Groups) -> tuple[list[pa.Array], Groups]:
    chosen = pa.array(mask)
    return [array.filter(chosen) for array in arrays], groups.at(mask)
