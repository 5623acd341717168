"""Deltas: rows with a time and a weight, and the arithmetic over them.

A relation is a multiset of rows that changes over time. A *delta* has its columns, :data:`TIME` (µs since the epoch)
and :data:`WEIGHT`: the copies that are inserted at that time, or retracted if negative. Operators process all change
points of a step at once: they cumulate weights over each row's or group's change points. The rows before the step have
the time :data:`OLD`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from ...conf.errors import QueryError, SchemaError
from ...core.rows.buckets import mix_bits, spark_hash
from ...core.rows.exact_integers import HIGHEST, LOWEST, Int64s

TIME = "__time"
WEIGHT = "__weight"

OLD = LOWEST
"""The time of the rows before a step, inside an operator. No delta has it."""

BEGINNING = -(1 << 62)
"""The time, before any row, from which stored relations and aggregates without groups exist."""

_POSITION = "__position"


class Span(NamedTuple):
    """The change points of a step: ``before <= time < until``."""

    before: int  # The low-watermark of the step before.
    until: int  # That of this step: no later row has a lesser time.
    start: int  # Time of the initial contents: just before `before`, or BEGINNING in the first step.
    promised: int = LOWEST  # By the arrival clock, the low-watermark: no later row has a lesser event time.
    net: bool = False  # The net change is enough, and may have the time `until - 1`.

    @classmethod
    def first(cls, until: int) -> Span:
        return cls(LOWEST, until, BEGINNING)

    @property
    def ends(self) -> bool:
        return self.until == HIGHEST


def dtypes_of(schema: pa.Schema) -> dict[str, pl.DataType]:
    """Return the Polars types of a schema's columns."""
    return dict(_dtypes_of(schema))


@lru_cache(maxsize=4096)
def dtype_of(kind: pa.DataType) -> pl.DataType:
    """Return the Polars type of a column."""
    return _dtypes_of(pa.schema([pa.field("value", kind)]))["value"]


@lru_cache(maxsize=4096)
def _dtypes_of(schema: pa.Schema) -> dict[str, pl.DataType]:
    empty = pl.from_arrow(schema.empty_table())
    assert isinstance(empty, pl.DataFrame)
    return dict(empty.schema)


@lru_cache(maxsize=4096)
def empty_delta(schema: pa.Schema) -> pl.DataFrame:
    """Return a delta without rows of a relation with these columns."""
    return pl.DataFrame(schema={**dtypes_of(schema), TIME: pl.Int64(), WEIGHT: pl.Int64()})


def delta_frame(rows: pl.DataFrame, times: Int64s | int, weights: Int64s | int) -> pl.DataFrame:
    """Append times and weights to rows."""
    size = rows.height
    time = pl.Series(TIME, np.full(size, times, dtype=np.int64))
    return pl.DataFrame([*rows.get_columns(), time, pl.Series(WEIGHT, np.full(size, weights, dtype=np.int64))])


def conformed(frame: pl.DataFrame, dtypes: dict[str, pl.DataType]) -> pl.DataFrame:
    """Select the columns in this order, cast to these types; other columns follow unchanged."""
    rest = [name for name in frame.columns if name not in dtypes]
    schema = frame.schema
    same = all(schema[name] == dtype for name, dtype in dtypes.items())
    if same and [*dtypes, *rest] == frame.columns:
        return frame
    frame = frame if same else frame.with_columns(pl.col(name).cast(dtype) for name, dtype in dtypes.items())
    return frame.select(*dtypes, *rest)


def keep_rows(frame: pl.DataFrame, mask: pl.Series) -> pl.DataFrame:
    """Return the rows that a mask marks. If it marks all, nothing is copied."""
    return frame if mask.all() else frame.filter(mask)


