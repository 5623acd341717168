"""Running sums by group: the value of an additive aggregate at each change point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from ...core.rows.exact_integers import Int64s
from ..aggregates import functions as exact
from ..aggregates.algebra import Aggregates, prefixes
from ..aggregates.parts import Aggregate
from ..state.key_runs import key_places
from .arrangement import OperatorState
from .zsets import (
    OLD,
    TIME,
    WEIGHT,
    Steps,
    conformed,
    cumulated,
    differences,
    dtypes_of,
    int64s,
    key_numbers,
    numbered,
    places_among,
    to_table,
)

_BYTES = 32


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema with bytes in place of decimals of more than 38 digits."""
    return pa.schema([field.with_type(pa.binary()) if _is_wide(field) else field for field in schema])


def as_bytes(table: pa.Table) -> pa.Table:
    """Replace decimals of more than 38 digits by their bytes."""
    for at, field in enumerate(table.schema):
        if _is_wide(field):
            table = table.set_column(at, field.with_type(pa.binary()), _viewed(table.column(at), pa.binary(_BYTES)))
    return table


def from_bytes(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Invert :func:`as_bytes`."""
    for at, field in enumerate(schema):
        if _is_wide(field):
            table = table.set_column(at, field, _viewed(table.column(at).cast(pa.binary(_BYTES)), field.type))
    return table


def _is_wide(field: pa.Field) -> bool:
    return pa.types.is_decimal256(field.type)


def _viewed(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Reinterpret a column's values as another type of the same width; fixed-size bytes become variable ones."""
    chunks = [pa.Array.from_buffers(kind, len(each), each.buffers(), offset=each.offset) for each in column.chunks]
    viewed = pa.chunked_array(chunks, kind)
    return viewed.cast(pa.binary()) if pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind) else viewed


class Points:
    """The change points of the groups in a step. The first of each group is the time before the step.

    ``steps`` are by group, numbered from 0 without gaps; ``numbers`` are the key numbers of the groups.
    """

    def __init__(self, steps: Steps, keys: pl.DataFrame, numbers: Int64s) -> None:
        self.steps = steps
        self.keys = keys
        self.numbers = numbers
        self.groups = len(numbers)
        self.size = len(steps.ids)
        self.begins = np.flatnonzero(steps.firsts)
        self.ends = np.flatnonzero(steps.lasts)
        self.net = False

    @classmethod
    def of_net(cls, time: int, keys: pl.DataFrame, numbers: Int64s) -> Points:
        """Return two points of each group: before the step, and a time at which all changes of the step count."""
        n = len(numbers)
        points = cls(Steps(np.repeat(np.arange(n), 2), np.tile([OLD, time], n), []), keys, numbers)
        points.net = True
        return points

    def find(self, rows: pl.DataFrame) -> Int64s:
        """Return the groups of rows from the state; a number above those of the groups for other groups' rows."""
        by = self.keys.columns
        return (
            numbered(self.keys.vstack(rows[by]), by).ids[self.groups :] if by else np.zeros(rows.height, dtype=np.int64)
        )

    def with_keys(self, groups: Int64s, columns: Sequence[pl.Series]) -> pl.DataFrame:
        """Return columns with the keys of their groups."""
        return pl.DataFrame([*(self.keys[groups].get_columns() if self.keys.width else ()), *columns])

    def positions(self, groups: Int64s, times: Int64s) -> Int64s:
        """Return the positions of change points, given by group and time."""
        if self.net:
            return self.ends[groups]
        return places_among(groups, times, self.steps.ids, self.steps.times)


