"""GROUP BY: the aggregates of each group at each of its change points."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from ...core.rows.exact_integers import Int64s
from ...operators.aggregates import functions as exact
from ...operators.aggregates.algebra import Aggregates
from .columns import Columns
from .functions import Call
from .numbers import key_numbers
from .operator import Computed, Operator, with_columns
from .running import DistinctSums, Points, Sums
from .state import State
from .zsets import (
    OLD,
    TIME,
    WEIGHT,
    Live,
    Span,
    Steps,
    consolidated,
    cumulated,
    delta_frame,
    empty_delta,
    int64s,
    live,
    numbered,
    to_table,
)

__all__ = ["Aggregated"]

_ROWS = "__rows"
_POINT = "__point"


class Aggregated(Operator):
    """Aggregates of groups of equal rows.

    What can be added up (counts, sums, averages, variances, and their DISTINCT forms) follows from partial sums, which
    changes are added to and taken from. Everything else is computed from the rows of the groups that change. At each
    change point a group's row leaves and comes again with what it has become. Without ``by`` there is one group, from
    the beginning on.

    State: partial sums by group; if other functions are asked for, the distinct rows of each group; for DISTINCT its
    distinct values.

    Parameters
    ----------
    schema : pyarrow.Schema
    by : sequence of (str, Computed)
    calls : sequence of Call
    state : State

    Raises
    ------
    SchemaError
        There is no such function, or a type does not fit.
    """

    def __init__(
        self, schema: pa.Schema, by: Sequence[tuple[str, Computed]], calls: Sequence[Call], state: State
    ) -> None:
        super().__init__(schema)
        self._by = [(f"__by{number}", each) for number, (_, each) in enumerate(by)]
        self._names = dict(zip((name for name, _ in self._by), (name for name, _ in by), strict=True))
        self._values = state.values
        self._columns = Columns(calls)
        by_schema = pa.schema([pa.field(name, each.type) for name, each in self._by])
        self._sums = Sums(by_schema, {_ROWS: exact.count(), **self._columns.added}, self._columns.schema, state)
        self._distinct = [
            DistinctSums(by_schema, name, columns, aggregate, self._columns.schema, state)
            for name, (columns, aggregate) in self._columns.distinct.items()
        ]
        self._of_rows: _OfRows | None = None
        if self._columns.extremes or self._columns.summaries:
            self._of_rows = _OfRows(by_schema, self._columns, state)

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        (changes,) = inputs
        begins = not self._by and not self._values.get("begun")
        if changes.height == 0 and not begins:
            return self.nothing
        by = [name for name, _ in self._by]
        rows = self._columns.of(with_columns(changes, self._by)).select(*by, *self._columns.schema.names, TIME, WEIGHT)
        groups = numbered(rows, by)
        keys = rows.select(by)[groups.first] if by else pl.DataFrame({_ROWS: [0]}).select([])
        count = len(groups.first) if by else 1
        ids, times = groups.ids, int64s(rows, TIME)
        extra = np.full(count, OLD)
        if begins:
            self._values["begun"] = True
            extra = np.append(extra, span.start)
        at = np.concatenate([times, extra])
        of = np.concatenate([ids, np.arange(count), np.zeros(len(extra) - count, dtype=np.int64)])
        points = Points(
            cumulated(of, at, np.zeros(len(at), dtype=np.int64)),
            keys,
            key_numbers(rows, by)[groups.first] if by else np.zeros(1, dtype=np.int64),
        )
        positions = points.positions(ids, times)
        weights = int64s(rows, WEIGHT)
        result = self._sums.step(points, rows, positions, weights)
        columns = [result]
        columns += [each.step(points, rows, ids) for each in self._distinct]
        if self._of_rows is not None:
            columns.append(self._of_rows.step(points, rows))
        found = self._with_lists(pl.concat(columns, how="horizontal"))
        there = found.get_column(_ROWS).to_numpy() > 0
        if not by:
            there = there | (points.steps.times != OLD) | (not begins)
        return self._moved(points, found, there)

    def contents(self) -> pl.DataFrame | None:
        by = [name for name, _ in self._by]
        keys = self._sums.groups() if by else pl.DataFrame({_ROWS: [0]}).select([])
        count = keys.height if by else 1
        ids = np.arange(count)
        numbers = key_numbers(keys, by) if by else np.zeros(1, dtype=np.int64)
        points = Points(cumulated(ids, np.full(count, OLD), np.zeros(count, dtype=np.int64)), keys, numbers)
        columns = [self._sums.before(points)]
        columns += [each.before(points) for each in self._distinct]
        if self._of_rows is not None:
            columns.append(self._of_rows.before(points))
        return delta_frame(self._shown(points, self._with_lists(pl.concat(columns, how="horizontal")), ids), 0, 1)

    def _with_lists(self, found: pl.DataFrame) -> pl.DataFrame:
        """Return results with an empty list where there are no values."""
        lists = [(name, self.dtypes[name]) for name in self._columns.lists]
        return found.with_columns(pl.col(name).cast(kind).fill_null(pl.lit([], kind)) for name, kind in lists)

    def _moved(self, points: Points, found: pl.DataFrame, there: npt.NDArray[np.bool_]) -> pl.DataFrame:
        """Return each group's row at its change points: what it was leaves, what it is comes."""
        steps = points.steps
        now = np.flatnonzero(there & (steps.times != OLD))
        follows = np.flatnonzero(steps.times != OLD)
        before = follows[there[follows - 1]]
        times = np.concatenate([steps.times[before], steps.times[now]])
        signs = np.concatenate([np.full(len(before), -1), np.full(len(now), 1)])
        shown = self._shown(points, found, np.concatenate([before - 1, now]))
        return consolidated(delta_frame(shown, times, signs))

    def _shown(self, points: Points, found: pl.DataFrame, at: Int64s) -> pl.DataFrame:
        """Return the groups' rows at some change points."""
        values = found[at]
        keys = points.keys[points.steps.ids[at]].rename(self._names) if self._by else None
        columns = [] if keys is None else keys.get_columns()
        columns += [values.get_column(name).cast(self.dtypes[name]) for name in list(self.dtypes)[len(columns) :]]
        return pl.DataFrame(columns)


