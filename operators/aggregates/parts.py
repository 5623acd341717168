"""The components of an aggregate: parts of state that aggregates share, and a plan that lowers them to a result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...conf.errors import OptionError, SchemaError
from ...core.rows.exact_integers import HIGHEST, LOWEST, Int64s
from ...core.rows.sort_keys import ordered
from .exact import packed, unscaled
from .groups import GroupedRows, Groups, valid_mask


def has_keys(kind: pa.DataType) -> bool:
    """Return whether values of this type have int64 keys that :func:`from_keys` can convert back."""
    types = pa.types
    return (
        types.is_signed_integer(kind)
        or types.is_float32(kind)
        or types.is_float64(kind)
        or types.is_boolean(kind)
        or types.is_date32(kind)
        or (types.is_timestamp(kind) and kind.unit == "us")
        or types.is_time64(kind)
        or types.is_duration(kind)
        or (types.is_decimal128(kind) and kind.precision <= 18)
    )


def is_ordered(kind: pa.DataType) -> bool:
    """Return whether :func:`sort_keys` can compare values of this type."""
    types = pa.types
    if types.is_struct(kind):
        return all(is_ordered(field.type) for field in kind)
    if types.is_list(kind) or types.is_large_list(kind):
        return is_ordered(kind.value_type)
    return (
        has_keys(kind)
        or types.is_decimal128(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
    )


def sort_keys(array: pa.Array) -> Int64s:
    """Return integers in the order of the values, which are not null.

    As in Spark, NaN is greater than any number, all NaNs are equal, -0.0 equals 0.0, and strings compare by bytes.
    Arrays and structs compare by their first difference, where null is less than any value, and the end of an array is
    less than null. Keys of strings, binaries, long decimals, arrays and structs are ranks, not comparable with those of
    another array.
    """
    kind = array.type
    if pa.types.is_nested(kind):
        array = _as_bytes(array)
    if not has_keys(array.type):
        return pc.rank(array, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    if pa.types.is_decimal(kind):
        short = unscaled(array)
        assert short is not None
        return short
    if pa.types.is_floating(kind):
        values = array.to_numpy(zero_copy_only=False).astype(np.float64)
        array = pa.array(np.where(np.isnan(values), np.nan, values))  # a NaN may have a sign
    return ordered(pa.chunked_array([array]))


def ranks(array: pa.Array, *, descending: bool = False, nulls_first: bool = True) -> Int64s:
    """Return numbers in an order of the values. Null is less or greater than all of them."""
    there = valid_mask(array)
    keys = np.unique(sort_keys(array.drop_null()), return_inverse=True)[1] + 1
    found = np.full(len(array), 0 if nulls_first else len(array) + 1, dtype=np.int64)
    found[there] = len(array) + 1 - keys if descending else keys
    return found


def _as_bytes(array: pa.Array) -> pa.Array:
    """Return bytes in the order of arrays or structs: the ranks of what they contain."""
    if pa.types.is_struct(array.type):
        inner = np.stack([np.zeros(len(array), np.int64), *(ranks(each) for each in array.flatten())], axis=1).ravel()
        ends = np.arange(len(array) + 1) * (array.type.num_fields + 1)
    else:
        inner, ends = ranks(array.flatten()), np.append(0, np.cumsum(array.value_lengths().to_numpy()))
    buffers = [None, pa.py_buffer((4 * ends).astype(np.int64)), pa.py_buffer(inner.astype(">u4").tobytes())]
    return pa.Array.from_buffers(pa.large_binary(), len(array), buffers)


def from_keys(keys: Int64s, kind: pa.DataType) -> pa.Array:
    """Return the values from which :func:`sort_keys` made `keys`; -0.0 becomes 0.0."""
    if pa.types.is_decimal(kind):
        return packed([keys & 0xFFFFFFFF, keys >> 32], kind)
    if pa.types.is_floating(kind):
        bits = np.where(keys < 0, np.int64(-(2**63)) - keys - 1, keys)
        return pa.array(bits.view(np.float64)).cast(kind)
    if pa.types.is_date(kind):
        return pa.array(keys.astype(np.int32)).view(kind)
    return pa.array(keys).cast(kind)


def outermost(groups: Groups, keys: Sequence[Int64s], last: bool) -> Int64s:
    """Return each group's first (or last) row by `keys`, the most important first, then by place; -1 without rows."""
    rows, codes = np.arange(len(groups.codes)), groups.codes
    for key in keys:
        mine = key[rows]
        best = np.full(groups.size, np.iinfo(np.int64).min if last else np.iinfo(np.int64).max)
        (np.maximum if last else np.minimum).at(best, codes, mine)
        equal = np.flatnonzero(mine == best[codes])
        rows, codes = rows[equal], codes[equal]
    place = np.full(groups.size, -1, dtype=np.int64)
    step = 1 if last else -1
    place[codes[::step]] = rows[::step]  # the last of equal indices is the one that stays
    return place