def concat_rows(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Concatenate frames with the same columns. If all but one are empty, nothing is copied."""
    some = [each for each in frames if each.height]
    return some[0] if len(some) == 1 else pl.concat(some or frames)


def to_table(frame: pl.DataFrame, schema: pa.Schema) -> pa.Table:
    """Return a frame's columns as a table of a schema."""
    columns: list[pa.Array] = []
    for name, kind in zip(schema.names, schema.types, strict=True):
        column = frame.get_column(name).to_arrow(compat_level=pl.CompatLevel.oldest())
        columns.append(column if column.type == kind else column.cast(kind))
    return pa.Table.from_arrays(columns, schema=schema)


def columns_of(delta: pl.DataFrame) -> list[str]:
    """Return the names of the relation's own columns."""
    return [name for name in delta.columns if name not in {TIME, WEIGHT}]


def int64s(frame: pl.DataFrame, name: str) -> Int64s:
    """Return a column of whole numbers as an array."""
    return frame.get_column(name).to_numpy().astype(np.int64, copy=False)


def same_at(column: pl.Series, left: Int64s, right: Int64s) -> npt.NDArray[np.bool_]:
    """Return whether values at ``left`` equal those at ``right``; null equals null, NaN equals NaN, -0.0 equals 0.0."""
    values = _plain(column)
    if values is not None:
        some, others = values[left], values[right]
        return (some == others) | ((some != some) & (others != others))  # noqa: PLR0124 - only NaN is not itself
    return column[left].eq_missing(column[right]).to_numpy()


def taken(column: pl.Series, at: Int64s) -> pl.Series:
    """Return a column's values at some positions, fast for plain numbers."""
    values = _plain(column)
    return column[at] if values is None else pl.Series(column.name, values[at])


def firsts_of(columns: Sequence[pl.Series], at: Int64s) -> npt.NDArray[np.bool_]:
    """Mark the positions that are the first with their values, in the order of the positions."""
    values = _plain(columns[0]) if len(columns) == 1 else None
    if values is None or columns[0].dtype.is_float():
        rows = columns[0] if len(columns) == 1 else pl.DataFrame(columns).select(pl.struct(pl.all())).to_series()
        return rows[at].is_first_distinct().to_numpy()
    found = np.zeros(len(at), dtype=np.bool_)
    found[np.unique(values[at], return_index=True)[1]] = True
    return found


def equal_rows(frame: pl.DataFrame, left: Int64s, right: Int64s) -> Int64s:
    """Return which pairs of rows are equal, as :func:`same_at` compares their values."""
    same = np.arange(len(left))
    for column in frame.get_columns():
        if len(same):
            same = same[same_at(column, left[same], right[same])]
    return same


def _plain(column: pl.Series) -> npt.NDArray[Any] | None:
    """Return a column's numbers if none is null: for few rows, Polars costs many times as much as NumPy."""
    return column.to_numpy() if column.dtype in _PLAIN and not column.null_count() else None


_PLAIN = frozenset([pl.Int8(), pl.Int16(), pl.Int32(), pl.Int64(), pl.Float32(), pl.Float64()])


def consolidated(delta: pl.DataFrame) -> pl.DataFrame:
    """Add up weights of rows at equal times (null, NaN and zeros are equal), and remove rows of weight 0."""
    if delta.height == 0:
        return delta
    by = [name for name in delta.columns if name != WEIGHT]
    hashes = np.sort(delta[by].hash_rows().to_numpy())
    if (hashes[1:] != hashes[:-1]).all():  # most often all rows differ
        weights = int64s(delta, WEIGHT)
        return delta if weights.all() else delta[np.flatnonzero(weights)]
    return delta.group_by(by, maintain_order=True).agg(pl.col(WEIGHT).sum()).filter(pl.col(WEIGHT) != 0)


def collapsed(delta: pl.DataFrame, time: int) -> pl.DataFrame:
    """Move all rows to one time, and consolidate them."""
    if delta.height == 0:
        return delta
    times = delta.get_column(TIME)
    if times.min() == time == times.max():
        return delta
    return consolidated(delta.with_columns(pl.lit(time, pl.Int64).alias(TIME)))


def in_order_of_time(delta: pl.DataFrame) -> pl.DataFrame:
    """Sort changes by time, stably."""
    if delta.height < 2 or (np.diff(int64s(delta, TIME)) >= 0).all():
        return delta
    return delta.sort(TIME, maintain_order=True)


def settled(delta: pl.DataFrame, span: Span) -> pl.DataFrame:
    """Consolidate changes, first moved to the span's last time if its net change is enough."""
    if span.net and delta.height:
        delta = delta.with_columns(pl.lit(span.until - 1, pl.Int64).alias(TIME))
    return consolidated(delta)


class DistinctValues(NamedTuple):
    """The distinct values of some rows."""

    ids: Int64s  # By row: its value's number, in the order of first occurrence.
    first: Int64s  # By value: the position of its first row.


def numbered(frame: pl.DataFrame, columns: Sequence[str]) -> DistinctValues:
    """Assign numbers to the distinct values of some columns; without columns all rows have the same number."""
    size = frame.height
    if not columns or size == 0:
        return DistinctValues(np.zeros(size, dtype=np.int64), np.arange(min(size, 1)))
    found = _numbered_by_hash(frame[list(columns)])
    if found is not None:
        return found
    groups = (
        frame.select(columns)
        .with_row_index(_POSITION)
        .group_by(columns, maintain_order=True)
        .agg(pl.col(_POSITION))
        .get_column(_POSITION)
    )
    ids = np.empty(size, dtype=np.int64)
    ids[groups.explode().to_numpy()] = np.repeat(np.arange(len(groups)), groups.list.len().to_numpy())
    return DistinctValues(ids, groups.list.first().to_numpy().astype(np.int64))


def _numbered_by_hash(frame: pl.DataFrame) -> DistinctValues | None:
    """Assign numbers to whole numbers, or to hashes; return None if different values have one hash."""
    one = _plain(frame.to_series()) if frame.width == 1 else None
    whole = one is not None and one.dtype.kind == "i"
    values = one if whole else frame.hash_rows().to_numpy()
    # Arrow's codes are in the order of first occurrence.
    ids = pa.array(values).dictionary_encode().indices.to_numpy().astype(np.int64)
    first = np.flatnonzero(np.diff(np.maximum.accumulate(ids), prepend=-1))
    if not whole and len(first) < len(ids):
        same = first[ids]
        again = np.flatnonzero(same != np.arange(len(ids)))
        if len(equal_rows(frame, again, same[again])) < len(again):
            return None
    return DistinctValues(ids, first)


class Steps(NamedTuple):
    """Cumulated values at each change point of each id, sorted by id and time."""

    ids: Int64s
    times: Int64s
    values: list[Int64s]  # Each holds from its time until the id's next.

    @property
    def firsts(self) -> npt.NDArray[np.bool_]:
        return np.diff(self.ids, prepend=-1) != 0

    @property
    def lasts(self) -> npt.NDArray[np.bool_]:
        return np.diff(self.ids, append=-1) != 0


def cumulated(ids: Int64s, times: Int64s, *weights: Int64s) -> Steps:
    """Cumulate weights over each id's times; ids are at least 0."""
    order = np.lexsort((times, ids))
    ids, times = ids[order], times[order]
    begins = np.flatnonzero((np.diff(ids, prepend=-1) != 0) | (np.diff(times, prepend=0) != 0))
    if len(begins) == 0:
        return Steps(ids, times, [np.empty(0, dtype=np.int64) for _ in weights])
    sums = [np.add.reduceat(each[order], begins) for each in weights]
    ids, times = ids[begins], times[begins]
    return Steps(ids, times, [_running(each, ids) for each in sums])


def _running(sums: Int64s, ids: Int64s) -> Int64s:
    total = np.cumsum(sums)
    firsts = np.flatnonzero(np.diff(ids, prepend=-1) != 0)
    before = total[firsts] - sums[firsts]
    lengths = np.diff(np.append(firsts, len(ids)))
    return total - np.repeat(before, lengths)


def differences(ids: Int64s, values: Int64s) -> Int64s:
    """Return each value less the previous one of the same id; ids are sorted."""
    less = np.diff(values, prepend=0)
    firsts = np.diff(ids, prepend=-1) != 0
    return np.where(firsts, values, less)


def places_among(ids: Int64s, values: Int64s, in_ids: Int64s, in_values: Int64s, *, after: bool = False) -> Int64s:
    """Return how many of the other pairs, which are in order, are less than each pair; ``after`` counts equal ones."""
    all_ids, all_values = [ids, in_ids], [values, in_values]
    if after:
        all_ids, all_values = all_ids[::-1], all_values[::-1]
    # Equal pairs stay in the order in which they are given.
    order = np.lexsort((np.concatenate(all_values), np.concatenate(all_ids)))
    mine = (order >= len(all_ids[0])) == after
    places = np.empty(len(ids), dtype=np.int64)
    places[order[mine] - (len(in_ids) if after else 0)] = np.cumsum(~mine)[mine]
    return places


def expanded(begins: Int64s, ends: Int64s) -> tuple[Int64s, Int64s]:
    """Return each number of the half-open ranges, preceded by the position of its range."""
    sizes = np.maximum(ends - begins, 0)
    ranges = np.repeat(np.arange(len(begins)), sizes)
    offsets = np.cumsum(sizes) - sizes
    return ranges, np.arange(len(ranges)) - offsets[ranges] + begins[ranges]


_MOST_GROWTH = 1 << 21
"""How many more rows one step may make than it gets: each takes some 300 bytes, and 20 µs, until it is in a table."""
_MOST_BYTES = 1 << 29
"""The size of these rows."""


def check_growth(made: float, rows: int, width: float = 0) -> None:
    """Raise QueryError if a few rows would become so many (of ``width`` bytes each) that other queries lack memory."""
    more = made - rows
    if more > _MOST_GROWTH or more * width > _MOST_BYTES:
        size = f", of {width:,.0f} bytes each" if width else ""
        raise QueryError(
            f"a step makes {made:,.0f} rows of {rows:,}{size}",
            expected=f"at most {_MOST_GROWTH:,} and {_MOST_BYTES >> 20} MiB more than there are",
            hint="join on more columns or over shorter windows; count equal rows: SELECT …, COUNT(*) … GROUP BY …",
        )


def width_of(rows: pl.DataFrame) -> float:
    """Return the bytes of a row."""
    return rows.estimated_size() / max(rows.height, 1)


def check_copies(counts: Int64s, width: float = 0) -> None:
    """Check the growth of rows to their copies."""
    check_growth(float(counts.sum(dtype=np.float64)), len(counts), width)


class Live(NamedTuple):
    """The rows that exist at some change points of their group."""

    begin: int  # First position in the change points.
    end: int  # Last position, exclusive.
    ids: Int64s
    positions: Int64s  # The change point of each entry.
    weights: Int64s  # The row's weight there, above 0.


def live(rows: Steps, group_of: Int64s, points: Steps, most: int = 1 << 22) -> Iterator[Live]:
    """Yield the rows that exist at each change point of their group, in parts that limit memory.

    The first value of ``rows`` is the weight: it holds from the first of its group's ``points`` at or after its time. A
    part has at most ``most`` entries, unless one point has more.
    """
    place = places_among(group_of[rows.ids], rows.times, points.ids, points.times)
    next_group = np.searchsorted(points.ids, group_of[rows.ids], side="right")
    ends = np.where(rows.lasts, next_group, np.append(place[1:], 0))
    there = np.flatnonzero(rows.values[0] > 0)
    ids, begins, ends, weights = rows.ids[there], place[there], ends[there], rows.values[0][there]
    count = len(points.ids)
    moves = np.bincount(begins, minlength=count + 1) - np.bincount(ends, minlength=count + 1)
    total = np.append(0, np.cumsum(np.cumsum(moves[:count])))
    first = 0
    while first < count or count == 0:
        last = min(count, max(first + 1, int(np.searchsorted(total, total[first] + most, side="right")) - 1))
        low, high = np.maximum(begins, first), np.minimum(ends, last)
        some = np.flatnonzero(low < high)
        which, positions = expanded(low[some], high[some])
        yield Live(first, last, ids[some][which], positions, weights[some][which])
        if last >= count:
            return
        first = last


def key_numbers(frame: pl.DataFrame, columns: Sequence[str]) -> Int64s:
    """Return Spark's hash of each row's columns, equal in all processes, without columns of unhashable types."""
    if frame.height == 0 or not columns:
        return np.zeros(frame.height, dtype=np.int64)
    arrays = [frame.get_column(name).to_arrow(compat_level=pl.CompatLevel.oldest()) for name in columns]
    hashed = [pa.chunked_array([each]) for each in arrays if is_hashable(each.type)]
    if not hashed:
        return np.zeros(frame.height, dtype=np.int64)
    return spark_hash(hashed).astype(np.int64)


_STEP = np.uint64(0x9E3779B97F4A7C15)


def mixed(*parts: Int64s | int) -> npt.NDArray[np.uint64]:
    """Return uniformly distributed 64-bit numbers that depend on all parts."""
    state = np.zeros(1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for part in parts:
            state = mix_bits(state + np.asarray(part, dtype=np.int64).view(np.uint64) + _STEP)  # of splitmix64
    return state


@lru_cache(maxsize=256)
def is_hashable(kind: pa.DataType) -> bool:
    """Return whether values of a type contribute to key numbers."""
    try:
        spark_hash([pa.nulls(1, kind)])
    except SchemaError:
        return False
    return True
