"""Windows by rows: the newest n of each partition, and the newest row of each update key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from ...core.rows.exact_integers import LOWEST, Int64s
from .arrangement import OperatorState
from .operator import Evaluable, Operator, WaitingOperator
from .streams import SEQUENCE, TOMBSTONE, stream_schema
from .zsets import (
    OLD,
    TIME,
    Span,
    consolidated,
    delta_frame,
    equal_rows,
    int64s,
    key_numbers,
    numbered,
    settled,
)

_AT = "__at"
_NUMBER = "__number"


class NewestWindow(WaitingOperator):
    """``[PARTITION BY ... ROWS n]`` and ``LATEST``. Without ``partition``, all rows are one partition.

    A row enters at its time, and leaves when the n-th later row of its partition enters. The later row has the greater
    time, then the greater sequence. So a row waits until the low-watermark passes it. With a ``slide``, rows enter and
    leave only with every so-many-th row of their partition.
    With ``tombstones``, a tombstone replaces the row before it and is not a row itself; otherwise it is ignored.
    State: up to n + slide − 1 rows of each partition, and the rows that wait.
    """

    def __init__(
        self,
        schema: pa.Schema,
        n: int,
        partition: Sequence[str],
        where: Evaluable | None,
        tombstones: bool,
        state: OperatorState,
        slide: int = 1,
    ) -> None:
        super().__init__(schema)
        self._n, self.key, self._where, self._tombstones = n, list(partition), where, tombstones
        self._slide = slide
        rows = stream_schema(schema)
        self._pending = state.pending("pending", rows.append(pa.field(TIME, pa.int64())))
        more = [pa.field(name, pa.int64()) for name in ([_AT, _NUMBER] if slide > 1 else [_AT])]
        self._kept = state.arrangement("kept", pa.schema([*rows, *more]))

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        (rows,) = inputs
        due = self._pending.take(span.until)
        if rows.height == 0 and due.height == 0:
            return self.nothing
        rows = rows.select(due.columns)
        if not self._tombstones:
            rows = rows.filter(~pl.col(TOMBSTONE))
        if self._where is not None:
            rows = rows.filter(self._where.series(rows, "__where"))
        self._pending.add(rows.filter(pl.col(TIME) >= span.until))
        ready = pl.concat([due, rows.filter(pl.col(TIME) < span.until)])
        if ready.height == 0:
            return self.nothing
        numbers = key_numbers(ready, self.key)
        old = self._kept.read(numbers).with_columns(pl.lit(OLD).alias(TIME))
        ready = ready.with_columns(pl.col(TIME).alias(_AT), pl.lit(1, pl.Int64).alias(_NUMBER)).select(old.columns)
        together = pl.concat([old, ready])
        partitions = numbered(together, self.key).ids
        order = np.lexsort((int64s(together, SEQUENCE), int64s(together, _AT), partitions))
        together, partitions = together[order], partitions[order]
        at, place = int64s(together, _AT), np.arange(together.height)
        if self._slide > 1:
            # Of each partition, the rows kept come first, and have one number after the other.
            first = np.maximum.accumulate(np.where(np.diff(partitions, prepend=-1) != 0, place, 0))
            number = int64s(together, _NUMBER)[first] + place - first
            together = together.with_columns(pl.Series(_NUMBER, number))
            comes, goes = (place - number - (-(number + n) // self._slide) * self._slide for n in (0, self._n))
        else:
            comes, goes = place, place + self._n
        enters, _ = self._reached(comes, int64s(together, TIME), partitions, span)
        leaves, stays = self._reached(goes, at, partitions, span)
        is_row = ~together.get_column(TOMBSTONE).to_numpy()
        kept = together.filter(pl.Series(stays & is_row)).drop(TIME)
        self._kept.write(kept, key_numbers(kept, self.key))
        in_and_out = is_row & (enters != leaves)
        came = np.flatnonzero(in_and_out & (enters != OLD))
        left = np.flatnonzero(in_and_out & ~stays)
        rows = together.select(*self.dtypes)
        moved = pl.concat([delta_frame(rows[came], enters[came], 1), delta_frame(rows[left], leaves[left], -1)])
        return settled(moved, span)

    def rows_of(self, numbers: Int64s) -> pl.DataFrame:
        """Return the rows of the partitions with some numbers after the step, as a delta."""
        rows = self._entered(self._kept.read(numbers))
        return consolidated(delta_frame(rows.select(*self.dtypes), OLD, 1))

    def contents(self) -> pl.DataFrame | None:
        rows = self._entered(self._kept.read_all())
        return delta_frame(rows.select(*self.dtypes), int64s(rows, _AT), 1)

    def _entered(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of whole partitions without those that a slide holds back."""
        if self._slide == 1:
            return rows
        last = pl.col(_NUMBER).max()
        last = last.over(self.key) if self.key else last
        return rows.filter(pl.col(_NUMBER) <= last // self._slide * self._slide)

    def complete_from(self, since: int) -> int | None:
        return None

    @staticmethod
    def _reached(places: Int64s, times: Int64s, partitions: Int64s, span: Span) -> tuple[Int64s, npt.NDArray[np.bool_]]:
        """Return the times of the rows at some places, and which are not there yet: past the end of a partition."""
        there = np.minimum(places, len(times) - 1)
        missing = (places != there) | (partitions[there] != partitions)
        return np.where(missing, span.until, times[there]), missing


_FORGOTTEN = "forgotten"


class NewestByArrival(Operator):
    """``LATEST``, evaluated as rows arrive.

    After each step the relation holds each key's newest row, late ones included: the greatest event time, then the
    greatest sequence. A newer tombstone removes the key. All changes of a step have one time, the step's.

    A tombstone is kept until the low-watermark passes it. A late row of a key without state might restore a deleted
    row. It is quarantined if a tombstone of its time or later has been forgotten. State: a row or a tombstone of each
    key, and the keys of tombstones by time.
    """

    def __init__(self, schema: pa.Schema, key: Sequence[str], state: OperatorState) -> None:
        super().__init__(schema)
        self.key = list(key)
        self._values = state.values
        self._aside = pl.DataFrame()
        times = pa.field(TIME, pa.int64())
        rows = stream_schema(schema)
        self._rows = [*rows.names, _AT]
        self._kept = state.arrangement("newest", rows.append(pa.field(_AT, pa.int64())))
        self._deleted = state.pending("deleted", pa.schema([*(schema.field(name) for name in self.key), times]))

    def late(self) -> pl.DataFrame:
        """Return the rows that the last step quarantined."""
        return self._aside

    def acts(self, span: Span) -> bool:
        return self._deleted.due(span.promised)

    def due(self, low_watermark: int) -> int | None:
        return self._deleted.first

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        (rows,) = inputs
        self._aside = rows.clear()
        due = self._deleted.take(span.promised)
        if rows.height == 0 and due.height == 0:
            return self.nothing
        columns = [rows.get_column(TIME if name == _AT else name).alias(name) for name in self._rows]
        came = pl.DataFrame(columns)
        numbers = key_numbers(came, self.key)
        old = self._kept.read(np.concatenate([numbers, key_numbers(due, self.key)]))
        together = old.vstack(came)
        keys = numbered(together, self.key).ids
        found = np.arange(together.height)
        if _FORGOTTEN in self._values:
            ambiguous = self._ambiguous(together, keys, old.height)
            settled = np.zeros(together.height, dtype=np.bool_)
            settled[keys[~ambiguous]] = True
            aside = (ambiguous & ~settled[keys])[old.height :]
            if aside.any():
                self._aside = rows.filter(pl.Series(aside) & ~rows.get_column(TOMBSTONE))
            found = np.flatnonzero(~ambiguous)
        order = found[np.lexsort((int64s(together, SEQUENCE)[found], int64s(together, _AT)[found], keys[found]))]
        newest = order[np.diff(keys[order], append=-1) != 0]
        return self._moved(together, keys, old.height, newest, numbers, span)

    def _ambiguous(self, together: pl.DataFrame, keys: Int64s, olds: int) -> npt.NDArray[np.bool_]:
        """Return which rows have a key without state, and a time up to that of a forgotten tombstone."""
        has_row = np.zeros(together.height, dtype=np.bool_)
        has_row[keys[:olds]] = True
        return ~has_row[keys] & (int64s(together, _AT) <= int(self._values[_FORGOTTEN]))

    def _moved(
        self, together: pl.DataFrame, keys: Int64s, olds: int, newest: Int64s, numbers: Int64s, span: Span
    ) -> pl.DataFrame:
        """Keep the newest rows, and return the changes; ``numbers`` are those of the keys of the rows that came."""
        times, dead = int64s(together, _AT), together.get_column(TOMBSTONE).to_numpy()
        over = dead[newest] & (times[newest] < span.promised)
        forgotten = newest[over]
        if len(forgotten):
            before = int(self._values.get(_FORGOTTEN, LOWEST))
            self._values[_FORGOTTEN] = max(before, int(times[forgotten].max()))
        fresh = newest >= olds
        waits = newest[fresh & dead[newest] & ~over]
        if len(waits):
            self._deleted.add(together[waits].select(*self.key, pl.col(_AT).alias(TIME)))
        if not (fresh | over).any():
            return self.nothing
        written = newest[fresh & ~over]
        replaced, left = np.zeros((2, together.height), dtype=np.bool_)
        replaced[keys[newest[fresh | over]]] = True
        left[keys[newest[fresh]]] = True
        self._kept.write(together[written], numbers[written - olds], replaced[keys[:olds]])
        went = np.flatnonzero(left[keys[:olds]] & ~dead[:olds])
        came = newest[fresh & ~dead[newest]]
        # A key whose row has the same values as before does not change.
        rows = together[list(self.dtypes)]
        before = np.full(together.height, -1)
        before[keys[went]] = went
        again = np.flatnonzero(before[keys[came]] >= 0)
        again = again[equal_rows(rows, before[keys[came[again]]], came[again])]
        if len(again):
            went = went[~np.isin(went, before[keys[came[again]]])]
            came = np.delete(came, again)
        weights = np.repeat(np.array([-1, 1]), [len(went), len(came)])
        return delta_frame(rows[np.concatenate([went, came])], span.until - 1, weights)

    def rows_of(self, numbers: Int64s) -> pl.DataFrame:
        """Return the rows of the keys with some numbers after the step, as a delta."""
        rows = self._kept.read(numbers)
        rows = rows[np.flatnonzero(~rows.get_column(TOMBSTONE).to_numpy())]
        return delta_frame(rows[list(self.dtypes)], int64s(rows, _AT), 1)

    def contents(self) -> pl.DataFrame | None:
        rows = self._kept.read_all().filter(~pl.col(TOMBSTONE))
        return delta_frame(rows.select(*self.dtypes), int64s(rows, _AT), 1)

    def complete_from(self, since: int) -> int | None:
        return None
