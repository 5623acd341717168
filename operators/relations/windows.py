"""Windows by time: each row of a stream enters a relation at one time and leaves it at another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from ...conf.errors import QueryError
from ...core.rows.exact_integers import HIGHEST, Int64s
from ...expressions.calendar import FIRST_DAY, LAST_DAY
from .arrangement import OperatorState
from .operator import Evaluable, Operator, WaitingOperator
from .streams import TOMBSTONE
from .zsets import (
    BEGINNING,
    TIME,
    WEIGHT,
    Span,
    concat_rows,
    consolidated,
    delta_frame,
    expanded,
    int64s,
    keep_rows,
    key_numbers,
    numbered,
    settled,
)

_DAY_US = 86_400_000_000
_FIRST, _LAST = FIRST_DAY * _DAY_US, (LAST_DAY + 1) * _DAY_US - 1


def check_years(times: Int64s, what: str) -> None:
    """Raise QueryError if a time in microseconds is outside the years 1 to 9999. ``what`` begins the message."""
    if len(times) == 0 or (times.min() >= _FIRST and times.max() <= _LAST):
        return
    outside = int(times[(times < _FIRST) | (times > _LAST)][0])
    raise QueryError(
        f"{what} at {np.datetime64(outside, 'us')}",
        expected="a time in the years 1 to 9999",
        hint="take rows whose event time is so near these limits out of the stream, with where() before "
        "queries.source()",
    )


_LEAVES = "__leaves"
_AT = "__at"


def next_multiple(times: Int64s, slide: int | None) -> Int64s:
    """Round times up to multiples of the slide since the epoch."""
    return times if slide is None else -(-times // slide) * slide


class TimeWindow(WaitingOperator):
    """``RANGE``, ``NOW`` and ``UNBOUNDED``, and hopping windows without their columns.

    Rows stay for ``range_us`` (None: forever) and enter and leave only at multiples of ``slide_us``. ``shift_us`` is
    added to each row's time: 1 for windows that contain their start and not their end.
    State: the window's rows by the time at which they leave, and later rows by the time at which they enter.
    """

    def __init__(
        self, schema: pa.Schema, range_us: int | None, slide_us: int | None, shift_us: int, state: OperatorState
    ) -> None:
        super().__init__(schema)
        self._range, self._slide, self._shift = range_us, slide_us, shift_us
        self.forgets = range_us is None
        more = [pa.field(name, pa.int64()) for name in (TIME, WEIGHT, _LEAVES)]
        self._pending = state.pending("pending", pa.schema([*schema, *more]))

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        (rows,) = inputs
        due = self._pending.take(span.until)
        if rows.height == 0 and due.height == 0:
            return self.nothing
        came = self._entering(keep_rows(rows, ~rows.get_column(TOMBSTONE)), due.columns, span.start)
        now, comes = came.get_column(TIME) < span.until, due.get_column(WEIGHT) > 0
        entering = concat_rows([keep_rows(due, comes), keep_rows(came, now)])
        if span.net:
            entering = keep_rows(entering, entering.get_column(_LEAVES) >= span.until)
        leaving = keep_rows(due, ~comes)
        staying = keep_rows(entering, entering.get_column(_LEAVES) != HIGHEST)
        staying = staying.with_columns(pl.col(_LEAVES).alias(TIME), -pl.col(WEIGHT))
        waits = staying.get_column(TIME) >= span.until
        self._pending.add(concat_rows([keep_rows(came, ~now), keep_rows(staying, waits)]))
        return settled(concat_rows([entering, keep_rows(staying, ~waits), leaving]).drop(_LEAVES), span)

    def rests_from(self, inputs: int) -> int:
        return super().rests_from(inputs) + self._shift + (self._range or 0) + (self._slide or 0)

    def contents(self) -> pl.DataFrame | None:
        if self._range is None:
            return None
        there = self._pending.all().filter(pl.col(WEIGHT) < 0)
        return there.with_columns(-pl.col(WEIGHT)).drop(_LEAVES)

    def complete_from(self, since: int) -> int | None:
        return None if self._range is None else since + self._range + (self._slide or 0)

    def _entering(self, rows: pl.DataFrame, columns: list[str], start: int) -> pl.DataFrame:
        times = int64s(rows, TIME)
        at = times + self._shift
        enters = np.maximum(next_multiple(at, self._slide), start)
        ends = None if self._range is None else next_multiple(at + self._range, self._slide)
        leaves = np.full(rows.height, HIGHEST) if ends is None else ends
        rows = rows.with_columns(pl.Series(TIME, enters), pl.Series(_LEAVES, leaves)).select(columns)
        return keep_rows(rows, rows.get_column(_LEAVES) > rows.get_column(TIME))


class HopWindow(WaitingOperator):
    """Hopping windows with ``window_start`` and ``window_end`` as last columns: a row is in each window that has ended.

    At each multiple of the slide it leaves one window and enters the next. State: each row, by its next change.
    """

    def __init__(self, schema: pa.Schema, size_us: int, slide_us: int, state: OperatorState) -> None:
        super().__init__(schema)
        self._size, self._slide = size_us, slide_us
        self._columns = schema.names[:-2]
        self._bounds = schema.names[-2:]
        more = [pa.field(name, pa.int64()) for name in (TIME, WEIGHT, _AT)]
        self._pending = state.pending("pending", pa.schema([*list(schema)[:-2], *more]))

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        (rows,) = inputs
        due = self._pending.take(span.until)
        if rows.height == 0 and due.height == 0:
            return self.nothing
        rows = rows.filter(~pl.col(TOMBSTONE))
        at = int64s(rows, TIME) + 1
        # A row that is late enters the window of now, which ended last.
        enters = np.maximum(next_multiple(at, self._slide), span.start // self._slide * self._slide)
        came = rows.with_columns(pl.Series(TIME, enters), pl.Series(_AT, at))
        first = next_multiple(int64s(due, _AT), self._slide)
        came = came.select(due.columns).filter(pl.col(TIME) < self._last(came))
        first = np.concatenate([first, int64s(came, TIME)])
        due = pl.concat([due, came])
        following, last = int64s(due, TIME), self._last(due)
        # A row changes at each multiple from its next one to its last; those below the low-watermark are due.
        end = np.minimum(last, -(-span.until // self._slide) * self._slide - self._slide)
        changes = np.maximum((end - following) // self._slide + 1, 0)
        if span.net:
            return self._moved_once(due, first, following, last, changes, span)
        which, number = expanded(np.zeros(len(changes), dtype=np.int64), changes)
        times = following[which] + number * self._slide
        enters, leaves = times < last[which], times > first[which]
        moved = pl.concat(
            [
                self._windows(due[which[enters]], np.maximum(times[enters], span.start), times[enters], 1),
                self._windows(due[which[leaves]], times[leaves], times[leaves] - self._slide, -1),
            ]
        )
        self._wait(due, following + changes * self._slide, last)
        return consolidated(moved)

    def _moved_once(
        self, due: pl.DataFrame, first: Int64s, following: Int64s, last: Int64s, changes: Int64s, span: Span
    ) -> pl.DataFrame:
        """Return the net change: each row leaves its old window and enters its current one."""
        now = following + (changes - 1) * self._slide
        moves = changes > 0
        leaves = moves & (following > first)
        enters = moves & (now < last)
        self._wait(due, now + self._slide, last)
        time = np.full(due.height, span.until - 1)
        return consolidated(
            pl.concat(
                [
                    self._windows(due.filter(pl.Series(enters)), time[enters], now[enters], 1),
                    self._windows(due.filter(pl.Series(leaves)), time[leaves], following[leaves] - self._slide, -1),
                ]
            )
        )

    def _wait(self, due: pl.DataFrame, following: Int64s, last: Int64s) -> None:
        rest = due.with_columns(pl.Series(TIME, following))
        self._pending.add(rest.filter(pl.Series(following <= last)))

    def rests_from(self, inputs: int) -> int:
        return super().rests_from(inputs) + self._size + self._slide

    def contents(self) -> pl.DataFrame | None:
        rows = self._pending.all()
        following = int64s(rows, TIME)
        there = following > next_multiple(int64s(rows, _AT), self._slide)
        ends = following[there] - self._slide
        return self._windows(rows.filter(pl.Series(there)), ends, ends, 1)

    def complete_from(self, since: int) -> int | None:
        return since + self._size + self._slide

    def _last(self, rows: pl.DataFrame) -> Int64s:
        return next_multiple(int64s(rows, _AT) + self._size, self._slide)

    def _windows(self, rows: pl.DataFrame, times: Int64s, ends: Int64s, sign: int) -> pl.DataFrame:
        start, end = self._bounds
        check_years(ends - self._size, "a window begins")
        check_years(ends, "a window ends")
        bounds = [
            pl.Series(start, ends - self._size).cast(self.dtypes[start]),
            pl.Series(end, ends).cast(self.dtypes[end]),
        ]
        weights = int64s(rows, WEIGHT) * sign
        return delta_frame(rows.select(self._columns).with_columns(bounds), times, weights)


class RowLifetimes(WaitingOperator):
    """The rows of a relation from the last of some times on, until before the first of others.

    State: the future changes. Each row that waits has an entry at the time at which it comes. Each row that is present
    or waits has one at the time at which it leaves, unless it stays.
    """

    def __init__(
        self,
        schema: pa.Schema,
        begins: Sequence[tuple[Evaluable, int]],
        ends: Sequence[tuple[Evaluable, int]],
        state: OperatorState,
    ) -> None:
        super().__init__(schema)
        self._begins, self._ends = begins, ends
        more = [pa.field(name, pa.int64()) for name in (TIME, WEIGHT)]
        self._pending = state.pending("pending", pa.schema([*schema, *more]))

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        (rows,) = inputs
        due = self._pending.take(span.until)
        if rows.height == 0 and due.height == 0:
            return self.nothing
        known = np.ones(rows.height, dtype=np.bool_)
        enters, leaves = int64s(rows, TIME).copy(), np.full(rows.height, HIGHEST)
        for (time, after), ends in [*((each, False) for each in self._begins), *((each, True) for each in self._ends)]:
            values = time.series(rows, _AT).cast(pl.Datetime("us")).to_physical()
            known &= values.is_not_null().to_numpy()
            at = values.fill_null(0).to_numpy() + after
            leaves, enters = (np.minimum(leaves, at), enters) if ends else (leaves, np.maximum(enters, at))
        some = np.flatnonzero(known & (enters < leaves))
        there, weights = rows[some].select(*self.dtypes), int64s(rows, WEIGHT)[some]
        moved = pl.concat([delta_frame(there, enters[some], weights), delta_frame(there, leaves[some], -weights)])
        times = moved.get_column(TIME)
        now = times < span.until
        self._pending.add(consolidated(moved.filter(~now & (times < HIGHEST))))
        return settled(pl.concat([due, moved.filter(now)]), span)

    def contents(self) -> pl.DataFrame | None:
        if not self._ends:
            return None  # they follow from the rows below
        # What is to leave and does not come first.
        return self._pending.all().with_columns(-pl.col(WEIGHT))


class StoredRelation(Operator):
    """A relation that exists from the beginning. State: its rows, for queries that are registered later."""

    def __init__(self, schema: pa.Schema, state: OperatorState) -> None:
        super().__init__(schema)
        self._pending = state.pending(
            "rows", pa.schema([*schema, pa.field(TIME, pa.int64()), pa.field(WEIGHT, pa.int64())])
        )

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        (rows,) = inputs
        if rows.height == 0:
            return self.nothing
        changes = consolidated(rows.filter(~pl.col(TOMBSTONE)).select(self.nothing.columns))
        self._pending.add(changes)
        return changes

    def contents(self) -> pl.DataFrame | None:
        return self._pending.all()


_START, _LATEST = "__start", "__last"


class SessionWindow(Operator):
    """``SESSION``, with ``window_start`` and ``window_end`` as last columns.

    State: the first and the last time of each open session. Its rows are by the end known when they were written, the
    rows of ended sessions by the time at which they leave. A row is written again once for each end that passes before
    its session's own: as often as its session is longer than the gap.
    """

    def __init__(self, schema: pa.Schema, gap_us: int, partition: Sequence[str], state: OperatorState) -> None:
        super().__init__(schema)
        self._gap, self._partition = gap_us, list(partition)
        self._columns, self._bounds = schema.names[:-2], schema.names[-2:]
        times = [pa.field(name, pa.int64()) for name in (TIME, WEIGHT)]
        own, key = list(schema)[:-2], [schema.field(name) for name in partition]
        # The rows that wait for the low-watermark are due at their own time, those of open sessions later.
        self._pending = state.pending("pending", pa.schema([*own, *times, pa.field(_AT, pa.int64())]))
        self._leaving = state.pending("leaving", pa.schema([*schema, *times]))
        self._open = state.arrangement(
            "open", pa.schema([*key, pa.field(_START, pa.int64()), pa.field(_LATEST, pa.int64())])
        )

    def acts(self, span: Span) -> bool:
        return self._pending.due(span.until) or self._leaving.due(span.until)

    def due(self, low_watermark: int) -> int | None:
        return min((each for each in (self._pending.first, self._leaving.first) if each is not None), default=None)

    def rests_from(self, inputs: int) -> int:
        lasts = [each for each in (self._pending.last, self._leaving.last) if each is not None]
        return max([inputs, *(each + 1 for each in lasts)]) + 2 * self._gap

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        (rows,) = inputs
        due, gone = self._pending.take(span.until), self._leaving.take(span.until)
        if rows.height == 0 and due.height == 0 and gone.height == 0:
            return self.nothing
        came = rows.filter(~pl.col(TOMBSTONE)).with_columns(pl.col(TIME).alias(_AT)).select(due.columns)
        self._pending.add(came.filter(pl.col(TIME) >= span.until))
        ready = pl.concat([due, came.filter(pl.col(TIME) < span.until)])
        if ready.height == 0:
            return settled(gone, span)
        start, end = self._sessions(ready, span)
        ended = end < span.until
        rest = ready.with_columns(pl.Series(TIME, end))
        self._pending.add(rest.filter(pl.Series(~ended)))
        entering = self._with_bounds(ready.filter(pl.Series(ended)), start[ended], end[ended])
        leaving = entering.with_columns(pl.col(TIME) + self._gap, -pl.col(WEIGHT))
        self._leaving.add(leaving.filter(pl.col(TIME) >= span.until))
        return settled(pl.concat([gone, entering, leaving.filter(pl.col(TIME) < span.until)]), span)

    def contents(self) -> pl.DataFrame | None:
        return self._leaving.all().with_columns(-pl.col(WEIGHT))

    def complete_from(self, since: int) -> int | None:
        # A session may have begun at any time before.
        return since if since == BEGINNING else None

    def _sessions(self, rows: pl.DataFrame, span: Span) -> tuple[Int64s, Int64s]:
        """Return the start and the end of each row's session as known now, and keep the open ones."""
        at = int64s(rows, _AT)
        known = int64s(rows, TIME) > at  # rows of sessions that were open
        heads = self._open.read(key_numbers(rows, self._partition))
        size = heads.height
        together = pl.concat([heads.select(self._partition), rows.select(self._partition)])
        partitions = numbered(together, self._partition).ids
        # A session that was open is the first part of its partition; each new row is a part.
        parts = np.concatenate([np.arange(size), size + np.flatnonzero(~known)])
        first = np.concatenate([int64s(heads, _START), at])[parts]
        last = np.concatenate([int64s(heads, _LATEST), at])[parts]
        order = np.lexsort((first, partitions[parts]))
        parts, first, last = parts[order], first[order], last[order]
        begins = np.ones(len(parts), dtype=np.bool_)
        begins[1:] = (np.diff(partitions[parts]) != 0) | (first[1:] - last[:-1] > self._gap)
        begin = np.flatnonzero(begins)
        starts, lasts = first[begin], np.maximum.reduceat(last, begin)
        session = np.cumsum(begins) - 1
        open_one = lasts + self._gap >= span.until
        kept = together[parts[begin[open_one]]].with_columns(
            pl.Series(_START, starts[open_one]), pl.Series(_LATEST, lasts[open_one])
        )
        self._open.write(kept, key_numbers(kept, self._partition))
        of_part = np.zeros(together.height, dtype=np.int64)
        of_part[parts] = session
        of_head = np.zeros(int(partitions.max()) + 1, dtype=np.int64)
        of_head[partitions[:size]] = of_part[:size]
        of_row = np.where(known, of_head[partitions[size:]], of_part[size:])
        return starts[of_row], lasts[of_row] + self._gap

    def _with_bounds(self, rows: pl.DataFrame, start: Int64s, end: Int64s) -> pl.DataFrame:
        check_years(end, "a session ends")
        bounds = [
            pl.Series(name, times).cast(self.dtypes[name])
            for name, times in zip(self._bounds, (start, end), strict=True)
        ]
        return delta_frame(rows.select(self._columns).with_columns(bounds), end, int64s(rows, WEIGHT))
