"""A recording as one numbered sequence of rows."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ....conf.errors import FeedChangedError
from ....core.rows.event_times import event_time_us
from ....core.rows.exact_integers import Int64s
from ..contract import Connector, Limit, MalformedRows, Range
from .options import Pace, Schedule, elapsed_by_rate, elapsed_by_time


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
