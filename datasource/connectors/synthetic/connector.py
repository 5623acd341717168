"""The `synthetic` connector: seeded feeds, released by the clock."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from ....conf.errors import CheckpointError, OptionError, SchemaError
from ....conf.options import duration_us, numbers, one_of, option, parsed, positive_float, positive_int, whole
from ....conf.units import parse_duration_us
from ....core.rows.system_column import TIMESTAMP
from ...options import SourceOptions
from ..contract import Advance, Chunk, Connector, Limit, MalformedRows, Position, Range
from .stream import Burst, FeedPoint, Recipe, RowRun, SyntheticStream

# (feed, from, to) in elapsed microseconds; no `to` is for ever.
Silence = tuple[int, int, "int | None"]


def _not_negative(text: str) -> float:
    number = float(text)
    if not 0 <= number < float("inf"):
        raise ValueError
    return number


def _instant_us(text: str) -> int:
    instant = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=timezone.utc)
    return (instant - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)


def _silences(text: str) -> tuple[Silence, ...]:
    found: list[Silence] = []
    for part in text.split(","):
        feed, at, interval = part.partition("@")
        begin, dash, end = interval.partition("-")
        if not at:
            raise ValueError(f"{part.strip()!r} has no '@'")
        found.append((int(feed), parse_duration_us(begin), parse_duration_us(end) if dash else None))
        if found[-1][0] < 0 or (end and parse_duration_us(end) <= found[-1][1]):
            raise ValueError(f"{part.strip()!r} is empty")
    return tuple(sorted(found))


@dataclasses.dataclass(frozen=True)
class SyntheticOptions:
    """The options of the `synthetic` connector. Times count from the query's first step."""

    seed: int = option(
        "seed", whole(), 0, "Set the seed. Two runs with the same seed and options create the same rows."
    )
    rows_per_second: float | None = option(
        "rowsPerSecond",
        positive_float(),
        None,
        "Set the mean number of rows per second of all feeds together. If it is not set: 1.",
    )
    keys: int | None = option("keys", positive_int(), None, "Set the number of keys. If it is not set: 100.")
    skew: float | None = option(
        "skew",
        parsed("a number of at least 0", _not_negative),
        None,
        "Set Zipf's θ: key k (from 0) has a share proportional to 1 / (k + 1)^θ. 0 is uniform, and applies if "
        "it is not set.",
    )
    rates: tuple[float, ...] | None = option(
        "rates",
        numbers(),
        None,
        "Set the rows per second of each key, in place of `rowsPerSecond`, `keys`, and `skew`.",
    )
    key_order: str = option(
        "keyOrder", one_of("random", "roundrobin"), "random", "Choose whether keys are drawn at random or take turns."
    )
    key_type: str = option(
        "keyType", one_of("long", "string"), "long", "Set the type of the key column: BIGINT or STRING."
    )
    arrivals: str = option(
        "arrivals",
        one_of("constant", "poisson", "bursty"),
        "constant",
        "Choose when rows arrive. `constant`: at a constant pace. `poisson`: at random, as a Poisson process. "
        "`bursty`: at random, with a rate that swings.",
    )
    burst_length_us: int = option("burstLength", duration_us(), 1_000_000, "For `bursty`: set the length of a burst.")
    burst_every_us: int = option(
        "burstEvery", duration_us(), 10_000_000, "For `bursty`: set the time from the start of one burst to the next."
    )
    burst_factor: float = option(
        "burstFactor",
        positive_float(),
        5.0,
        "For `bursty`: set the rate in a burst, as a multiple of the mean rate. At its maximum, burstEvery / "
        "burstLength, no rows arrive between bursts.",
    )
    disorder: str = option(
        "disorder",
        one_of("none", "band", "block"),
        "none",
        "Choose how event times differ from arrivals. `band`: each time is behind its arrival by a random "
        "lateness of up to disorderWidth. `block`: the rows of one stretch of disorderWidth arrive shuffled "
        "in the next.",
    )
    disorder_width_us: int | None = option("disorderWidth", duration_us(), None, "Set how far `disorder` reaches.")
    num_feeds: int = option(
        "numFeeds", positive_int(), 1, "Set the number of independent feeds. They share the rate and the keys."
    )
    idle_feeds: tuple[Silence, ...] = option(
        "idleFeeds",
        parsed("feeds and when they are silent, such as '1@30s-90s, 2@5m' (no end: for ever)", _silences),
        (),
        "Set which feeds (numbered from 0) fall silent, and when. Their rows of that time arrive after it.",
    )
    payload_bytes: int = option(
        "payloadBytes", whole(), 0, "Set the width of an additional column `payload`, in bytes. 0 means no such column."
    )
    start_time_us: int | None = option(
        "startTime",
        parsed("an instant such as '2024-01-01T00:00:00Z'", _instant_us),
        None,
        "Set the event time at which the feeds begin. If it is not set: the time of the clock.",
    )
    rows: int | None = option(
        "rows", positive_int(), None, "End the feeds after this many rows in all. If it is not set, they never end."
    )

    def recipe(self) -> Recipe:
        """Return the recipe; raise one OptionError for all options that contradict each other."""
        problems = list(self._problems())
        if problems:
            raise OptionError("; ".join(problems), hint="give or leave out the options named")
        silences: tuple[tuple[tuple[int, int | None], ...], ...] = tuple(
            tuple((begin, end) for feed, begin, end in self.idle_feeds if feed == number)
            for number in range(self.num_feeds)
        )
        return Recipe(
            seed=self.seed,
            rows_per_second=self.rows_per_second or (sum(self.rates) if self.rates else 1.0),
            keys=len(self.rates) if self.rates else self.keys or 100,
            skew=self.skew or 0.0,
            rates=self.rates,
            take_turns=self.key_order == "roundrobin",
            at_random=self.arrivals != "constant",
            burst=Burst(self.burst_length_us, self.burst_every_us, self.burst_factor)
            if self.arrivals == "bursty"
            else None,
            disorder=self.disorder,
            disorder_width_us=self.disorder_width_us or 0,
            feeds=self.num_feeds,
            silences=silences,
            payload_bytes=self.payload_bytes,
            total_rows=self.rows,
        )

    def _problems(self) -> list[str]:
        problems: list[str] = []
        if self.rates is not None:
            also = {"rowsPerSecond": self.rows_per_second, "keys": self.keys, "skew": self.skew}
            problems += [f"both rates and {name}" for name, value in also.items() if value is not None]
            if not sum(self.rates):
                problems.append("rates are all 0")
        if self.key_order == "roundrobin" and (self.skew or len(set(self.rates or (1.0,))) > 1):
            problems.append("keyOrder=roundrobin with keys of unequal rates")
        if self.disorder != "none" and not self.disorder_width_us:
            problems.append(f"disorder={self.disorder} without disorderWidth")
        if self.disorder == "none" and self.disorder_width_us is not None:
            problems.append("disorderWidth without disorder")
        if self.arrivals == "bursty" and not 0 < self.burst_length_us < self.burst_every_us:
            problems.append("burstLength is not below burstEvery")
        elif self.arrivals == "bursty" and self.burst_factor * self.burst_length_us > self.burst_every_us * (1 + 1e-9):
            most = self.burst_every_us / self.burst_length_us
            problems.append(f"burstFactor={self.burst_factor:g} is above burstEvery / burstLength = {most:g}")
        previous: Silence | None = None
        for silence in self.idle_feeds:
            feed, begin, _ = silence
            if feed >= self.num_feeds:
                problems.append(f"idleFeeds names feed {feed}, and numFeeds is {self.num_feeds}")
            if previous is not None and previous[0] == feed and (previous[2] is None or begin < previous[2]):
                problems.append(f"idleFeeds: the silences of feed {feed} overlap")
            previous = silence
        return problems


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
    all their `rows`. A schema has some of the columns ``key``, ``time``, ``value`` and, if requested, ``payload``.

    Guarantee: a range has the same rows whenever and wherever it is read.
    """

    name: ClassVar[str] = "synthetic"
    smallest_task: int = 200_000

    def __init__(self, options: SyntheticOptions) -> None:
        self._options = options
        self._recipe = options.recipe()
        self._all = _columns(options)
        self._schema = self._all
        self._frozen_us: int | None = None
        self._origin_us: int | None = None
        described = repr((self._recipe, options.key_type, options.start_time_us))
        self._fingerprint = hashlib.sha256(described.encode()).hexdigest()[:16]

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
