"""Recordings cached in a process, so that a batch costs its own rows and not the whole recording."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .recorded_part import RecordedPart
    from .schedule import Schedule

__all__ = ["CURSORS", "ROWS", "SCHEDULES", "Cursors", "HeldRecordings", "HeldSchedules"]


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
