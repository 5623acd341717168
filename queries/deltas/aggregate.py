"""GROUP BY: the aggregates of each group at each of its change points."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from ...core.rows.exact_integers import Int64s
from ...operators.aggregates import functions as exact
from .columns import Columns
from .functions import Call
from .group_rows import GroupRows
from .numbers import key_numbers
from .operator import Computed, Operator, with_columns
from .running import DistinctSums, Points, Sums
from .state import State
from .zsets import (
    OLD,
    TIME,
    WEIGHT,
    Span,
    consolidated,
    cumulated,
    delta_frame,
    int64s,
    numbered,
)

__all__ = ["Aggregated"]

_ROWS = "__rows"


class Aggregated(Operator):
    """The aggregates of each group (GROUP BY). Without ``by`` there is one group from the beginning.

    Sums, counts, averages, variances and their DISTINCT forms follow from partial sums, which also take retractions.
    All other functions are computed from the rows of the groups that change.
    State: partial sums by group, the distinct values for DISTINCT, and :class:`~.group_rows.GroupRows` for the rest.
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
        self._of_rows: GroupRows | None = None
        if self._columns.extremes or self._columns.summaries:
            self._of_rows = GroupRows(by_schema, self._columns, state)

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
            counts = result.get_column(_ROWS).to_numpy()[points.ends]
            columns.append(self._of_rows.step(points, rows, ids, counts))
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
        """Replace null lists by empty ones: Spark collects no values into an empty list."""
        lists = [(name, self.dtypes[name]) for name in self._columns.lists]
        return found.with_columns(pl.col(name).cast(kind).fill_null(pl.lit([], kind)) for name, kind in lists)

    def _moved(self, points: Points, found: pl.DataFrame, there: npt.NDArray[np.bool_]) -> pl.DataFrame:
        """Retract each group's old row and emit its new one, at each change point."""
        steps = points.steps
        now = np.flatnonzero(there & (steps.times != OLD))
        follows = np.flatnonzero(steps.times != OLD)
        before = follows[there[follows - 1]]
        times = np.concatenate([steps.times[before], steps.times[now]])
        signs = np.concatenate([np.full(len(before), -1), np.full(len(now), 1)])
        shown = self._shown(points, found, np.concatenate([before - 1, now]))
        return consolidated(delta_frame(shown, times, signs))

    def _shown(self, points: Points, found: pl.DataFrame, at: Int64s) -> pl.DataFrame:
        values = found[at]
        keys = points.keys[points.steps.ids[at]].rename(self._names) if self._by else None
        columns = [] if keys is None else keys.get_columns()
        columns += [values.get_column(name).cast(self.dtypes[name]) for name in list(self.dtypes)[len(columns) :]]
        return pl.DataFrame(columns)
