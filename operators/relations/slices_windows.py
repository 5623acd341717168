"""GROUP BY over sliding windows, from slices that queries share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from ...core.rows.exact_integers import LOWEST
from .arrangement import OperatorState
from .operator import Operator
from .slices import SliceDemand, Slices, WindowPoints, last_multiple
from .windows import next_multiple
from .zsets import BEGINNING, OLD, TIME, WEIGHT, Span, delta_frame, same_at, taken


class WindowAggregates(Operator):
    """Aggregates of groups over a sliding window, computed from slices, which another operator keeps.

    The result has the columns of ``names``, with their places among the slices' groups, then one for each measure.
    """

    def __init__(
        self, schema: pa.Schema, names: Sequence[tuple[str, int]], wanted: SliceDemand, state: OperatorState
    ) -> None:
        super().__init__(schema)
        self._names = names
        self._wanted = wanted
        self._values = state.values
        self._slices: Slices | None = None
        self._even = False

    def over(self, inputs: Sequence[Operator]) -> None:
        (slices,) = inputs
        assert isinstance(slices, Slices)
        self._slices = slices
        slices.enter(self, self._wanted, begins=not self._values.get("begun"))

    def end(self) -> None:
        if self._slices is not None:
            self._slices.leave(self)

    def acts(self, span: Span) -> bool:
        return self._wanted.moves(span) or self._of.failing

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        slices = self._of
        slices.check(self._wanted.measures)
        begins = not self._values.get("begun")
        self._values["begun"] = True
        if not begins and not self._wanted.moves(span):
            return self.nothing
        points = slices.points(self._wanted, span, self._even_from(span.before), begins=begins)
        if points is None:
            return self.nothing
        there = slices.rows(points) > 0
        if not self._names:
            there = there | (points.times != OLD) | (not begins)
        return self._moved(points, there)

    def contents(self) -> pl.DataFrame | None:
        points = self._of.last(self._wanted, self._of.even_from(self._wanted.measures))
        if not self._names and len(points.groups) == 0:
            none = np.zeros(1, dtype=np.int64)
            points = WindowPoints(none, none, none, none)
        columns = self._columns(points)
        every = np.arange(len(points.groups))
        rows = pl.DataFrame([*self._group(points, every), *columns])
        return delta_frame(rows, points.times, 1)

    def complete_from(self, since: int) -> int | None:
        whole = self._of.whole(self._wanted.measures)
        if whole is None or whole == BEGINNING:
            return whole
        wanted = self._wanted
        first = int(next_multiple(np.array([whole + wanted.range_us]), wanted.slide_us)[0])
        return BEGINNING if first <= self._of.start else first

    def _even_from(self, before: int) -> int:
        """Return the time up to which slices are left out, as not all aggregates have their rows; LOWEST for none."""
        if self._even:
            return LOWEST
        since, wanted = self._of.even_from(self._wanted.measures), self._wanted
        begin = LOWEST if before == LOWEST else last_multiple(before, wanted.slide_us) - wanted.range_us
        self._even = since <= begin
        return LOWEST if self._even else since

    @property
    def _of(self) -> Slices:
        assert self._slices is not None, "the windows have no slices"
        return self._slices

    def _columns(self, points: WindowPoints) -> list[pl.Series]:
        columns: list[pl.Series] = []
        for name, measure in zip(self.schema.names[len(self._names) :], self._wanted.measures, strict=True):
            found = pl.from_arrow(self._of.results(measure.name, points))
            assert isinstance(found, pl.Series)
            columns.append((found if found.dtype == self.dtypes[name] else found.cast(self.dtypes[name])).alias(name))
        return columns

    def _group(self, points: WindowPoints, at: npt.NDArray[np.int64]) -> list[pl.Series]:
        keys = self._of.keys
        return [taken(keys.get_column(f"by{place}"), points.groups[at]).alias(name) for name, place in self._names]

    def _moved(self, points: WindowPoints, there: npt.NDArray[np.bool_]) -> pl.DataFrame:
        """Retract each group's old row and emit its new one at each change point, unless both are equal."""
        columns = self._columns(points)
        follows = np.flatnonzero(points.times != OLD)
        was, stays = there[follows - 1], there[follows]
        same = reduce(np.logical_and, (same_at(each, follows - 1, follows) for each in columns), was & stays)
        before, now = follows[was & ~same], follows[stays & ~same]
        at = np.concatenate([before - 1, now])
        times = np.concatenate([points.times[before], points.times[now]])
        signs = np.concatenate([np.full(len(before), -1), np.full(len(now), 1)])
        moved = pl.Series(TIME, times), pl.Series(WEIGHT, signs)
        return pl.DataFrame([*self._group(points, at), *(taken(each, at) for each in columns), *moved])