def taken(array: pa.Array, positions: Int64s) -> pa.Array:
    """Return the values at some positions; null at -1."""
    return array.take(pa.array(positions, mask=positions < 0))


class RangeExtremes:
    """Numbers prepared for many range minimum (or maximum) queries: a sparse table.

    The extremes of 2, 4, 8, … numbers from each place are computed when a range first needs them. Any range consists of
    two of these, which overlap. The array's type must satisfy :func:`~.keys.has_keys`; nulls do not count.
    """

    MOST = 1 << 23
    """The maximum number of stored numbers, over all lengths."""

    def __init__(self, array: pa.Array, greatest: bool) -> None:
        assert has_keys(array.type)
        self._kind = array.type
        there = valid_mask(array)
        self._before = None if array.null_count == 0 else np.concatenate([[0], np.cumsum(there)])
        if pa.types.is_floating(array.type):
            # As in Spark, NaN is the greatest of all. Null, which NumPy has as NaN, is never what is found.
            values = array.to_numpy(zero_copy_only=False).astype(np.float64)
            if greatest and self._before is not None:
                values[~there] = -np.inf
            self._outer: np.ufunc = np.maximum if greatest else np.fmin
        else:
            values = np.full(len(array), LOWEST if greatest else HIGHEST)
            values[there] = sort_keys(array.drop_null())
            self._outer = np.maximum if greatest else np.minimum
        self._levels: list[npt.NDArray[np.int64] | npt.NDArray[np.float64]] = [values]
        self._flat, self._offsets = values, np.zeros(1, dtype=np.int64)

    def fits(self, longest: int) -> bool:
        """Return whether ranges of this length fit into the memory limit."""
        return len(self._levels[0]) * max(longest, 1).bit_length() <= self.MOST

    def of(self, low: Int64s, high: Int64s) -> pa.Array:
        """Return the extreme of each range ``low[i] <= place < high[i]``; null if all are null."""
        some = low < high
        if not some.any():
            return pa.nulls(len(low), self._kind)
        low = np.where(some, low, 0)
        high = np.where(some, high, 1)
        level = np.frexp(high - low)[1].astype(np.int64) - 1
        self._reach(int(level.max()))
        base = self._offsets[level]
        found = self._outer(self._flat[base + low], self._flat[base + high - (1 << level)])
        if self._before is not None:
            some &= self._before[high] > self._before[low]
        if found.dtype == np.float64:
            values = pa.array(found).cast(self._kind)
        else:
            # The placeholder of a null may be outside the type.
            values = from_keys(np.where(some, found, 0), self._kind)
        return values if some.all() else pc.if_else(pa.array(some), values, pa.scalar(None, self._kind))

    def _reach(self, level: int) -> None:
        if level < len(self._levels):
            return
        while len(self._levels) <= level:
            last, apart = self._levels[-1], 1 << (len(self._levels) - 1)
            self._levels.append(self._outer(last[:-apart], last[apart:]))
        self._flat = np.concatenate(self._levels)
        self._offsets = np.cumsum([0, *(len(each) for each in self._levels[:-1])])


State = Sequence[pa.Array]
"""A part's columns, in the order of its `fields`; each has one value per group."""


