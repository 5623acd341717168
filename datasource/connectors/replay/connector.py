"""The `replay` connector: a recording, released by the clock."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from ....conf.errors import FeedChangedError
from ...options import SourceOptions
from ..contract import Advance, Chunk, Connector, Limit, MalformedRows, Position, Range
from .recording import Pace, Recording, ReplayOptions

# A range is at least this many rows, unless there are fewer, and a step has at most so many ranges.
_RANGE_ROWS = 1 << 16
_RANGES = 64


def make(options: ReplayOptions, common: SourceOptions) -> ReplayConnector:
    """Return the connector for a source's options."""
    from ..files import make as make_files

    pace = options.pace(common)
    # A recording is complete: its last line is a row even without a line end.
    whole = options if options.last_line != "auto" else dataclasses.replace(options, last_line="complete")
    # It is always read from its beginning, so nothing of what was consumed need be kept.
    inner = make_files(whole, dataclasses.replace(common, checkpoint_location=None))
    return ReplayConnector(inner, ",".join(options.given()), pace, made_with=repr(whole))


class ReplayConnector(Connector):
    """A replay of what another connector reads, in its order, against the clock.

    The first step releases the first row; that instant goes into the position. If only the input of *now* is wanted (a
    batch read, a first run with `Trigger.AvailableNow`), the recording has just ended. A released row stays released.
    After the last one the feed has ended. `made_with` is all that the rows depend on besides the recording's content.

    Guarantee: a range has the same rows and arrivals each time, or reading raises
    :class:`~upstream.conf.errors.FeedChangedError`.
    """

    name: ClassVar[str] = "replay"

    def __init__(self, inner: Connector, feed: str, pace: Pace, made_with: str = "") -> None:
        self._inner = inner
        self._feed = feed
        self._pace = pace
        self._made_with = made_with
        self._frozen_us: int | None = None
        self._origin_us: int | None = None
        self._recording: Recording | None = None

    def schema(self) -> pa.Schema:
        return self._inner.schema()

    def fix_schema(self, schema: pa.Schema) -> None:
        self._inner.fix_schema(schema)
        self._recording = None

    def feeds(self, position: Position | None) -> Sequence[str]:
        del position
        return [self._feed]

    def freeze(self, now_us: int) -> None:
        self._frozen_us = now_us

    def advance(self, position: Position | None, now_us: int, limit: Limit) -> Advance:
        recording = self._recorded()
        schedule = recording.schedule()
        now = now_us if self._frozen_us is None else min(now_us, self._frozen_us)
        if position is not None:
            self._same(position["recording"])
            origin, row = int(position["origin_us"]), int(position["row"])
        else:
            if self._origin_us is None:
                played = int(schedule.elapsed_us[-1]) if self._frozen_us is not None and schedule.rows else 0
                self._origin_us = now - played
            origin, row = self._origin_us, 0
        stop = max(row, int(np.searchsorted(schedule.elapsed_us, now - origin, side="right")))
        most = self._most_rows(limit)
        stop = stop if most is None else min(stop, row + most)
        ranges: list[Range] = []
        pieces = min(_RANGES, -(-(stop - row) // _RANGE_ROWS))
        # A recording of nothing but malformed rows still has them to report.
        for piece in range(pieces) if schedule.rows else range(position is None):
            cuts = [row + (stop - row) * each // max(pieces, 1) for each in (piece, piece + 1)]
            place = {"recording": recording.digest, "from": cuts[0], "to": cuts[1], "origin_us": origin}
            ranges.append(Range(self._feed, place, cuts[1] - cuts[0]))
        reached = {"recording": recording.digest, "origin_us": origin, "row": stop}
        released = stop < schedule.rows and int(schedule.elapsed_us[stop]) <= now - origin
        waiting = {self._feed: origin + int(schedule.elapsed_us[stop])} if released else {}
        return Advance(reached, ranges, frozenset([self._feed] if stop == schedule.rows else []), waiting)

    def read(self, part: Range, columns: Sequence[str] | None, malformed: MalformedRows) -> Iterator[Chunk]:
        place = part.place
        self._same(place["recording"])
        recording = self._recorded()
        names = self.schema().names
        wanted = names if columns is None else [name for name in names if name in columns]
        elapsed = recording.schedule().elapsed_us
        start, origin = int(place["from"]), int(place["origin_us"])
        for rows, ranks in recording.between(start, int(place["to"]), wanted, malformed):
            yield Chunk(rows, ranks - start, elapsed[ranks] + origin)

    def backlog(self, position: Position | None, now_us: int) -> dict[str, Any] | None:
        if position is None:
            return None
        elapsed = self._recorded().schedule().elapsed_us
        released = int(np.searchsorted(elapsed, now_us - int(position["origin_us"]), side="right"))
        return {"rows": max(0, released - int(position["row"]))}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_recording": None}

    def _recorded(self) -> Recording:
        if self._recording is None:
            self._recording = Recording(self._inner, self.schema(), self._pace, self._made_with)
        return self._recording

    def _same(self, digest: str) -> None:
        if digest != self._recorded().digest:
            raise FeedChangedError(
                f"the recording {self._feed} is not the one that the checkpoint began with, or is played in another "
                "way",
                expected="the same files, schema and pace until the recording has ended",
                hint="restore them, or start with a new checkpoint; a file that grows is read by connector=files",
            )

    def _most_rows(self, limit: Limit) -> int | None:
        given = [] if limit.rows is None else [limit.rows]
        if limit.bytes is not None:
            given.append(max(1, int(limit.bytes / self._recorded().bytes_per_row())))
        return min(given) if given else None
