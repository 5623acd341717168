"""Windows by rows: the newest n of each partition, and the newest row of each update key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from .numbers import key_numbers
from .operator import Computed, Operator
from .state import State
from .streams import SEQUENCE, TOMBSTONE, stream_schema
from .zsets import OLD, TIME, Span, delta_frame, int64s, numbered, settled

__all__ = ["NewestWindow"]

_AT = "__at"


class NewestWindow(Operator):
    """``[PARTITION BY ... ROWS n]`` and ``LATEST``. Without ``partition``, all rows are one partition.

    A row enters at its time, and leaves when the n-th later row of its partition enters. The later row has the greater
    time, then the greater sequence. So a row waits until the low-watermark passes it.
    With ``tombstones``, a tombstone replaces the row before it and is no row itself; otherwise it is ignored.
    State: up to n rows of each partition, and the rows that wait.
    """

    def __init__(
        self,
        schema: pa.Schema,
        n: int,
        partition: Sequence[str],
        where: Computed | None,
        tombstones: bool,
        state: State,
    ) -> None:
        super().__init__(schema)
        self._n, self._partition, self._where, self._tombstones = n, list(partition), where, tombstones
        rows = stream_schema(schema)
        self._pending = state.pending("pending", rows.append(pa.field(TIME, pa.int64())))
        self._kept = state.arrangement("kept", rows.append(pa.field(_AT, pa.int64())))

    def acts(self, span: Span) -> bool:
        return self._pending.due(span.until)

    def due(self, low_watermark: int) -> int | None:
        return self._pending.first

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
        numbers = key_numbers(ready, self._partition)
        old = self._kept.read(numbers).with_columns(pl.lit(OLD).alias(TIME))
        ready = ready.with_columns(pl.col(TIME).alias(_AT)).select(old.columns)
        together = pl.concat([old, ready])
        partitions = numbered(together, self._partition).ids
        order = np.lexsort((int64s(together, SEQUENCE), int64s(together, _AT), partitions))
        together, partitions = together[order], partitions[order]
        enters, at = int64s(together, TIME), int64s(together, _AT)
        later = np.arange(self._n, together.height)
        later = later[partitions[later] == partitions[later - self._n]]
        leaves = np.full(together.height, span.until)
        leaves[later - self._n] = at[later]
        stays = np.ones(together.height, dtype=np.bool_)
        stays[later - self._n] = False
        is_row = ~together.get_column(TOMBSTONE).to_numpy()
        kept = together.filter(pl.Series(stays & is_row)).drop(TIME)
        self._kept.write(kept, key_numbers(kept, self._partition))
        in_and_out = is_row & (enters != leaves)
        came = np.flatnonzero(in_and_out & (enters != OLD))
        left = np.flatnonzero(in_and_out & ~stays)
        rows = together.select(*self.dtypes)
        moved = pl.concat([delta_frame(rows[came], enters[came], 1), delta_frame(rows[left], leaves[left], -1)])
        return settled(moved, span)

    def contents(self) -> pl.DataFrame | None:
        rows = self._kept.read_all()
        return delta_frame(rows.select(*self.dtypes), int64s(rows, _AT), 1)

    def whole_from(self, since: int) -> int | None:
        return None
