"""Conversion of a query's changes in a step to the rows that its table takes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache

import numpy as np
import polars as pl
import pyarrow as pa

from ..conf.errors import QueryError
from ..core.rows.buckets import bucket_of
from ..core.rows.exact_integers import Int64s, Mask
from ..core.rows.frames import from_frame, to_frame
from ..core.rows.system_column import SYSTEM
from ..operators.relations.zsets import TIME, WEIGHT, consolidated, expanded, firsts_of, int64s, to_table
from ..sink.results.result_table import ResultRows
from .host_plan import PlacedQuery
from .result_schema import Result

_BATCH = 1 << 36
_UPSERT = 1 << 35
_STAMP = b"upstream.stamp"


@dataclass(frozen=True)
class Stamp:
    """The system values that all rows of a frame have in common.

    A frame has them once instead of a system column, because most results are small.
    """

    batch: int
    shard: int
    shards: int
    now_us: int  # newest arrival
    first_us: int  # arrival of the oldest row in the step

    def numbers(self, deleted: Mask) -> Int64s:
        """Return the rows' sequence numbers, given the mask of tombstones.

        They increase from batch to batch. Within a batch, upserts are above tombstones: a key that moves from one shard
        to another exists afterwards.
        """
        places = np.arange(len(deleted), dtype=np.int64) * self.shards + self.shard
        return max(self.batch, 0) * _BATCH + np.where(deleted, 0, _UPSERT) + places


def result_frames(query: PlacedQuery, changes: pl.DataFrame, stamp: Stamp) -> list[tuple[int, bytes]]:
    """Return bucket and frame of the rows for a query's table, from its consolidated changes; see :func:`result_rows`.

    Raises QueryError if two rows have one key.
    """
    result = query.result
    changes = result.of(changes)
    table = _appended(result, changes) if result.kind == "feed" else _upserted(query, changes)
    if table.num_rows == 0:
        return []
    table = table.replace_schema_metadata({_STAMP: _text(stamp)})
    if query.buckets == 1:
        return [(0, to_frame(table))]
    if result.kind == "feed":
        return [(stamp.shard % query.buckets, to_frame(table))]
    bucket = bucket_of([table.column(name) for name in result.key], query.buckets)
    return [(number, to_frame(table.filter(pa.array(bucket == number)))) for number in np.unique(bucket).tolist()]


@lru_cache(maxsize=64)
def _text(stamp: Stamp) -> str:
    return json.dumps(astuple(stamp))


def result_rows(frames: Sequence[bytes | pa.Buffer]) -> ResultRows:
    """Read the rows of some frames of one query."""
    tables = [from_frame(frame) for frame in frames]
    stamps = [_stamp(table) for table in tables]
    marks = [table.column(SYSTEM).to_numpy() for table in tables]
    sizes = [len(each) for each in marks]
    rows = pa.concat_tables([table.drop_columns(SYSTEM).replace_schema_metadata(None) for table in tables])
    return ResultRows(
        rows.combine_chunks(),
        np.concatenate([stamp.numbers(each) for stamp, each in zip(stamps, marks, strict=True)]),
        np.repeat(np.array([stamp.now_us for stamp in stamps], dtype=np.int64), sizes),
        np.repeat(np.array([stamp.first_us for stamp in stamps], dtype=np.int64), sizes),
        np.concatenate(marks),
    )


def _stamp(table: pa.Table) -> Stamp:
    assert table.schema.metadata is not None, "no frame of a result"
    return Stamp(*json.loads(table.schema.metadata[_STAMP]))


def _upserted(query: PlacedQuery, changes: pl.DataFrame) -> pa.Table:
    """Return upserts of the new rows and tombstones of the removed keys: one row for each key."""
    result = query.result
    # With many queries of few changes each, the number of calls determines the cost.
    times = changes.get_column(TIME)
    moved = changes if times.min() == times.max() else consolidated(changes.with_columns(pl.lit(0).alias(TIME)))
    weights = int64s(moved, WEIGHT)
    order = np.argsort(weights < 0, kind="stable")
    came = int(np.count_nonzero(weights > 0))
    first = firsts_of([moved.get_column(name) for name in result.key], order)
    if not first[:came].all() or weights.max(initial=1) > 1:
        raise QueryError(
            f"two rows of the query '{query.name}' have one key ({', '.join(result.key)})",
            expected="one row for each key at any time",
            hint="register it with another grouping, or report it",
        )
    deleted = (np.arange(len(first)) >= came)[first]
    rows = to_table(moved, result.schema).take(pa.array(order[first]))
    return rows.append_column(SYSTEM, pa.array(deleted))


def _appended(result: Result, changes: pl.DataFrame) -> pa.Table:
    """Return each row of a feed with its time, repeated by its weight."""
    at, _ = expanded(np.zeros(changes.height, dtype=np.int64), int64s(changes, WEIGHT))
    rows = changes[at]
    return to_table(rows, result.schema).append_column(SYSTEM, pa.array(np.zeros(rows.height, dtype=np.bool_)))