class _OfRows:
    """Aggregates that are computed from all rows of the groups that change."""

    def __init__(self, by: pa.Schema, columns: Columns, state: State) -> None:
        self._by = by.names
        self._names = [name for name in columns.schema.names if name in columns.of_rows]
        fields = [columns.schema.field(name) for name in self._names]
        self._extremes = Aggregates.of(columns.extremes, columns.schema) if columns.extremes else None
        self._inputs = pa.schema(
            [columns.schema.field(name) for name in (self._extremes.inputs if self._extremes else ())]
        )
        self._summaries = columns.summaries
        self._rows = pa.schema([*by, *fields])
        self._kept = state.arrangement("rows", self._rows.append(pa.field(WEIGHT, pa.int64())))

    def step(self, points: Points, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the results at each change point."""
        values, steps, group_of = self._counted(points, rows)
        last = steps.lasts & (steps.values[0] != 0)
        kept = values[steps.ids[last]].with_columns(pl.Series(WEIGHT, steps.values[0][last]))
        self._kept.write(kept, key_numbers(kept, self._by))
        return self._results(points, values, steps, group_of)

    def before(self, points: Points) -> pl.DataFrame:
        """Return the results of groups that have no change point but the time before the step."""
        return self._results(points, *self._counted(points, empty_delta(self._rows)))

    def _counted(self, points: Points, rows: pl.DataFrame) -> tuple[pl.DataFrame, Steps, Int64s]:
        """Return the distinct rows of the groups, how many of each there are, and the group of each."""
        columns = [*self._by, *self._names]
        old = self._kept.read(points.numbers).with_columns(pl.lit(OLD).alias(TIME))
        together = pl.concat([rows.select(*columns, TIME, WEIGHT), old.select(*columns, TIME, WEIGHT)])
        distinct = numbered(together, columns)
        steps = cumulated(distinct.ids, int64s(together, TIME), int64s(together, WEIGHT))
        groups = np.zeros(together.height, dtype=np.int64)
        if self._by:
            groups = numbered(pl.concat([points.keys, together.select(self._by)]), self._by).ids[points.groups :]
        return together.select(columns)[distinct.first], steps, groups[distinct.first]

    def _results(self, points: Points, values: pl.DataFrame, steps: Steps, group_of: Int64s) -> pl.DataFrame:
        mine = group_of[steps.ids] < points.groups
        steps = Steps(steps.ids[mine], steps.times[mine], [steps.values[0][mine]])
        return pl.concat([self._part(each, values) for each in live(steps, group_of, points.steps)])

    def _part(self, part: Live, values: pl.DataFrame) -> pl.DataFrame:
        """Return the results at some change points."""
        found, positions, size = part.ids, part.positions - part.begin, part.end - part.begin
        results: list[pl.DataFrame] = []
        if self._extremes is not None:
            table = to_table(values.select(self._inputs.names)[found], self._inputs)
            state = self._extremes.lift(table, positions, size)
            lowered = pl.from_arrow(self._extremes.lower(state))
            assert isinstance(lowered, pl.DataFrame)
            results.append(lowered)
        if self._summaries:
            copies = np.repeat(np.arange(len(found)), part.weights)
            frame = values.select(self._names)[found[copies]].with_columns(pl.Series(_POINT, positions[copies]))
            by_point = frame.select(_POINT).with_columns(pl.lit(None).alias(name) for name in self._summaries)
            if frame.height:
                by_point = frame.group_by(_POINT).agg(*self._summaries.values())
            all_points = pl.DataFrame({_POINT: np.arange(size)})
            results.append(all_points.join(by_point, on=_POINT, how="left", maintain_order="left").drop(_POINT))
        return pl.concat(results, how="horizontal")
