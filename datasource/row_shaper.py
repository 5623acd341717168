"""Output rows from a connector's chunks: types, times, keys, the user's condition; the newest row per key."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..conf.errors import OptionError, SchemaError
from ..core.rows.columns import column_at, columns_at, null_rows
from ..core.rows.event_times import NO_TIME, event_time_us, in_utc, times_as
from ..core.rows.exact_integers import Int64s
from ..core.rows.newest import NewestPerKey, key_codes
from ..core.rows.sort_keys import places
from ..core.rows.system_column import TIMESTAMP, system_array
from ..core.watermark.bounds import embedded_punctuation
from .connectors.contract import Chunk, MalformedRows, Range
from .observed_times import TaskLook
from .options import SourceOptions
from .schema import FeedShape

Bools = npt.NDArray[np.bool_]

# Malformed rows are shown as text so many at a time.
_TOGETHER = 4096


@dataclasses.dataclass(frozen=True)
class ShapedRows:
    """Rows in arrival order, with arrays of one element per row."""

    table: pa.Table  # the user's columns, as they leave
    time_us: Int64s | None  # event times; None without a time column
    seq: Int64s
    arrival_us: Int64s
    source: str = ""
    first_arrival_us: Int64s | None = None  # None until coalesced
    covered: Int64s | None = None  # None until coalesced
    deleted: Bools | None = None  # tombstones; None if there is none

    def system(self, *, punctuation: bool = False) -> pa.StructArray:
        return system_array(
            source=self.source,
            seq=self.seq,
            arrival_us=self.arrival_us,
            first_arrival_us=self.first_arrival_us,
            covered=self.covered,
            punctuation=punctuation,
            deleted=self.deleted,
        )

    def take(self, chosen: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> ShapedRows:
        mask = chosen.dtype == np.bool_
        picked = pa.array(chosen)
        return ShapedRows(
            self.table.filter(picked) if mask else self.table.take(picked),
            None if self.time_us is None else self.time_us[chosen],
            self.seq[chosen],
            self.arrival_us[chosen],
            self.source,
            None if self.first_arrival_us is None else self.first_arrival_us[chosen],
            None if self.covered is None else self.covered[chosen],
            None if self.deleted is None else self.deleted[chosen],
        )


class RowShaper:
    """A converter of chunks to rows; it reports those that have no key or no readable time."""

    def __init__(self, shape: FeedShape, options: SourceOptions) -> None:
        self._shape = shape
        self._options = options
        self._condition = Condition(options.where, shape.user) if options.where else None

    def shape(
        self,
        chunk: Chunk,
        part: Range,
        *,
        first_seq: int,
        malformed: MalformedRows,
        look: TaskLook | None = None,
        entered_us: int | None = None,
    ) -> ShapedRows:
        """Return the rows of a chunk that may leave; report rows without a key or a readable time.

        Rows of embedded punctuation pass. `first_seq` is the sequence number of the range's row 0. `look` sees the
        times of all rows read. `entered_us` is the least stamp for rows stamped on entry (the feed's low-watermark),
        since the connector's clock may differ from the driver's.
        """
        count = chunk.rows.num_rows
        index = chunk.index + np.arange(count) if isinstance(chunk.index, int) else chunk.index
        arrivals = chunk.arrival_us
        if arrivals is None:
            if part.arrival_us is None:
                raise ValueError("neither the range nor its chunk says when the rows arrived")
            arrivals = np.full(count, part.arrival_us, dtype=np.int64)
        times = self._times(chunk.rows, arrivals, entered_us)
        if look is not None:
            look.see(part.feed, chunk, times)
        if times is not None and chunk.tombstone_us is not None and chunk.deleted is not None:
            times = np.where(chunk.deleted & (times == NO_TIME), chunk.tombstone_us, times)
        leaving = self._leaving(chunk, times)
        rows = ShapedRows(leaving, times, first_seq + index, arrivals, part.feed, deleted=chunk.deleted)
        rows = self._without_malformed(rows, chunk, index, part, malformed)
        if self._condition is not None and rows.table.num_rows:
            holds = self._condition.holds(rows.table)
            passes = None if chunk.imaged else rows.deleted
            rows = rows.take(holds if passes is None else holds | passes)
        return rows

    def _times(self, raw: pa.Table, arrivals: Int64s, entered_us: int | None) -> Int64s | None:
        name = self._options.time
        if name is None:
            return None
        if self._shape.stamped:
            return arrivals if entered_us is None else np.maximum(arrivals, entered_us)
        return event_time_us(raw.column(name), self._options.time_format, self._options.time_zone)

    def _leaving(self, chunk: Chunk, times: Int64s | None) -> pa.Table:
        raw = chunk.rows
        columns: list[pa.ChunkedArray | pa.Array] = []
        for field in self._shape.user:
            if field.name == self._options.time and times is not None and pa.types.is_timestamp(field.type):
                stamps = (
                    pa.array(times, pa.int64(), mask=times == NO_TIME) if (times == NO_TIME).any() else pa.array(times)
                )
                columns.append(stamps.cast(TIMESTAMP))
                continue
            column = _cast(raw.column(field.name), field, self._options.time_zone)
            if field.name == self._options.time and times is not None and chunk.deleted is not None:
                column = pc.coalesce(
                    column, times_as(times, field.type, self._options.time_format, self._options.time_zone)
                )
            columns.append(column)
        return pa.table(columns, schema=self._shape.user)

    def _without_malformed(
        self, rows: ShapedRows, chunk: Chunk, index: Int64s, part: Range, malformed: MalformedRows
    ) -> ShapedRows:
        raw = chunk.rows if chunk.origin is None else chunk.origin
        bad = np.zeros(rows.table.num_rows, dtype=np.bool_)
        reasons: list[tuple[npt.NDArray[np.bool_], str]] = []
        if chunk.misfits is not None:
            said = sorted({reason for reason in chunk.misfits if reason is not None})
            reasons += [(np.array([each == reason for each in chunk.misfits]), reason) for reason in said]
        for name in self._options.key:
            column = column_at(rows.table, name)
            if column.null_count:
                reasons.append((column.is_null().to_numpy(), f"the key column {name!r} is null"))
        for name in self._options.sequence:
            nulls = null_rows(column_at(rows.table, name))
            if nulls.any():
                reasons.append((nulls, f"the sequence column {name!r} is null"))
        if rows.time_us is not None and self._options.time is not None:
            unread = rows.time_us == NO_TIME
            if unread.any():
                reasons.append((unread, f"the time column {self._options.time!r} is null or cannot be read as a time"))
        if not reasons:
            return rows
        spared = bad
        if self._options.progress == "embedded":
            spared = embedded_punctuation(rows.table, self._options.key, self._options.time, rows.deleted)
        for mask, reason in reasons:
            fresh = mask & ~bad & ~spared
            bad |= fresh
            positions = np.flatnonzero(fresh)
            place = json.dumps(dict(part.place), ensure_ascii=False)
            for low in range(0, len(positions), _TOGETHER):
                some = positions[low : low + _TOGETHER]
                for number, record in zip(index[some].tolist(), raw.take(pa.array(some)).to_pylist(), strict=True):
                    text = json.dumps(record, default=str, ensure_ascii=False)
                    malformed.report(text=text, place=f"{place}, row {number}", line=None, reason=reason)
        return rows.take(~bad) if bad.any() else rows


class Condition:
    """The user's `where`, evaluated by Polars. Raise OptionError unless it is a condition over these columns."""

    def __init__(self, sql: str, schema: pa.Schema) -> None:
        self._sql = sql
        if parts := _across_rows(sql):
            raise OptionError(
                f"where={sql!r} looks at other rows than the one it judges: {', '.join(parts)}",
                expected="a condition on one row; rows are read in pieces, so that an aggregate or a window would "
                "depend on how they are cut",
                hint="filter by aggregates in the query, behind the source",
            )
        empty = schema.empty_table()
        try:
            self._names: Sequence[str] = self._columns(schema)
            self.holds(empty)
        except Exception as error:  # Polars has no one root for what an expression can be wrong about
            raise OptionError(
                f"where={sql!r} cannot be evaluated: {error}",
                expected="an SQL condition over " + ", ".join(schema.names),
            ) from error

    def holds(self, table: pa.Table) -> npt.NDArray[np.bool_]:
        """Return by row whether the condition is true; null counts as false."""
        import polars as pl

        frame = pl.DataFrame(pl.from_arrow(table.select(self._names)))
        if not self._names:
            frame = pl.DataFrame({"": np.zeros(table.num_rows, dtype=np.int8)})
        result = frame.select(pl.sql_expr(self._sql).cast(pl.Boolean).fill_null(value=False).alias("holds"))
        values = result["holds"].to_numpy()
        return np.full(table.num_rows, values[0]) if len(values) == 1 != table.num_rows else values.astype(np.bool_)

    def _columns(self, schema: pa.Schema) -> list[str]:
        import polars as pl

        names = pl.sql_expr(self._sql).meta.root_names()
        absent = [name for name in names if name not in schema.names]
        if absent:
            raise SchemaError("no column " + ", ".join(map(repr, absent)))
        return list(dict.fromkeys(names))


# What Polars calls the parts of an expression whose value for one row depends on others. (Names that SQL does not reach
# are left out.)
_ACROSS = {
    "Agg", "Over", "Window", "Len", "Explode", "Rank", "Range", "Shift", "ShiftAndFill", "Diff", "CumCount", "CumSum",
    "CumMin", "CumMax", "CumProd", "Correlation", "Any", "All", "Quantile", "Skew", "Kurtosis", "NUnique",
    "ApproxNUnique", "NullCount", "Unique", "Sort", "SortBy", "Slice", "Gather", "Filter", "Implode", "Random",
    "Rolling", "Interpolate", "ForwardFill", "BackwardFill", "FillNullWithStrategy",
}  # fmt: skip
# Functions of what is inside one value: a string's slice is none of the column.
_WITHIN = {"StringExpr", "ListExpr", "ArrayExpr", "StructExpr", "TemporalExpr"}


def _across_rows(sql: str) -> list[str]:
    """Return the parts by which the value for one row depends on other rows; none if `sql` is no condition."""
    import polars as pl

    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # the form is not promised to stay; a test has the conditions that must be distinguished
            tree = json.loads(pl.sql_expr(sql).meta.serialize(format="json"))
    except Exception:  # noqa: BLE001 what is wrong with it is said by whoever evaluates it
        return []
    found: dict[str, None] = {}
    todo = [tree]
    while todo:
        part = todo.pop()
        if isinstance(part, str) and part in _ACROSS:
            found[part.lower()] = None
        elif isinstance(part, dict):
            if "Literal" in part or "Column" in part:
                continue  # the user's own words
            for name, inner in part.items():
                if name in _WITHIN:
                    continue
                if name in _ACROSS:
                    found[(next(iter(inner), name) if name == "Agg" and isinstance(inner, dict) else name).lower()] = (
                        None
                    )
                todo.append(inner)
        elif isinstance(part, list):
            todo += part
    return list(found)


def _cast(column: pa.ChunkedArray, field: pa.Field, time_zone: str) -> pa.ChunkedArray:
    if column.type.equals(field.type):
        return column
    if pa.types.is_timestamp(column.type) and column.type.tz is None and time_zone != "UTC":
        column = in_utc(column, time_zone)
    return column.cast(field.type)


# Rows of one feed held before they are brought down to one per key.
_BRING_TOGETHER = 500_000


def newest_rows(rows: ShapedRows, key: tuple[str, ...], sequence: tuple[str, ...] = ()) -> ShapedRows:
    """Return each key's newest row by sequence or time, with the oldest arrival and the count of the rows it covers."""
    if not rows.table.num_rows:
        return rows
    codes, size = key_codes(columns_at(rows.table, key))
    first = rows.arrival_us if rows.first_arrival_us is None else rows.first_arrival_us
    if len(first) and (first == first[0]).all():
        first = int(first[0])
    time = places(columns_at(rows.table, sequence)) if sequence else rows.time_us
    newest = NewestPerKey(codes, size, time, first, 1 if rows.covered is None else rows.covered)
    kept = rows.take(newest.rows)
    return dataclasses.replace(kept, first_arrival_us=newest.first_arrival_us, covered=newest.covered)


def coalesced(
    chunks: Iterable[ShapedRows], key: tuple[str, ...], sequence: tuple[str, ...] = ()
) -> Iterator[ShapedRows]:
    """Yield the newest rows per key of all chunks, one item per feed; chunks come in arrival order.

    Memory is bounded by the keys, not by the rows.
    """
    feeds: dict[str, _Held] = {}
    for rows in chunks:
        if rows.table.num_rows:
            feeds.setdefault(rows.source, _Held(key, sequence)).add(newest_rows(rows, key, sequence))
    for held in feeds.values():
        yield held.newest()


class _Held:
    """The newest rows of one feed, combined only once they have doubled, so that a chunk does not cost all keys."""

    def __init__(self, key: tuple[str, ...], sequence: tuple[str, ...]) -> None:
        self._key = key
        self._sequence = sequence
        self._parts: list[ShapedRows] = []
        self._count = 0
        self._limit = _BRING_TOGETHER

    def add(self, rows: ShapedRows) -> None:
        self._parts.append(rows)
        self._count += rows.table.num_rows
        if self._count > self._limit:
            kept = self.newest()
            self._parts, self._count = [kept], kept.table.num_rows
            self._limit = max(_BRING_TOGETHER, 2 * self._count)

    def newest(self) -> ShapedRows:
        if len(self._parts) == 1:
            return self._parts[0]
        return newest_rows(_concatenated(self._parts), self._key, self._sequence)


def _concatenated(parts: list[ShapedRows]) -> ShapedRows:
    times = [part.time_us for part in parts if part.time_us is not None]
    firsts = [part.first_arrival_us for part in parts if part.first_arrival_us is not None]
    covered = [part.covered for part in parts if part.covered is not None]
    deleted = [
        np.zeros(part.table.num_rows, dtype=np.bool_) if part.deleted is None else part.deleted for part in parts
    ]
    return ShapedRows(
        pa.concat_tables([part.table for part in parts]),
        np.concatenate(times) if times else None,
        np.concatenate([part.seq for part in parts]),
        np.concatenate([part.arrival_us for part in parts]),
        parts[0].source,
        np.concatenate(firsts),
        np.concatenate(covered),
        None if all(part.deleted is None for part in parts) else np.concatenate(deleted),
    )
