"""Session windows: the rows of each run of a partition's rows, from its end on, for the length of a gap."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from ...core.rows.exact_integers import Int64s
from .arrangement import OperatorState
from .operator import Operator
from .streams import TOMBSTONE
from .windows import check_years
from .zsets import BEGINNING, TIME, WEIGHT, Span, delta_frame, int64s, key_numbers, numbered, settled

_AT, _START, _LAST = "__at", "__start", "__last"


class SessionWindow(Operator):
    """``SESSION``, with ``window_start`` and ``window_end`` as last columns.

    State: the first and the last time of each open session; its rows, by the end that was known when they were written;
    the rows of ended sessions, by the time at which they leave. A row is written again once for each end that passes
    before its session's own: as often as its session is longer than the gap.
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
            "open", pa.schema([*key, pa.field(_START, pa.int64()), pa.field(_LAST, pa.int64())])
        )

    def acts(self, span: Span) -> bool:
        return self._pending.due(span.until) or self._leaving.due(span.until)

    def due(self, low_watermark: int) -> int | None:
        return min((each for each in (self._pending.first, self._leaving.first) if each is not None), default=None)

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

    def whole_from(self, since: int) -> int | None:
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
        last = np.concatenate([int64s(heads, _LAST), at])[parts]
        order = np.lexsort((first, partitions[parts]))
        parts, first, last = parts[order], first[order], last[order]
        begins = np.ones(len(parts), dtype=np.bool_)
        begins[1:] = (np.diff(partitions[parts]) != 0) | (first[1:] - last[:-1] > self._gap)
        begin = np.flatnonzero(begins)
        starts, lasts = first[begin], np.maximum.reduceat(last, begin)
        session = np.cumsum(begins) - 1
        open_one = lasts + self._gap >= span.until
        kept = together[parts[begin[open_one]]].with_columns(
            pl.Series(_START, starts[open_one]), pl.Series(_LAST, lasts[open_one])
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
