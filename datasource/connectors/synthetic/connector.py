"""The `synthetic` connector: seeded feeds, released by the clock."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from ....conf.errors import CheckpointError, OptionError, SchemaError
from ....core.rows.system_column import TIMESTAMP
from ...options import SourceOptions
from ..contract import Advance, Chunk, Connector, Limit, MalformedRows, Position, Range
from .options import SyntheticOptions
from .stream import FeedPoint, Recipe, RowRun, SyntheticStream

# A range is at least this many rows, unless there are fewer, and a feed gives at most so many ranges at a time.
_RANGE_ROWS = 1 << 18
_RANGES_PER_FEED = 64
_CHUNK_BYTES = 1 << 24


def make(options: SyntheticOptions, common: SourceOptions) -> SyntheticConnector:
    """Return the connector for a source's options."""
    del common
    return SyntheticConnector(options)


class SyntheticConnector(Connector):
    """Seeded feeds (see :class:`SyntheticOptions`), named ``synthetic-0``, ``synthetic-1``, and so on.

    A row is visible from its arrival on. The first step starts the feeds; that instant goes into the position. If only
    the input of *now* is wanted (a batch read, a first run with `Trigger.AvailableNow`), the feeds have already sent
    all their `rows`. `schema` has some of the columns ``key``, ``time``, ``value`` and, if asked for, ``payload``.

    Guarantee: a range has the same rows whenever and wherever it is read.
    """

    name: ClassVar[str] = "synthetic"

    def __init__(self, options: SyntheticOptions, schema: pa.Schema | None = None) -> None:
        self._options = options
        self._recipe = options.recipe()
        self._all = _columns(options)
        self._schema = self._all
        self._frozen_us: int | None = None
        self._origin_us: int | None = None
        described = repr((self._recipe, options.key_type, options.start_time_us))
        self._fingerprint = hashlib.sha256(described.encode()).hexdigest()[:16]
        if schema is not None:
            self.fix_schema(schema)

    def schema(self) -> pa.Schema:
        return self._schema

    def fix_schema(self, schema: pa.Schema) -> None:
        for field in schema:
            known = self._all.field(field.name) if field.name in self._all.names else None
            if known is None or known.type != field.type:
                there = ", ".join(f"{each.name} {each.type}" for each in self._all)
                raise SchemaError(
                    f"the synthetic connector has no column {field.name!r} of type {field.type}",
                    expected=f"some of {there}",
                    hint="leave the schema out, or see keyType and payloadBytes",
                )
        self._schema = schema

    def feeds(self, position: Position | None) -> Sequence[str]:
        del position
        return [_feed_name(number) for number in range(self._recipe.feeds)]

    def freeze(self, now_us: int) -> None:
        self._frozen_us = now_us

    def advance(self, position: Position | None, now_us: int, limit: Limit) -> Advance:
        now = now_us if self._frozen_us is None else min(now_us, self._frozen_us)
        origin, places = self._resume(position, now)
        streams = [self._stream(number) for number in range(self._recipe.feeds)]
        until = now - origin
        most = self._most_rows(limit)
        reached = [stream.take(place, until, most) for stream, place in zip(streams, places, strict=True)]
        there = [end.row - start.row for start, end in zip(places, reached, strict=True)]
        # A feed that reached the limit may have more rows, which were not counted.
        left = {n for n, rows in enumerate(there) if rows == most}
        if most is not None and sum(there) > most:
            shares = _shared(there, most)
            left |= {n for n, (rows, share) in enumerate(zip(there, shares, strict=True)) if share < rows}
            pairs = zip(streams, places, shares, strict=True)
            reached = [stream.take(place, until, share) for stream, place, share in pairs]
        ranges: list[Range] = []
        for number, (start, end) in enumerate(zip(places, reached, strict=True)):
            ranges += self._ranges(number, start, end, until, origin)
        ended = {_feed_name(n) for n, stream in enumerate(streams) if stream.ended(reached[n])}
        oldest = {_feed_name(n): self._next_us(n, reached[n], until) for n in left}
        waiting = {feed: origin + arrival for feed, arrival in oldest.items() if arrival is not None}
        return Advance(self._position(origin, reached), ranges, frozenset(ended), waiting)

    def read(self, part: Range, columns: Sequence[str] | None, malformed: MalformedRows) -> Iterator[Chunk]:
        del malformed
        place = part.place
        stream = self._stream(int(place["number"]))
        wanted = self._schema.names if columns is None else [name for name in self._schema.names if name in columns]
        schema = pa.schema([self._schema.field(name) for name in wanted])
        start, stop, origin = FeedPoint(*place["from"]), FeedPoint(*place["to"]), int(place["origin_us"])
        most = max(1, _CHUNK_BYTES // self._recipe.payload_bytes) if "payload" in wanted else None
        for rows in stream.between(start, stop, most):
            made = [self._column(name, rows, origin) for name in wanted]
            # Without columns a table would forget how many rows it has.
            table = (
                pa.Table.from_arrays(made, schema=schema) if made else pa.table({"": pa.nulls(len(rows))}).select([])
            )
            yield Chunk(table, rows.first_row - start.row, rows.elapsed_us + origin)

    def backlog(self, position: Position | None, now_us: int) -> dict[str, Any] | None:
        if position is None:
            return None
        origin, places = self._resume(position, now_us)
        waiting = [self._stream(n).mean_rows(now_us - origin) - place.row for n, place in enumerate(places)]
        return {"rows": sum(max(0, round(rows)) for rows in waiting)}

    def _next_us(self, number: int, place: FeedPoint, until_us: int) -> int | None:
        """Return when the first row from a place on has arrived, since the start; None if none has by `until_us`."""
        stream = self._stream(number)
        rows = next(stream.between(place, stream.take(place, until_us, 1)), None)
        return None if rows is None or not len(rows) else int(rows.elapsed_us[0])

    def _stream(self, number: int) -> SyntheticStream:
        return _stream_of(self._recipe, number)

    def _resume(self, position: Position | None, now_us: int) -> tuple[int, list[FeedPoint]]:
        if position is not None:
            if position["recipe"] != self._fingerprint:
                raise CheckpointError(
                    "the checkpoint was written by a synthetic feed with other options",
                    expected="the same options for the life of a checkpoint, or its rows could not be made again",
                    hint="restore the options, or start with a new checkpoint",
                )
            return int(position["origin_us"]), [FeedPoint(*place) for place in position["places"]]
        if self._origin_us is None:
            self._origin_us = now_us if self._frozen_us is None else now_us - self._duration_us()
        return self._origin_us, [FeedPoint()] * self._recipe.feeds

    def _position(self, origin_us: int, places: Sequence[FeedPoint]) -> Mapping[str, Any]:
        listed = [[place.slot, place.index, place.row] for place in places]
        return {"recipe": self._fingerprint, "origin_us": origin_us, "places": listed}

    def _duration_us(self) -> int:
        """Return the time from the start to the last row of all feeds; rows that never come do not count."""
        if self._recipe.total_rows is None:
            raise OptionError(
                "a synthetic feed without `rows` has no end to read up to",
                hint="give `rows`, or read it as a stream with a trigger that continues",
            )
        last = 0
        for number in range(self._recipe.feeds):
            stream = self._stream(number)
            end = stream.take(FeedPoint())
            if end.row:
                before = stream.take(FeedPoint(), limit=end.row - 1)
                last = max(last, *(int(rows.elapsed_us[-1]) for rows in stream.between(before, end)))
        return last

    def _most_rows(self, limit: Limit) -> int | None:
        width = 24 + self._recipe.payload_bytes
        by_bytes = None if limit.bytes is None else max(1, limit.bytes // width)
        given = [most for most in (limit.rows, by_bytes) if most is not None]
        return min(given) if given else None

    def _ranges(self, number: int, start: FeedPoint, end: FeedPoint, until_us: int, origin_us: int) -> list[Range]:
        rows = end.row - start.row
        pieces = min(_RANGES_PER_FEED, -(-rows // _RANGE_ROWS))
        ranges: list[Range] = []
        for piece in range(pieces):
            size = rows * (piece + 1) // pieces - rows * piece // pieces
            stop = self._stream(number).take(start, until_us, size) if piece < pieces - 1 else end
            place = {"number": number, "from": _listed(start), "to": _listed(stop), "origin_us": origin_us}
            ranges.append(Range(_feed_name(number), place, stop.row - start.row))
            start = stop
        return ranges

    def _column(self, name: str, rows: RowRun, origin_us: int) -> pa.Array:
        if name == "key":
            key = pa.array(rows.key())
            return key if self._options.key_type == "long" else _named_keys(key)
        if name == "time":
            start = origin_us if self._options.start_time_us is None else self._options.start_time_us
            return pa.array(rows.time_us() + start).view(TIMESTAMP)
        if name == "value":
            return pa.array(rows.value())
        return _binary(rows)


def _columns(options: SyntheticOptions) -> pa.Schema:
    fields = [
        pa.field("key", pa.int64() if options.key_type == "long" else pa.string()),
        pa.field("time", TIMESTAMP),
        pa.field("value", pa.float64()),
    ]
    if options.payload_bytes:
        fields.append(pa.field("payload", pa.binary()))
    return pa.schema(fields)


def _feed_name(number: int) -> str:
    return f"synthetic-{number}"


def _listed(place: FeedPoint) -> list[int]:
    return [place.slot, place.index, place.row]


def _shared(waiting: Sequence[int], most: int) -> list[int]:
    """Share `most` rows among feeds: equally, but what one cannot use goes to the others."""
    shares = [0] * len(waiting)
    for done, number in enumerate(sorted(range(len(waiting)), key=lambda each: waiting[each])):
        shares[number] = min(waiting[number], (most - sum(shares)) // (len(waiting) - done))
    return shares


def _named_keys(key: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return pc.call_function("binary_join_element_wise", [pa.scalar("key-"), pc.cast(key, pa.string()), pa.scalar("")])


def _binary(rows: RowRun) -> pa.Array:
    data = np.ascontiguousarray(rows.payload())
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * data.shape[1]
    return pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


@functools.lru_cache(maxsize=256)
def _stream_of(recipe: Recipe, number: int) -> SyntheticStream:
    return SyntheticStream(recipe, number)
