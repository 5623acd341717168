"""A recording as one numbered sequence of rows, and the options of its pace."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....conf.errors import FeedChangedError, OptionError
from ....conf.options import duration_us, option, positive_float
from ....core.rows.event_times import NO_TIME, event_time_us
from ....core.rows.exact_integers import Int64s
from ...options import SourceOptions
from ..contract import Connector, Limit, MalformedRows, Range
from ..files.options import FilesOptions

# A time is an error if one of so many rows after it is earlier by more than the gap allowed.
_LOOK_AHEAD = 8


@dataclasses.dataclass(frozen=True)
class Pace:
    """The pace of a replay: `speed` times the recorded times, or `rows_per_second`."""

    speed: float | None = None
    rows_per_second: float | None = None
    max_gap_us: int = 3_600_000_000  # with `speed`: longer gaps are cut to it
    time: str | None = None
    time_format: str | None = None
    time_zone: str = "UTC"


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The release of each row."""

    numbers: Int64s  # increasing
    elapsed_us: Int64s  # from the start to the release, never decreasing

    @property
    def rows(self) -> int:
        return len(self.numbers)


def elapsed_by_rate(rows: int, rows_per_second: float) -> Int64s:
    """Return the microseconds from the start to each row's release, at an even pace."""
    return (np.arange(rows) * 1e6 / rows_per_second).astype(np.int64)


def elapsed_by_time(times_us: Int64s, speed: float, max_gap_us: int) -> Int64s:
    """Return the microseconds from the start to each row's release, at `speed` times the recorded times.

    A row is released once the largest time so far has been reached, so that file order holds. Times far ahead of the
    rows after them do not count: such stamps in real recordings would hold back all later rows. No gap exceeds
    `max_gap_us`, in recorded microseconds. A missing time is :data:`~upstream.core.rows.event_times.NO_TIME`.
    """
    known = np.flatnonzero(times_us != NO_TIME)
    elapsed = np.zeros(len(times_us), dtype=np.int64)
    if not len(known):
        return elapsed
    times = times_us[known]
    # The last row has none after it, so there is always one that counts.
    latest = np.maximum.accumulate(np.where(_far_ahead(times, max_gap_us), NO_TIME, times))
    latest[latest == NO_TIME] = latest[latest != NO_TIME][0]
    # As unsigned numbers: the largest gap may not fit a signed one.
    gaps = np.diff(latest.view(np.uint64)).clip(max=np.uint64(max_gap_us)).astype(np.int64)
    steps = np.zeros(len(times_us), dtype=np.int64)
    steps[known[1:]] = gaps
    np.cumsum(steps, out=elapsed)
    return (elapsed / speed).astype(np.int64)


def _far_ahead(times: Int64s, max_gap_us: int) -> npt.NDArray[np.bool_]:
    after = np.full(len(times), np.iinfo(np.int64).max, dtype=np.int64)
    for ahead in range(1, min(_LOOK_AHEAD, len(times) - 1) + 1):
        np.minimum(after[:-ahead], times[ahead:], out=after[:-ahead])
    behind = np.maximum(times, np.iinfo(np.int64).min + max_gap_us) - max_gap_us
    return behind > after


@dataclasses.dataclass(frozen=True)
class ReplayOptions(FilesOptions):
    """The options of the `replay` connector; see each option's documentation."""

    speed: float | None = option(
        "speed",
        positive_float(),
        None,
        "Play a recording at this multiple of the pace of its own event times, from the column `eventTime`.",
    )
    rows_per_second: float | None = option(
        "rowsPerSecond",
        positive_float(),
        None,
        "Play a recording at this many rows per second, regardless of its times.",
    )
    max_gap_us: int = option(
        "maxGap",
        duration_us(),
        3_600_000_000,
        "For `speed`: set the maximum gap in a recording; UpStream shortens a longer one. A time that is further "
        "than this ahead of the rows after it counts as an error.",
    )

    def pace(self, common: SourceOptions) -> Pace:
        """Return the pace; raise OptionError unless it is either `speed` (with a time column) or `rowsPerSecond`."""
        if (self.speed is None) == (self.rows_per_second is None):
            raise OptionError(
                ("neither" if self.speed is None else "both")
                + " of speed and rowsPerSecond given for connector=replay",
                expected="one of them",
                hint="give speed=1 to play at the recorded pace, or rowsPerSecond for an even one",
            )
        if self.rows_per_second is not None:
            return Pace(rows_per_second=self.rows_per_second)
        if common.time is None or common.progress == "arrival":
            raise OptionError(
                "speed without recorded event times"
                + ("" if common.time is None else " (watermark=arrival makes its own)"),
                hint="name the column of the recorded times with `eventTime`, or give rowsPerSecond instead of speed",
            )
        return Pace(
            speed=self.speed,
            max_gap_us=self.max_gap_us,
            time=common.time,
            time_format=common.time_format,
            time_zone=common.time_zone,
        )


