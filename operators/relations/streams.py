"""Streams: timed rows that never leave, until a window turns them into a relation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from ...conf.errors import SchemaError
from ...core.rows.exact_integers import LOWEST, Int64s
from .arrangement import OperatorState
from .operator import Operator
from .zsets import BEGINNING, TIME, WEIGHT, Span, check_copies, columns_of, conformed, expanded, int64s, mixed, width_of

SEQUENCE = "__sequence"
"""Orders rows of equal times: the greater is later."""

TOMBSTONE = "__tombstone"
"""True for a row that deletes its key."""


def stream_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a stream's rows between operators, except time and weight."""
    return schema.append(pa.field(SEQUENCE, pa.int64())).append(pa.field(TOMBSTONE, pa.bool_()))


class StreamSource(Operator):
    """A stream of the catalog. Rows may come in any order.

    Rows without a time are late, and so are those below the low-watermark by more than ``lateness_us`` unless
    ``any_time`` is set. A window lets a row that counts in spite of its time enter just before the step.
    ``event_time`` is a column of timestamps or whole microseconds. It is "" for a stored relation, whose rows all come
    in the first step that has some.
    """

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        event_time: str,
        state: OperatorState,
        *,
        any_time: bool = False,
        lateness_us: int = 0,
    ) -> None:
        super().__init__(stream_schema(schema))
        self._any_time, self._lateness = any_time, lateness_us
        self.name = name
        self._columns = schema.names
        self._event_time = event_time
        self._values = state.values
        self._late: pl.DataFrame = self.nothing
        if event_time:
            kind = schema.field(event_time).type
            if not (pa.types.is_timestamp(kind) or pa.types.is_integer(kind)):
                raise SchemaError(
                    f"the event time {event_time} of {name} is {kind}",
                    expected="a timestamp, or whole microseconds since the epoch",
                    hint="cast it where the stream is read",
                )

    forgets = True

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        """Return the rows that are in time; :meth:`late` returns the others."""
        (rows,) = inputs
        missing = [name for name in self._columns if name not in rows.columns]
        if missing:
            raise SchemaError(
                f"rows of {self.name} lack {', '.join(missing)}", expected=f"the columns {', '.join(self._columns)}"
            )
        self._late = self.nothing
        if rows.height == 0:
            return self.nothing
        begin = int(self._values.get("rows", 0))
        self._values["rows"] = begin + rows.height
        if SEQUENCE not in rows.columns:
            rows = rows.with_columns(pl.Series(SEQUENCE, np.arange(begin, begin + rows.height)))
        if TOMBSTONE not in rows.columns:
            rows = rows.with_columns(pl.lit(False).alias(TOMBSTONE))
        rows = conformed(rows[list(self.dtypes)], self.dtypes)
        times = self._time(rows, span)
        rows = rows.hstack([times, pl.Series(WEIGHT, np.ones(rows.height, dtype=np.int64))])
        least = span.before if self._event_time or begin else span.start
        if self._event_time:
            least = LOWEST if self._any_time else max(least - self._lateness, LOWEST)
        in_time = times.is_not_null() & (times >= least)
        if not in_time.all():
            self._late, rows = rows.filter(~in_time), rows.filter(in_time)
        newest = rows.get_column(TIME).max()
        if isinstance(newest, int):
            self._values["newest"] = max(newest, self.newest)
        return rows

    @property
    def newest(self) -> int:
        """The greatest time of the rows so far. A window that begins after them may lack rows up to it."""
        return int(self._values.get("newest", LOWEST))

    def times(self, rows: pl.DataFrame) -> Int64s:
        """Return the times of some rows that have one; :data:`~.zsets.BEGINNING` for a stored relation."""
        if not self._event_time:
            return np.full(rows.height, BEGINNING)
        return _micros(rows.get_column(self._event_time)).drop_nulls().to_numpy()

    def late(self) -> pl.DataFrame:
        return self._late

    def _time(self, rows: pl.DataFrame, span: Span) -> pl.Series:
        if not self._event_time:
            return pl.Series(TIME, np.full(rows.height, span.start))
        return _micros(rows.get_column(self._event_time)).alias(TIME)


def _micros(times: pl.Series) -> pl.Series:
    return times.cast(pl.Int64) if times.dtype.is_integer() else times.dt.epoch("us")


class SampleOperator(Operator):
    """Each row of a stream with a probability.

    The stream, the row's time and sequence, and the seed determine the choice. So a replay repeats it, and samples of
    two streams are independent. ``stream`` is an identity of up to 60 bits, in hexadecimal digits.
    """

    def __init__(self, schema: pa.Schema, percent: float, seed: int, stream: str) -> None:
        super().__init__(stream_schema(schema))
        self._share = percent / 100
        self._seed = seed
        self._stream = int(stream, 16)

    forgets = True

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        (rows,) = inputs
        if rows.height == 0:
            return self.nothing
        draw = mixed(int64s(rows, TIME), int64s(rows, SEQUENCE), self._seed, self._stream) >> np.uint64(11)
        return rows.filter(pl.Series(draw.astype(np.float64) * 2.0**-53 < self._share))


class ChangeStream(Operator):
    """A relation's changes as a stream, one row for each copy. Rows of one time are in the order of their columns."""

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(stream_schema(schema))

    forgets = True

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        (changes,) = inputs
        if changes.height == 0:
            return self.nothing
        changes = changes.sort([TIME, *columns_of(changes)])
        weights = int64s(changes, WEIGHT)
        check_copies(weights, width_of(changes))
        at, _ = expanded(np.zeros(changes.height, dtype=np.int64), weights)
        times = int64s(changes, TIME)[at]
        begins = np.flatnonzero(np.diff(times, prepend=times[0] - 1) != 0)
        sequence = np.arange(len(at)) - np.repeat(begins, np.diff(np.append(begins, len(at))))
        return (
            changes[at]
            .with_columns(
                pl.Series(SEQUENCE, sequence), pl.lit(False).alias(TOMBSTONE), pl.lit(1, pl.Int64).alias(WEIGHT)
            )
            .select(*self.dtypes, TIME, WEIGHT)
        )