class StatePart(ABC):
    """A piece of state over some columns. Aggregates that need the same piece share it."""

    key: str  # the state, its columns and the layout's version, such as sum@1(v); it names stored columns
    inputs: tuple[str, ...]  # the columns that it reads
    fields: tuple[pa.Field, ...]  # the columns of the state
    differential: bool = False  # whether retract() exists
    exact: bool = False  # whether states are integers that add up, so that running() and between() exist

    @abstractmethod
    def lift(self, rows: GroupedRows) -> State:
        """Return the state of each group of some rows."""

    @abstractmethod
    def combine(self, state: State, groups: Groups) -> State:
        """Combine some states into one state per group."""

    def retract(self, state: State, other: State) -> State:
        """Return each group's `state` without the rows of `other`, which are among its own."""
        raise NotImplementedError(f"{self.key} cannot be retracted")

    def running(self, state: State) -> Sequence[Int64s]:
        """Return the cumulative sums of the states, from 0 to the sum of all, as limbs."""
        raise NotImplementedError(f"{self.key} has no running sums")

    def overlapping(self, state: State) -> RangeExtremes | None:  # noqa: ARG002
        """Return a structure for range extremes if states are minima or maxima; None otherwise."""
        return None

    def prefixes(self, state: State, begins: Int64s) -> State | None:  # noqa: ARG002
        """Return the combined state of each run up to and including each state; None if combining in pairs is faster.

        `begins` holds the position of each run's first state.
        """
        return None

    def between(self, running: Sequence[Int64s], low: Int64s, high: Int64s) -> State:
        """Return the state of each range ``low[i] <= row < high[i]`` of the states passed to :meth:`running`."""
        raise NotImplementedError(f"{self.key} has no running sums")


@dataclass(frozen=True)
class Plan:
    """The computation of an aggregate for given types."""

    parts: tuple[StatePart, ...]
    type: pa.DataType  # of the result, as in Spark
    lower: Callable[[Mapping[str, State]], pa.Array]  # from each part's state, by its key, to one result per group


@dataclass(frozen=True)
class Aggregate:
    """An aggregate before its types are known, as users create it with `sum_`, `count` and the others."""

    text: str  # as the user wrote it, for messages
    plan: Callable[[pa.Schema], Plan]  # from the rows' schema; raises SchemaError if the types do not fit

    def __repr__(self) -> str:
        return self.text


def names_of(columns: str | Sequence[str]) -> tuple[str, ...]:
    """Return one name or several names as a tuple."""
    return (columns,) if isinstance(columns, str) else tuple(columns)


def type_of(schema: pa.Schema, column: str, text: str) -> pa.DataType:
    """Return a column's type. Raise SchemaError unless there is exactly one such column."""
    if schema.names.count(column) != 1:
        raise SchemaError(f"{text}: there is no column {column}, or several", expected=f"one of {schema.names}")
    return schema.field(column).type


def number_type(schema: pa.Schema, column: str, text: str) -> pa.DataType:
    """Return a column's type. Raise SchemaError unless it is a numeric one."""
    kind = type_of(schema, column, text)
    types = pa.types
    if not (
        types.is_signed_integer(kind) or types.is_float32(kind) or types.is_float64(kind) or types.is_decimal128(kind)
    ):
        raise SchemaError(f"{text}: {column} is {kind}", expected="a column of numbers", hint="cast it to one")
    return kind


def check_ordered(kind: pa.DataType, column: str, text: str) -> None:
    """Raise SchemaError unless values of this type have an order."""
    if not is_ordered(kind):
        raise SchemaError(
            f"{text}: {column} is {kind}, whose values have no order here",
            expected="numbers, strings, binaries, booleans, dates, times, timestamps, intervals of days and seconds, "
            "or arrays and structs of these",
        )


def check_order(schema: pa.Schema, by: Sequence[str], text: str) -> None:
    """Raise an error unless rows can be ordered by these columns."""
    if not by:
        raise OptionError(f"{text} has no order", expected="at least one column in `by`, such as the time")
    for name in by:
        check_ordered(type_of(schema, name, text), name, text)


def check_named(aggregates: Mapping[str, object], taken: Collection[str]) -> None:
    """Raise OptionError for values that are not aggregates, SchemaError for names among the other columns, `taken`."""
    both = sorted(set(taken) & set(aggregates))
    if both:
        raise SchemaError(
            f"an aggregate is named {', '.join(both)}, and results have a column of that name",
            expected="other names than those of the results' other columns: " + ", ".join(sorted(taken)),
            hint="rename the aggregate",
        )
    wrong = [f"{name}={each!r}" for name, each in aggregates.items() if not isinstance(each, Aggregate)]
    if wrong:
        raise OptionError(
            f"{', '.join(wrong)} is not an aggregate",
            expected="what the functions of upstream.aggregates make",
            hint="write for example n=us.count(), total=us.sum('value')",
        )


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
