"""Streams: rows with a time that never leave, before a window makes a relation of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from ...conf.errors import SchemaError
from ...core.rows.exact_integers import LOWEST
from .numbers import mixed
from .operator import Operator
from .state import State
from .zsets import BEGINNING, TIME, WEIGHT, Span, columns_of, expanded, int64s

__all__ = ["SEQUENCE", "TOMBSTONE", "Changed", "Sampled", "Source", "stream_schema"]

SEQUENCE = "__sequence"
"""Which of two rows of one time is the later one: the greater."""

TOMBSTONE = "__tombstone"
"""Whether the row says that its key is deleted."""


def stream_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a stream's rows between operators, beside time and weight."""
    return schema.append(pa.field(SEQUENCE, pa.int64())).append(pa.field(TOMBSTONE, pa.bool_()))


class Source(Operator):
    """A stream of the catalogue.

    Rows may come in any order. Those below the low-watermark that was promised, and those without a time, are put
    aside.

    Parameters
    ----------
    name : str
        The stream's.
    schema : pyarrow.Schema
        Of its rows.
    event_time : str
        The column of the time: a timestamp, or whole microseconds; "" for a stored relation, whose rows are there from
        the beginning: all come in the first step that has some.
    state : State
    any_time : bool
        Whether rows below the low-watermark pass too. Those without a time never do.
    """

    def __init__(self, name: str, schema: pa.Schema, event_time: str, state: State, *, any_time: bool = False) -> None:
        super().__init__(stream_schema(schema))
        self._any_time = any_time
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
        """Return the rows that came in time; see :meth:`late`."""
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
        rows = rows.select(pl.col(name).cast(dtype) for name, dtype in self.dtypes.items())
        rows = rows.with_columns(self._time(rows, span), pl.lit(1, pl.Int64).alias(WEIGHT))
        least = span.before if self._event_time or begin else span.start
        if self._any_time and self._event_time:
            least = LOWEST
        in_time = pl.col(TIME).is_not_null() & (pl.col(TIME) >= least)
        self._late = rows.filter(~in_time)
        rows = rows.filter(in_time) if self._late.height else rows
        newest = rows.get_column(TIME).max()
        if isinstance(newest, int):
            self._values["newest"] = max(newest, self.newest)
        return rows

    @property
    def newest(self) -> int:
        """The greatest time of the rows so far: a window that begins after them may lack some up to it."""
        return int(self._values.get("newest", LOWEST))

    def first(self, rows: pl.DataFrame) -> int:
        """Return the least time of some rows; :data:`~.zsets.BEGINNING` if they have none."""
        if not self._event_time:
            return BEGINNING
        found = _micros(rows.get_column(self._event_time)).min()
        return int(found) if isinstance(found, int) else BEGINNING

    def late(self) -> pl.DataFrame:
        """Return the rows of the last step that were put aside."""
        return self._late

    def _time(self, rows: pl.DataFrame, span: Span) -> pl.Series:
        if not self._event_time:
            return pl.Series(TIME, np.full(rows.height, span.start))
        return _micros(rows.get_column(self._event_time)).alias(TIME)


def _micros(times: pl.Series) -> pl.Series:
    return times.cast(pl.Int64) if times.dtype.is_integer() else times.dt.epoch("us")


class Sampled(Operator):
    """Each row of a stream with a probability, by itself.

    The choice is a function of the row's time and sequence and of the seed: a replay takes the same rows.

    Parameters
    ----------
    schema : pyarrow.Schema
        Of the stream.
    percent : float
    seed : int
    """

    def __init__(self, schema: pa.Schema, percent: float, seed: int) -> None:
        super().__init__(stream_schema(schema))
        self._share = percent / 100
        self._seed = seed

    forgets = True

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        (rows,) = inputs
        if rows.height == 0:
            return self.nothing
        draw = mixed(int64s(rows, TIME), int64s(rows, SEQUENCE), self._seed) >> np.uint64(11)
        return rows.filter(pl.Series(draw.astype(np.float64) * 2.0**-53 < self._share))


class Changed(Operator):
    """A stream of a relation's changes, as rows for a window: one for each copy.

    Rows of one time follow each other in the order of their columns.

    Parameters
    ----------
    schema : pyarrow.Schema
    """

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(stream_schema(schema))

    forgets = True

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        (changes,) = inputs
        if changes.height == 0:
            return self.nothing
        changes = changes.sort([TIME, *columns_of(changes)])
        at, _ = expanded(np.zeros(changes.height, dtype=np.int64), int64s(changes, WEIGHT))
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
