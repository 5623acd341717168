"""The results of a join of newest rows: rows of one side or of both, and tombstones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.rows.exact_integers import Int64s
from ...core.rows.system_column import SYSTEM, system_array
from .arriving import as_schema
from .band import LEFT, RIGHT
from .key_texts import NO_ROW, key_texts
from .latest_plan import LatestJoinPlan
from .latest_side import ARRIVAL, FIRST
from .plan import JOIN_TIME, ResultColumn

__all__ = ["LatestResults", "Rows"]

Rows = tuple[pa.Table | None, pa.Table | None]
"""Rows of the left and of the right, one for each result; None for no row."""


class LatestResults:
    """The builder of a shard's results."""

    def __init__(self, plan: LatestJoinPlan, shard: int) -> None:
        self._plan = plan
        self._source = f"join/{shard}"
        self._on = dict(zip(plan.left.on, plan.right.on, strict=True))

    def given(self, rows: Rows, number: Int64s, cause: pa.Table | None = None) -> pa.Table:
        """Return results with the values of rows of both sides.

        Of a key's results, the one with the greatest `number` counts. A result has the latest arrival of its rows and
        of `cause`, rows that changed it without being part of it.
        """
        columns = {each.name: self._column(each, rows) for each in self._plan.columns}
        if self._plan.has_time:
            times = [
                table.column(str(side.event_time))
                for table, side in zip(rows, self._plan.sides, strict=True)
                if table is not None
            ]
            columns[JOIN_TIME] = times[0] if len(times) == 1 else _later(*times)
        return self._whole(columns, rows, number, cause, deleted=False)

    def tombstones(self, rows: Rows, number: Int64s, cause: pa.Table | None = None) -> pa.Table:
        """Return tombstones of results, with values in the key only. The arguments are those of :meth:`given`."""
        key = self._plan.key
        columns = {each.name: self._column(each, rows) for each in self._plan.columns if each.name in key}
        return self._whole(columns, rows, number, cause, deleted=True)

    def _column(self, each: ResultColumn, rows: Rows) -> pa.ChunkedArray | pa.Array:
        source = rows[each.side]
        if source is not None:
            return source.column(each.source)
        other = rows[1 - each.side]
        if other is not None and each.side == LEFT and each.source in self._on:
            return other.column(self._on[each.source])
        return pa.nulls(len(other) if other is not None else 0, self._plan.schema.field(each.name).type)

    def _whole(
        self, columns: dict[str, Any], rows: Rows, number: Int64s, cause: pa.Table | None, *, deleted: bool
    ) -> pa.Table:
        plan, schema, n = self._plan, self._plan.schema, len(number)
        for name, side, table in zip(plan.own_key, plan.sides, rows, strict=False):
            columns[name] = pa.array([NO_ROW] * n, pa.string()) if table is None else key_texts(table, side.key)
        columns[SYSTEM] = pa.chunked_array([self._system(rows, number, cause, deleted)]).cast(schema.field(SYSTEM).type)
        for field in schema:
            if field.name not in columns:
                columns[field.name] = pa.nulls(n, field.type)
        return as_schema(pa.table(columns), schema)

    def _system(self, rows: Rows, number: Int64s, cause: pa.Table | None, deleted: bool) -> pa.StructArray:
        first_row, *others = [table for table in (rows[LEFT], rows[RIGHT], cause) if table is not None]
        arrival, first = _numbers(first_row, ARRIVAL), _numbers(first_row, FIRST)
        for table in others:
            later = _numbers(table, ARRIVAL)
            # A pair exists from the arrival of its later row on.
            first = np.where(later > arrival, _numbers(table, FIRST), first)
            arrival = np.maximum(arrival, later)
        return system_array(
            source=self._source,
            seq=number,
            arrival_us=arrival,
            first_arrival_us=first,
            deleted=np.full(len(number), deleted),
        )


def _later(one: pa.ChunkedArray, two: pa.ChunkedArray) -> pa.ChunkedArray:
    # Arrow has no element-wise maximum of times in a zone.
    return pc.if_else(pc.less(one, two), two, one)


def _numbers(rows: pa.Table, name: str) -> Int64s:
    return rows.column(name).to_numpy()