class Sums:
    """Aggregates of groups that follow from sums over insertions and retractions."""

    def __init__(
        self,
        by: pa.Schema,
        aggregates: Mapping[str, Aggregate],
        schema: pa.Schema,
        state: OperatorState,
        part: str = "sums",
    ) -> None:
        self._by, self._keys = by.names, by
        self._aggregates = Aggregates.of(aggregates, schema)
        self._inputs = pa.schema([schema.field(name) for name in self._aggregates.inputs])
        self._state = self._aggregates.state_schema
        self._stored = stored_schema(self._state)
        self._kept = state.arrangement(part, pa.schema([*by, *self._stored]))

    def step(self, points: Points, rows: pl.DataFrame, positions: Int64s, weights: Int64s) -> pl.DataFrame:
        """Return the results at each change point. ``positions`` are the rows' change points."""
        mine, total = self._totals(points, rows, positions, weights)
        results = self._lowered(total)
        self._keep(points, mine, total.take(pa.array(points.ends)))
        return results

    def groups(self) -> pl.DataFrame:
        return self._kept.read_all().select(self._by)

    def before(self, points: Points) -> pl.DataFrame:
        none = np.zeros(0, dtype=np.int64)
        nothing = pl.DataFrame(schema=dtypes_of(self._inputs.append(pa.field(TIME, pa.int64()))))
        _, total = self._totals(points, nothing, none, none)
        return self._lowered(total)

    def _totals(
        self, points: Points, rows: pl.DataFrame, positions: Int64s, weights: Int64s
    ) -> tuple[npt.NDArray[np.bool_], pa.Table]:
        """Return a mask of these groups among the rows that were read, and the sums at each change point."""
        kept = self._kept.read_table(points.numbers)
        old = from_bytes(kept.select(self._stored.names), self._state)
        groups = self._groups(points, kept)
        mine = groups < points.groups
        if not mine.all():
            old, groups = old.filter(pa.array(mine)), groups[mine]
        table = to_table(rows, self._inputs.append(pa.field(TIME, pa.int64())))
        if points.net:
            return mine, self._net(points.groups, old, groups, table, positions >> 1, weights)
        came = self._lifted(points.size, table, positions, weights)
        came = self._aggregates.combine(
            pa.concat_tables([came, old]),
            np.concatenate([np.arange(points.size), points.begins[groups]]),
            points.size,
        )
        total = prefixes(self._aggregates, came, points.steps.ids)
        if (weights < 0).any():
            left = self._lifted(points.size, table, positions, -weights)
            total = self._aggregates.retract(total, prefixes(self._aggregates, left, points.steps.ids))
        return mine, total

    def _groups(self, points: Points, kept: pa.Table) -> Int64s:
        """Return each kept row's group; for rows of other groups, a number above those of the groups."""
        if not self._by:
            return np.zeros(kept.num_rows, dtype=np.int64)
        keys = pl.from_arrow(kept.select(self._by))
        assert isinstance(keys, pl.DataFrame)
        return points.find(conformed(keys, dict(points.keys.schema)))

    def _net(self, n: int, old: pa.Table, of: Int64s, rows: pa.Table, group: Int64s, weights: Int64s) -> pa.Table:
        """Return the sums of n groups before and after a step whose changes all count at its end."""
        before = self._aggregates.combine(old, of, n)
        both = pa.concat_tables([before, self._lifted(n, rows, group, weights)])
        after = self._aggregates.combine(both, np.tile(np.arange(n), 2), n)
        if (weights < 0).any():
            after = self._aggregates.retract(after, self._lifted(n, rows, group, -weights))
        return pa.concat_tables([before, after]).take(pa.array(np.arange(2 * n).reshape(2, n).T.ravel()))

    def _lowered(self, total: pa.Table) -> pl.DataFrame:
        results = pl.from_arrow(self._aggregates.lower(total))
        assert isinstance(results, pl.DataFrame)
        return results

    def _lifted(self, states: int, rows: pa.Table, positions: Int64s, weights: Int64s) -> pa.Table:
        if (weights == 1).all():
            return self._aggregates.lift(rows, positions, states)
        copies = np.repeat(np.arange(rows.num_rows), np.maximum(weights, 0))
        return self._aggregates.lift(rows.take(pa.array(copies)), positions[copies], states)

    def _keep(self, points: Points, replaced: npt.NDArray[np.bool_], state: pa.Table) -> None:
        there = self._rows(state) > 0
        keys = to_table(points.keys, self._keys).columns if self._by else []
        rows = pa.table([*keys, *as_bytes(state).columns], schema=pa.schema([*self._keys, *self._stored]))
        if not there.all():
            rows = rows.filter(pa.array(there))
        self._kept.write_table(rows, key_places(points.numbers[there]), replaced)

    @staticmethod
    def _rows(state: pa.Table) -> Int64s:
        return state.column("rows@1().rows").to_numpy()


class DistinctSums:
    """One aggregate over the distinct values of each group. A value with a null does not count."""

    def __init__(
        self,
        by: pa.Schema,
        name: str,
        columns: Sequence[str],
        aggregate: Aggregate,
        schema: pa.Schema,
        state: OperatorState,
    ) -> None:
        self._name = name
        self._columns = [*by.names, *columns]
        self._values = list(columns)
        self._sums = Sums(by, {"__rows": exact.count(), name: aggregate}, schema, state, f"sums of {name}")
        fields = [schema.field(each) for each in columns]
        self._kept = state.arrangement(f"values of {name}", pa.schema([*by, *fields, pa.field(WEIGHT, pa.int64())]))

    def step(self, points: Points, rows: pl.DataFrame, ids: Int64s) -> pl.DataFrame:
        known = rows.select(pl.all_horizontal(pl.col(name).is_not_null() for name in self._values).alias("k"))
        which = known.get_column("k")
        rows, ids = rows.filter(which), ids[which.to_numpy()]
        old = self._kept.read(key_numbers(rows, self._columns)).with_columns(pl.lit(OLD).alias(TIME))
        together = pl.concat([rows.select(*self._columns, TIME, WEIGHT), old.select(*self._columns, TIME, WEIGHT)])
        distinct = numbered(together, self._columns)
        steps = cumulated(distinct.ids, int64s(together, TIME), int64s(together, WEIGHT))
        values = together.select(*self._columns, TIME)[distinct.first]
        last = steps.lasts & (steps.values[0] != 0)
        kept = values.drop(TIME)[steps.ids[last]].with_columns(pl.Series(WEIGHT, steps.values[0][last]))
        self._kept.write(kept, key_numbers(kept, self._columns))
        more = differences(steps.ids, (steps.values[0] > 0).astype(np.int64))
        changed = np.flatnonzero((more != 0) & (steps.times != OLD))
        at = steps.ids[changed]
        positions = points.positions(ids[distinct.first[at]], steps.times[changed])
        return self._sums.step(points, values[at], positions, more[changed]).select(self._name)

    def before(self, points: Points) -> pl.DataFrame:
        return self._sums.before(points).select(self._name)
