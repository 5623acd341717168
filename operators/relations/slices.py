"""Slices: partial aggregates of groups, from which many queries compute their windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from ...core.rows.exact_integers import LOWEST, Int64s
from ..aggregates import functions as exact
from ..aggregates.algebra import Aggregates
from ..aggregates.parts import Aggregate, State
from .arrangement import OperatorState
from .functions import Columns
from .operator import FAILURES, Evaluable, Operator, attributed
from .slices_table import SLICE, Partials, SliceTable, combined, with_slices
from .streams import TOMBSTONE
from .windows import next_multiple
from .zsets import BEGINNING, OLD, TIME, Span, conformed, dtypes_of, int64s, numbered, to_table


def last_multiple(until: int, slide_us: int) -> int:
    """Return the last multiple of the slide below a time; LOWEST before the first step."""
    return LOWEST if until == LOWEST else (until - 1) // slide_us * slide_us


@dataclass(frozen=True)
class WindowPoints:
    """Change points by group and time; the first of each group is the time before the step."""

    groups: Int64s
    times: Int64s
    low: Int64s  # Begins the run of slices that is the window.
    high: Int64s  # Ends it, exclusive.
    # Computed window states by part of an aggregate, shared by queries.
    states: dict[str, State] = field(default_factory=dict, compare=False)


def points_of(
    table: SliceTable,
    width_us: int,
    range_us: int,
    slide_us: int,
    span: Span,
    above: int,
    *,
    begins: bool,
    always: bool,
) -> WindowPoints | None:
    """Return the change points within a span, or only the last one for a net change; None if nothing changes.

    Slices up to number ``above`` are left out. ``begins``: the windows are new, so their contents come at the start.
    ``always``: the one group of all rows begins even without slices.
    """
    old, new = last_multiple(span.before, slide_us), last_multiple(span.until, slide_us)
    count = range_us // width_us
    before = old // width_us if old > LOWEST else LOWEST
    came = table.between(before, new // width_us)
    went = table.between(before - count if old > LOWEST else LOWEST, new // width_us - count)
    there = table.between(before - count, before) if begins and old > LOWEST else came[:0]
    first = np.zeros(int(always and begins), dtype=np.int64)
    size = len(came) + len(went) + len(there) + len(first)
    if size == 0:
        return None
    groups = np.concatenate([table.of[came], table.of[went], table.of[there], first])
    times = np.full(size, span.start)
    times[: len(came)] = next_multiple(table.slices[came] * width_us, slide_us)
    times[len(came) : len(came) + len(went)] = next_multiple(table.slices[went] * width_us + range_us, slide_us)
    if span.net:
        times[:] = span.until - 1
    order = np.lexsort((times, groups))
    groups, times = groups[order], times[order]
    distinct = (np.diff(groups, prepend=-1) != 0) | (np.diff(times, prepend=0) != 0)
    groups, times = groups[distinct], times[distinct]
    # Each group has one point more, before its others.
    firsts = np.flatnonzero(np.diff(groups, prepend=-1) != 0)
    groups, times = np.insert(groups, firsts, groups[firsts]), np.insert(times, firsts, OLD)
    through = times // slide_us * slide_us // width_us
    through[times == OLD] = LOWEST if begins else before
    return WindowPoints(groups, times, *table.runs(groups, through, count, above))


def window_at(table: SliceTable, width_us: int, range_us: int, end: int, above: int) -> WindowPoints:
    """Return the groups of the window that ends at a time, with one point each."""
    count, last = range_us // width_us, end // width_us
    groups: npt.NDArray[np.int64] = np.unique(table.of[table.between(max(last - count, above), last)])
    through = np.full(len(groups), last)
    return WindowPoints(groups, np.full(len(groups), end), *table.runs(groups, through, count, above))


ROWS = "__rows"
"""The aggregate of every family: the number of rows."""


@dataclass(frozen=True)
class Measure:
    """An aggregate whose name identifies its computation."""

    name: str  # Equal for equal aggregates of the same columns.
    column: str  # The beginning of its columns' names; equal for equal columns.
    columns: Columns  # Those of this aggregate alone.

    @property
    def aggregate(self) -> Aggregate:
        return {**self.columns.added, **self.columns.extremes}[self.name]


@dataclass(frozen=True)
class SliceDemand:
    """The windows and aggregates that a query needs from the slices."""

    range_us: int
    slide_us: int
    measures: tuple[Measure, ...]

    def moves(self, span: Span) -> bool:
        """Return whether the span contains a multiple of the slide."""
        return last_multiple(span.before, self.slide_us) != last_multiple(span.until, self.slide_us)


class Slices(Operator):
    """The slices of a stream: partial aggregates that queries of equal conditions and groups share.

    A slice holds the rows with a time in (end - width, end]; ``shift_us`` is added to each time first. If the width
    divides its RANGE and its SLIDE, a window is a run of slices. Rows are aggregated on arrival, before the
    low-watermark passes them; no row is kept.
    State: the partial aggregates that some query wants, by group and slice, for all windows that are not over.
    """

    forgets = True

    def __init__(
        self,
        width_us: int,
        shift_us: int,
        conditions: Sequence[Evaluable],
        by: Sequence[Evaluable],
        state: OperatorState,
    ) -> None:
        super().__init__(pa.schema([]))
        self.width_us = width_us
        self._shift = shift_us
        self._conditions = conditions
        self._by = by
        self._keys = pa.schema([pa.field(f"by{place}", each.type) for place, each in enumerate(by)])
        self._values = state.values
        self._log = state.log("slices")
        self._users: dict[object, SliceDemand] = {}
        self._begins: set[object] = set()
        self._planned = self._broken = False
        self._measures: dict[str, Measure] = {}
        self._aggregates = Aggregates.of({ROWS: exact.count()}, pa.schema([]))
        self._table: SliceTable | None = None
        self._more: list[Partials] = []
        self._errors: dict[str, BaseException] = {}
        self._points: dict[tuple[int, int, int, bool, bool], WindowPoints | None] = {}
        self._begins_whole: int | None = None
        self.start = BEGINNING
        """The time of the contents for a query that begins in this step."""

    def enter(self, user: object, wanted: SliceDemand, *, begins: bool) -> None:
        self._users[user] = wanted
        if begins:
            self._begins.add(user)
        self._planned = False

    def leave(self, user: object) -> None:
        del self._users[user]
        self._begins.discard(user)
        self._planned = False

    def forget(self) -> None:
        if "parts" in self._values:
            self._choose()
            names = set(self._aggregates.state_schema.names)
            self._values["parts"] = {name: each for name, each in self._values["parts"].items() if name in names}

    def complete_from(self, since: int) -> int | None:
        self._begins_whole = since
        return since

    def acts(self, span: Span) -> bool:
        moves = bool(self._begins) or any(each.moves(span) for each in self._users.values())
        return moves or self._log.can_drop(self._bound(span.before) // self.width_us)

    def due(self, low_watermark: int) -> int | None:
        """Return the next multiple of a query's slide for which its window has slices or will have some."""
        newest = self._log.greatest
        if newest is None:
            return None
        found: list[int] = []
        for each in self._users.values():
            last = last_multiple(low_watermark, each.slide_us)
            over = -(-(newest * self.width_us + each.range_us) // each.slide_us) * each.slide_us
            if over > last:
                found.append(last + each.slide_us)
        return min(found, default=None)

    def following(self, low_watermark: int) -> int | None:
        ends = self._all().slices * self.width_us
        changes = [
            next_multiple(ends + length, each.slide_us)
            for each in self._users.values()
            for length in (0, each.range_us)
        ]
        later = [each[each >= low_watermark] for each in changes]
        return min((int(each.min()) for each in later if len(each)), default=None)

    def rests_from(self, inputs: int) -> int:
        newest = self._log.greatest
        last = inputs if newest is None else max(inputs, newest * self.width_us)
        return last + self.width_us + max((each.range_us + each.slide_us for each in self._users.values()), default=0)

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        """Take rows in. The queries that use these slices step afterwards."""
        (rows,) = inputs
        self._begins.clear()
        self._choose()
        self._number(span)
        self._drop(span.before)
        self._values["until"] = span.until
        self.start = span.start
        self._errors.clear()
        self._points.clear()
        if rows.height:
            self._take(rows)
        return self.nothing

    @property
    def failing(self) -> bool:
        return bool(self._errors)

    def check(self, measures: Sequence[Measure]) -> None:
        """Raise the error that kept a column of some measures from being computed in this step."""
        for each in measures:
            if each.column in self._errors:
                raise self._errors[each.column]

    def whole(self, measures: Sequence[Measure]) -> int | None:
        """Return the time from which slices lack no row; None if that is never certain."""
        since = self._since(measures)
        known = [each for each in since if each is not None]
        return max(*known, self._dropped_until) if len(known) == len(since) else None

    @property
    def keys(self) -> pl.DataFrame:
        return self._all().keys

    def even_from(self, measures: Sequence[Measure]) -> int:
        """Return the time from which all of some measures have the same rows; LOWEST if they always had."""
        self._choose()
        since = self._since(measures)
        return LOWEST if len(set(since)) == 1 else max(each for each in since if each is not None)

    def points(self, wanted: SliceDemand, span: Span, even_from: int, *, begins: bool) -> WindowPoints | None:
        """Return the change points in the span; None without. Slices that begin before ``even_from`` are left out."""
        key = (wanted.range_us, wanted.slide_us, even_from, begins, span.net)
        if key not in self._points:
            window = (self.width_us, wanted.range_us, wanted.slide_us)
            above = even_from // self.width_us
            self._points[key] = points_of(self._all(), *window, span, above, begins=begins, always=not self._by)
        return self._points[key]

    def last(self, wanted: SliceDemand, even_from: int) -> WindowPoints:
        """Return the groups of the last window of the step before, without slices that begin before ``even_from``."""
        end = last_multiple(self._values["until"], wanted.slide_us)
        return window_at(self._all(), self.width_us, wanted.range_us, end, even_from // self.width_us)

    def results(self, measure: str, points: WindowPoints) -> pa.Array:
        """Return a measure's result at each point; raise AggregateOverflowError if a sum does not fit its type."""
        parts = self._aggregates.parts_of(measure)
        for part in parts:
            if part.key not in points.states:
                points.states[part.key] = self._all().of_runs(part.key, points.low, points.high)
        return self._aggregates.lowered(measure, points.states)

    def rows(self, points: WindowPoints) -> Int64s:
        return self.results(ROWS, points).to_numpy()

    def _choose(self) -> None:
        if self._planned:
            return
        self._planned = True
        wanted = {each.name: each for user in self._users.values() for each in user.measures}
        if wanted.keys() != self._measures.keys() or self._broken:
            self._broken = False
            self._measures = {name: wanted[name] for name in sorted(wanted)}
            fields = {field.name: field for each in self._measures.values() for field in each.columns.schema}
            aggregates = {ROWS: exact.count(), **{name: each.aggregate for name, each in self._measures.items()}}
            self._aggregates = Aggregates.of(aggregates, pa.schema(list(fields.values())))
            self._table = None
            self._more = []

    def _number(self, span: Span) -> None:
        """Assign a number to each new part of the state, and record the time since which it is kept."""
        names = self._aggregates.state_schema.names
        kept: dict[str, list[int | None]] = self._values.setdefault("parts", {})
        if kept.keys() == set(names):
            return
        if "whole" not in self._values:
            self._values["whole"] = self._first_whole(span)
        # A part that is added while others run lacks the rows before this step.
        seen = int(self._values.get("seen", BEGINNING))
        since = max(self._full(span.before), seen * self.width_us) if kept else self._values["whole"]
        following = int(self._values.get("next", 0))
        self._values["parts"] = {name: kept.get(name, [following + at, since]) for at, name in enumerate(names)}
        self._values["next"] = following + len(names)

    def _first_whole(self, span: Span) -> int | None:
        if span.start == BEGINNING:
            return BEGINNING
        return None if self._begins_whole is None else self._full(self._begins_whole)

    def _full(self, since: int) -> int:
        """Return the end of the last slice that may lack rows if only rows from ``since`` on were seen."""
        return -(-(since - 1 + self._shift) // self.width_us) * self.width_us

    def _since(self, measures: Sequence[Measure]) -> list[int | None]:
        names = [ROWS, *(each.name for each in measures)]
        kept: dict[str, list[int | None]] = self._values["parts"]
        return [kept.get(part, [0, None])[1] for name in names for part in self._aggregates.columns_of(name)]

    def _drop(self, before: int) -> None:
        """Forget the slices that no window needs from the last change points before the step on."""
        if before == LOWEST or not self._users:
            return
        bound = self._bound(before)
        if bound > self._dropped_until:
            self._values["dropped"] = bound
            self._log.drop(self._dropped)
            if self._table is not None:
                self._table = self._table.after(self._dropped)

    def _bound(self, before: int) -> int:
        """Return the start of the earliest window that is not over before a time."""
        return min(last_multiple(before, each.slide_us) - each.range_us for each in self._users.values())

    @property
    def _dropped_until(self) -> int:
        return int(self._values.get("dropped", BEGINNING))

    @property
    def _dropped(self) -> int:
        return self._dropped_until // self.width_us

    def _take(self, rows: pl.DataFrame) -> None:
        rows = rows.filter(~pl.col(TOMBSTONE))
        for each in self._conditions:
            if rows.height:
                rows = rows.filter(each.series(rows, "__condition"))
        if rows.height == 0:
            return
        slices = next_multiple(int64s(rows, TIME) + self._shift, self.width_us) // self.width_us
        self._values["seen"] = max(int(slices.max()), int(self._values.get("seen", BEGINNING)))
        keys = pl.DataFrame([each.series(rows, f"by{place}") for place, each in enumerate(self._by)])
        ids, first = numbered(with_slices(keys, slices), [*keys.columns, SLICE])
        state = self._aggregates.lift(self._inputs(rows), ids, len(first))
        partials = Partials(keys[first] if self._by else keys, slices[first], state)
        for measure in self._measures.values():
            if measure.column in self._errors:
                self._broken = True
                for name in self._aggregates.columns_of(measure.name):
                    self._values["parts"].pop(name, None)  # what has this number lacks these rows
        self._log.add(self._as_table(partials), self._merged)
        if self._table is not None:
            self._more.append(partials)

    def _inputs(self, rows: pl.DataFrame) -> pa.Table:
        """Return the columns that aggregates read; a failing one is null and fails only the queries that use it."""
        found: dict[str, pa.ChunkedArray | pa.Array] = {}
        for each in self._measures.values():
            schema = each.columns.schema
            names = [name for name in schema.names if name in self._aggregates.inputs and name not in found]
            if not names:
                continue
            try:
                table = to_table(each.columns.of(rows), schema)
                found.update((name, table.column(name)) for name in names)
            except FAILURES as error:
                self._errors[each.column] = attributed(error)
                found.update((name, pa.nulls(rows.height, schema.field(name).type)) for name in names)
        return pa.table(found) if found else pa.table({"": pa.nulls(rows.height)})

    def _all(self) -> SliceTable:
        self._choose()
        if self._table is None:
            keys = pl.DataFrame(schema=dtypes_of(self._keys))
            self._table = SliceTable.empty(self._aggregates, keys)
            self._more = [self._from_table(each) for each in self._log.tables()]
        if self._more:
            self._table = self._table.with_more(self._more)
            self._more = []
        return self._table

    def _merged(self, tables: Sequence[pa.Table]) -> pa.Table:
        return self._as_table(combined(self._aggregates, [self._from_table(each) for each in tables]))

    def _as_table(self, partials: Partials) -> pa.Table:
        """Return partial aggregates in the state's form: column names are the numbers of the parts."""
        columns = {SLICE: pa.array(partials.slices)}
        if self._by:
            keys = to_table(partials.keys, self._keys)
            columns.update((name, keys.column(name)) for name in self._keys.names)
        for name, (number, _) in self._values["parts"].items():
            columns[str(number)] = partials.state.column(name)
        return pa.table(columns)

    def _from_table(self, table: pa.Table) -> Partials:
        """Invert :meth:`_as_table`, without the slices that have been dropped."""
        table = table.filter(pa.array(table.column(SLICE).to_numpy() > self._dropped))
        empty = self._aggregates.empty(table.num_rows)
        columns: list[pa.ChunkedArray] = []
        for name in self._aggregates.state_schema.names:
            number = str(self._values["parts"].get(name, [None])[0])
            there = number in table.column_names
            columns.append(table.column(number) if there else empty.column(name))
        state = pa.Table.from_arrays(columns, schema=self._aggregates.state_schema)
        frame = pl.from_arrow(table.select(self._keys.names)) if self._by else pl.DataFrame()
        assert isinstance(frame, pl.DataFrame)
        return Partials(conformed(frame, dtypes_of(self._keys)), table.column(SLICE).to_numpy(), state)