@dataclasses.dataclass(frozen=True)
class RecordedPart:
    """Neighbouring rows of a recording, as they were read."""

    begin: int  # all numbers in the part are at least this; all before it are smaller
    rows: pa.Table
    numbers: Int64s  # increasing
    malformed: Sequence[Mapping[str, Any]]  # reports in between


class HeldSchedules:
    """The most recently used schedules."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._held: OrderedDict[Hashable, Schedule] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Schedule]) -> Schedule:
        with self._lock:
            found = self._held.get(key) or make()
            self._held[key] = found
            self._held.move_to_end(key)
            while len(self._held) > self._most:
                self._held.popitem(last=False)
            return found


class HeldRecordings:
    """The most recently used whole recordings, up to `most_bytes` of Arrow memory together."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._lock = threading.Lock()
        self._held: OrderedDict[Hashable, list[RecordedPart] | None] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], list[RecordedPart] | None]) -> list[RecordedPart] | None:
        """Return the pieces of a recording, read if they are not held; None if it is too large to be held."""
        with self._lock:
            if key not in self._held:
                self._held[key] = make()
            self._held.move_to_end(key)
            while len(self._held) > 1 and sum(map(_size, self._held.values())) > self.most_bytes:
                self._held.popitem(last=False)
            return self._held[key]


