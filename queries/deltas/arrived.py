"""``LATEST`` by the arrival clock: the newest row of each key among the rows so far, without waiting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from ...core.rows.exact_integers import LOWEST
from .numbers import key_numbers
from .operator import Operator
from .state import State
from .streams import SEQUENCE, TOMBSTONE, stream_schema
from .zsets import TIME, Span, consolidated, delta_frame, int64s, numbered

__all__ = ["NewestArrived"]

_AT = "__at"
_FORGOTTEN = "forgotten"


class NewestArrived(Operator):
    """``LATEST``, evaluated as rows arrive.

    After each step the relation holds each key's newest row, late ones included: the greatest event time, then the
    greatest sequence. A newer tombstone removes the key. All changes of a step have one time, the step's.

    A tombstone is kept until the low-watermark passes it. A late row of a key without state is quarantined if a
    tombstone of its time or later has been forgotten: it might bring a deleted row back.
    State: a row or a tombstone of each key, and the keys of tombstones by time.
    """

    def __init__(self, schema: pa.Schema, key: Sequence[str], state: State) -> None:
        super().__init__(schema)
        self._key = list(key)
        self._values = state.values
        self._aside = pl.DataFrame()
        times = pa.field(TIME, pa.int64())
        rows = stream_schema(schema)
        self._rows = [*rows.names, _AT]
        self._kept = state.arrangement("newest", rows.append(pa.field(_AT, pa.int64())))
        self._deleted = state.pending("deleted", pa.schema([*(schema.field(name) for name in self._key), times]))

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
        came = rows.rename({TIME: _AT}).select(self._rows)
        touched = np.unique(np.concatenate([key_numbers(came, self._key), key_numbers(due, self._key)]))
        old = self._kept.read(touched)
        together = pl.concat([old, came])
        keys = numbered(together, self._key).ids
        has_row = np.zeros(together.height, dtype=np.bool_)
        has_row[keys[: old.height]] = True
        ambiguous = ~has_row[keys] & (int64s(together, _AT) <= int(self._values.get(_FORGOTTEN, LOWEST)))
        settled = np.zeros(together.height, dtype=np.bool_)
        settled[keys[~ambiguous]] = True
        aside = (ambiguous & ~settled[keys])[old.height :]
        self._aside = rows.filter(pl.Series(aside) & ~rows.get_column(TOMBSTONE))
        found = np.flatnonzero(~ambiguous)
        order = found[np.lexsort((int64s(together, SEQUENCE)[found], int64s(together, _AT)[found], keys[found]))]
        newest = order[np.diff(keys[order], append=-1) != 0]
        return self._moved(together, keys, old.height, newest, span)

    def _moved(
        self, together: pl.DataFrame, keys: np.ndarray, olds: int, newest: np.ndarray, span: Span
    ) -> pl.DataFrame:
        times, dead = int64s(together, _AT), together.get_column(TOMBSTONE).to_numpy()
        over = dead[newest] & (times[newest] < span.promised)
        forgotten = newest[over]
        if len(forgotten):
            before = int(self._values.get(_FORGOTTEN, LOWEST))
            self._values[_FORGOTTEN] = max(before, int(times[forgotten].max()))
        fresh = newest >= olds
        waits = together[newest[fresh & dead[newest] & ~over]]
        self._deleted.add(waits.select(*self._key, pl.col(_AT).alias(TIME)))
        if not (fresh | over).any():
            return self.nothing
        kept = together[newest[fresh & ~over]]
        self._kept.write(kept, key_numbers(kept, self._key), np.isin(keys[:olds], keys[newest[fresh | over]]))
        came = newest[fresh & ~dead[newest]]
        left = np.flatnonzero(np.isin(keys[:olds], keys[newest[fresh]]) & ~dead[:olds])
        rows, time = together.select(*self.dtypes), span.until - 1
        return consolidated(pl.concat([delta_frame(rows[left], time, -1), delta_frame(rows[came], time, 1)]))

    def contents(self) -> pl.DataFrame | None:
        rows = self._kept.read_all().filter(~pl.col(TOMBSTONE))
        return delta_frame(rows.select(*self.dtypes), int64s(rows, _AT), 1)

    def whole_from(self, since: int) -> int | None:
        return None
