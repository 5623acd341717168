"""Output rows from a connector's chunks: types, times, keys, the user's condition; the newest row per key."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..core.rows.columns import column_at, columns_at, null_rows
from ..core.rows.event_times import NO_TIME, event_time_us, in_utc, rows_beyond_years, times_as, with_python_times
from ..core.rows.exact_integers import Int64s
from ..core.rows.key import BY_ARRIVAL, NO_KEY, Key
from ..core.rows.newest import NewestPerKey, NewestSoFar, key_codes
from ..core.rows.sort_keys import places
from ..core.rows.system_column import TIMESTAMP, system_array
from ..core.watermark.bounds import embedded_punctuation
from ..expressions.evaluate import RowEvaluator
from .connectors.contract import Chunk, MalformedRows, Range, place_text, row_place
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

    def __init__(self, shape: FeedShape, options: SourceOptions, condition: RowCondition | None) -> None:
        self._shape = shape
        self._options = options
        self._condition = condition

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
                raise ValueError("neither the range nor its chunk has the arrival of the rows")
            arrivals = np.full(count, part.arrival_us, dtype=np.int64)
        times = self._times(chunk.rows, arrivals, entered_us)
        if look is not None:
            look.see(part.feed, chunk, times)
        if times is not None and chunk.tombstone_us is not None and chunk.deleted is not None:
            times = np.where(chunk.deleted & (times == NO_TIME), chunk.tombstone_us, times)
        leaving = self._leaving(chunk, times)
        rows = ShapedRows(leaving, times, first_seq + index, arrivals, part.feed, deleted=chunk.deleted)
        bad = np.zeros(count, dtype=np.bool_)

        def report(mask: Bools, reason: str) -> None:
            bad[mask] = True
            _report(np.flatnonzero(mask), chunk, index, part, malformed, reason)

        for mask, reason in self._reasons(rows, chunk):
            report(mask & ~bad, reason)
        rows = rows.take(~bad) if bad.any() else rows
        if self._condition is not None and rows.table.num_rows:
            holds, failed = self._condition.holds(rows.table)
            if rows.deleted is not None and not chunk.imaged:
                holds, failed = holds | rows.deleted, failed & ~rows.deleted
            if failed.any():
                mask = np.zeros(count, dtype=np.bool_)
                mask[np.flatnonzero(~bad)[failed]] = True
                report(mask, f"the condition cannot be computed: {self._condition.sql}")
            rows = rows.take(holds)
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

    def _reasons(self, rows: ShapedRows, chunk: Chunk) -> list[tuple[Bools, str]]:
        """Return why rows are malformed, each with a mask of them. Embedded punctuation is not."""
        reasons: list[tuple[Bools, str]] = []
        if chunk.misfits is not None:
            said = sorted({reason for reason in chunk.misfits if reason is not None})
            reasons += [(np.array([each == reason for each in chunk.misfits]), reason) for reason in said]
        for name in self._options.key:
            column = column_at(rows.table, name)
            if column.null_count:
                reasons.append((column.is_null().to_numpy(), f"the key column {name!r} is null"))
        for name in () if self._options.sequence == BY_ARRIVAL else self._options.sequence:
            nulls = null_rows(column_at(rows.table, name))
            if nulls.any():
                reasons.append((nulls, f"the sequence column {name!r} is null"))
        if rows.time_us is not None and self._options.time is not None:
            unread = rows.time_us == NO_TIME
            if unread.any():
                reasons.append((unread, f"the time column {self._options.time!r} is null or cannot be read as a time"))
        for field in rows.table.schema:
            if (beyond := rows_beyond_years(rows.table.column(field.name))) is not None:
                reasons.append((beyond, f"column {field.name!r} holds a time outside of the years 1 to 9999"))
        if reasons and self._options.progress == "embedded":
            spared = embedded_punctuation(rows.table, self._options.key, self._options.time, rows.deleted)
            return [(mask & ~spared, reason) for mask, reason in reasons]
        return reasons


def _report(positions: Int64s, chunk: Chunk, index: Int64s, part: Range, malformed: MalformedRows, reason: str) -> None:
    raw = chunk.rows if chunk.origin is None else chunk.origin
    for low in range(0, len(positions), _TOGETHER):
        some = positions[low : low + _TOGETHER]
        for number, record in zip(
            index[some].tolist(), with_python_times(raw.take(pa.array(some))).to_pylist(), strict=True
        ):
            text = json.dumps(record, default=str, ensure_ascii=False)
            malformed.report(text=text, place=place_text(row_place(part, number)), line=None, reason=reason)


class RowCondition:
    """The user's `where`. Raise OptionError unless it is a condition over these columns."""

    def __init__(self, sql: str, schema: pa.Schema, time_zone: str) -> None:
        from ..expressions.bind import OptionText, bind_condition

        text = OptionText(sql, "where")
        self.sql = sql
        self._evaluator = RowEvaluator([("holds", bind_condition(text, {"": schema}, time_zone))], schema)
        self._evaluator.check(text)

    def holds(self, table: pa.Table) -> tuple[Bools, Bools]:
        """Return by row whether the condition is true, where null counts as false, and whether it fails."""
        made, failed = self._evaluator.evaluate(table)
        holds = np.asarray(pc.fill_null(made["holds"], False)).astype(np.bool_)
        return holds, failed.get("holds", np.zeros(len(holds), dtype=np.bool_))


def _cast(column: pa.ChunkedArray, field: pa.Field, time_zone: str) -> pa.ChunkedArray:
    if column.type.equals(field.type):
        return column
    if pa.types.is_timestamp(column.type) and column.type.tz is None and time_zone != "UTC":
        column = in_utc(column, time_zone)
    return column.cast(field.type)


def newest_rows(rows: ShapedRows, key: Key, sequence: Key = NO_KEY) -> ShapedRows:
    """Return each key's newest row by sequence or time, with the oldest arrival and the count of the rows it covers."""
    if not rows.table.num_rows:
        return rows
    codes, size = key_codes(columns_at(rows.table, key))
    first = rows.arrival_us if rows.first_arrival_us is None else rows.first_arrival_us
    if len(first) and (first == first[0]).all():
        first = int(first[0])
    by_column = sequence and sequence != BY_ARRIVAL
    time = places(columns_at(rows.table, sequence)) if by_column else None if sequence else rows.time_us
    newest = NewestPerKey(codes, size, time, first, 1 if rows.covered is None else rows.covered)
    kept = rows.take(newest.rows)
    return dataclasses.replace(kept, first_arrival_us=newest.first_arrival_us, covered=newest.covered)


def coalesced(chunks: Iterable[ShapedRows], key: Key, sequence: Key = NO_KEY) -> Iterator[ShapedRows]:
    """Yield the newest rows per key of chunks in arrival order, one item per feed. The keys bound the memory."""

    def combine(parts: list[ShapedRows]) -> ShapedRows:
        return newest_rows(_concatenated(parts), key, sequence)

    feeds: dict[str, NewestSoFar[ShapedRows]] = {}
    for rows in chunks:
        if rows.table.num_rows:
            held = feeds.setdefault(rows.source, NewestSoFar(combine, lambda each: each.table.num_rows))
            held.add(newest_rows(rows, key, sequence))
    for held in feeds.values():
        yield held.newest()


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