class Cursors:
    """Open streams of recordings that are too large to be held, each at the end of its last range."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._open: list[tuple[Hashable, int, _Cursor]] = []

    def until(
        self, key: Hashable, low: int, first: int, last: int, start: Callable[[], Iterator[RecordedPart]]
    ) -> Iterator[RecordedPart]:
        """Yield the pieces with rows `first` up to `last`, from the nearest open stream, or from `start` at `low`."""
        with self._lock:
            near = [each for each in self._open if each[0] == key and low <= each[1] <= first]
            found = max(near, key=lambda each: each[1], default=None)
            if found is not None:
                self._open.remove(found)
        cursor = _Cursor(start()) if found is None else found[2]
        yield from cursor.until(last)
        with self._lock:
            self._open.append((key, last, cursor))
            del self._open[: -self._most]


class _Cursor:
    def __init__(self, pieces: Iterator[RecordedPart]) -> None:
        self._pieces = pieces
        self._waiting: list[RecordedPart] = []

    def until(self, last: int) -> Iterator[RecordedPart]:
        kept: list[RecordedPart] = []
        while True:
            piece = self._waiting.pop(0) if self._waiting else next(self._pieces, None)
            if piece is None:
                break
            if piece.begin >= last:
                kept.append(piece)
                break
            kept = [piece]
            yield piece
        # The last piece may reach beyond the range, so the next range sees it again.
        self._waiting = kept + self._waiting


def _size(pieces: list[RecordedPart] | None) -> int:
    return sum(piece.rows.nbytes + piece.numbers.nbytes for piece in pieces or ())


SCHEDULES = HeldSchedules(8)
ROWS = HeldRecordings(256 << 20)
CURSORS = Cursors(8)


class Recording:
    """The input that a connector finds at its first look, with the release of each row.

    A row's *number* is its place in the connector's ranges, whatever columns are read. Its *rank* counts present rows.
    `digest` identifies content and pace, as far as the connector distinguishes contents (files, sizes, changes).
    `made_with` is all that rows depend on besides (the connector's options).
    """

    def __init__(self, connector: Connector, schema: pa.Schema, pace: Pace, made_with: str) -> None:
        self._connector = connector
        self._schema = schema
        self._pace = pace
        connector.freeze(_ALWAYS_US)
        self._ranges: Sequence[Range] = connector.advance(None, _ALWAYS_US, Limit()).ranges
        content = [[part.feed, dict(part.place), part.span] for part in self._ranges]
        named = json.dumps([content, str(schema), repr(pace), made_with], sort_keys=True)
        self.digest = hashlib.sha256(named.encode()).hexdigest()[:24]
        self._first = np.concatenate([[0], np.cumsum([part.span for part in self._ranges])]).astype(np.int64)

    def schedule(self) -> Schedule:
        """Return when each row is released; the first call in a process passes over the whole recording."""
        return SCHEDULES.get(self.digest, self._scheduled)

    def bytes_per_row(self) -> float:
        first = next((piece for piece in self._read(0, tuple(self._schema.names)) if piece.rows.num_rows), None)
        return 1.0 if first is None else max(1.0, first.rows.nbytes / first.rows.num_rows)

    def between(
        self, start: int, stop: int, columns: Sequence[str], malformed: MalformedRows
    ) -> Iterator[tuple[pa.Table, Int64s]]:
        """Yield the rows with ranks from `start` up to `stop`, and their ranks; report malformed rows among them."""
        schedule = self.schedule()
        first = int(schedule.numbers[start]) if 0 < start < schedule.rows else 0
        last = int(schedule.numbers[stop]) if stop < schedule.rows else int(self._first[-1]) + 1
        for piece in self._pieces(first, last, tuple(columns)):
            if first <= piece.begin < last:
                for report in piece.malformed:
                    malformed.report(**report)
            low, high = (int(each) for each in np.searchsorted(piece.numbers, [first, last]))
            if high > low:
                numbers = piece.numbers[low:high]
                ranks = np.searchsorted(schedule.numbers, numbers)
                if ranks[-1] >= schedule.rows or not np.array_equal(schedule.numbers[ranks], numbers):
                    raise FeedChangedError(
                        "the recording changed while it was played", hint="start with a new checkpoint"
                    )
                yield piece.rows.slice(low, high - low), ranks

    def _scheduled(self) -> Schedule:
        pace = self._pace
        numbers: list[Int64s] = [np.empty(0, dtype=np.int64)]
        times: list[Int64s] = [np.empty(0, dtype=np.int64)]
        for piece in self._read(0, (pace.time or self._schema.names[0],)):
            numbers.append(piece.numbers)
            if pace.time is not None:
                times.append(event_time_us(piece.rows.column(0), pace.time_format, pace.time_zone))
        numbered = np.concatenate(numbers)
        if pace.speed is not None:
            return Schedule(numbered, elapsed_by_time(np.concatenate(times), pace.speed, pace.max_gap_us))
        assert pace.rows_per_second is not None
        return Schedule(numbered, elapsed_by_rate(len(numbered), pace.rows_per_second))

    def _pieces(self, first: int, last: int, columns: tuple[str, ...]) -> Iterator[RecordedPart]:
        key = (self.digest, columns)
        held = ROWS.get(key, lambda: self._held(columns))
        if held is not None:
            return iter(held)
        # Too large to hold: go on from where an earlier range left off, or begin with the connector's range that holds
        # it.
        number = max(0, int(np.searchsorted(self._first, first, side="right")) - 1)
        return CURSORS.until(key, int(self._first[number]), first, last, lambda: self._read(number, columns))

    def _held(self, columns: tuple[str, ...]) -> list[RecordedPart] | None:
        pieces: list[RecordedPart] = []
        size = 0
        for piece in self._read(0, columns):
            pieces.append(piece)
            size += piece.rows.nbytes + piece.numbers.nbytes
            if size > ROWS.most_bytes:
                return None
        return pieces

    def _read(self, range_number: int, columns: tuple[str, ...]) -> Iterator[RecordedPart]:
        noted = _MalformedRowStore()
        for number in range(range_number, len(self._ranges)):
            base = begin = int(self._first[number])
            for chunk in self._connector.read(self._ranges[number], columns, noted):
                count = chunk.rows.num_rows
                index = chunk.index + np.arange(count) if isinstance(chunk.index, int) else chunk.index
                yield RecordedPart(begin, chunk.rows.select(list(columns)), base + index, noted.take())
                begin = base + int(index[-1]) + 1 if count else begin
            if noted.reports:
                nothing = self._schema.empty_table().select(list(columns))
                yield RecordedPart(begin, nothing, np.empty(0, dtype=np.int64), noted.take())


class _MalformedRowStore:
    """A store of malformed rows until the batch that they belong to is read."""

    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []

    def report(self, *, text: str, place: str, line: int | None, reason: str) -> None:
        self.reports.append({"text": text, "place": place, "line": line, "reason": reason})

    def take(self) -> list[dict[str, Any]]:
        taken, self.reports = self.reports, []
        return taken


# A recording has all been there for ever.
_ALWAYS_US = 1 << 52
