"""The streams that hosted queries read: feeds whose rows come late or not, promise, fall silent, and end."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from kit.hosting import frame, scanned

from upstream.core.watermark.bounds import AFTER_ALL
from upstream.operators.relations.plan.nodes import Stream

from .hosted_rows import STREAMS, Row, Taken, at, cells_of
from .machine import MACHINE


class HostedInputs:
    """All that comes."""

    def __init__(self) -> None:
        self.taken: list[Taken] = []
        self._waiting: list[Row] = []
        self._bounds: dict[tuple[str, str], int] = {}
        self._new: dict[str, dict[str, int]] = {}
        self._count = 0
        self._last_deletion = -1

    def add(self, feed: str, rows: Sequence[Sequence[Any]]) -> None:
        """Let rows of a feed arrive, as `[key, time, value, deleted]`. Of a feed that has ended nothing does."""
        stream = feed.partition("/")[0]
        bound = self._bounds.get((stream, feed))
        if bound == AFTER_ALL:
            return
        for key, unit, value, deleted in rows:
            time, gone = at(unit), bool(deleted) and stream == "buses"
            if stream == "buses" and bound is not None and time < bound and time <= self._last_deletion:
                continue  # it might bring back what was deleted: whether it counts depends on what is forgotten
            self._count += 1
            cells = cells_of(stream, key, value, time)
            self._waiting.append(Row(stream, feed, cells, time, MACHINE.now_us, self._count, gone, -1))
            if gone:
                self._last_deletion = max(self._last_deletion, time)
        if bound is None and rows:
            self.promise(feed, min(unit for _, unit, *_ in rows))

    def promise(self, feed: str, unit: int | None) -> None:
        """Raise the bound of a feed; None ends it."""
        stream = feed.partition("/")[0]
        bound = AFTER_ALL if unit is None else at(unit)
        known = self._bounds.get((stream, feed))
        if known is None and unit is None:
            return
        if known is None or bound > known:
            self._bounds[stream, feed] = bound
            self._new.setdefault(stream, {})[feed] = bound

    @property
    def waits(self) -> bool:
        return bool(self._waiting or self._new)

    def take(self) -> Taken:
        """Let the next batch take it."""
        number = len(self.taken)
        self.taken.append(Taken([dataclasses.replace(each, batch=number) for each in self._waiting], self._new))
        self._waiting, self._new = [], {}
        return self.taken[-1]

    def rows(self) -> list[Row]:
        return [row for each in self.taken for row in each.rows]


def tasks_of(taken: Taken, shuffled: Any) -> dict[str, list[pa.Table]]:
    """Return the rows of each task of each stream's scan, with punctuation, as Spark divides them by chance."""
    found: dict[str, list[pa.Table]] = {}
    for name, stream in STREAMS.items():
        parts: dict[str, list[Row]] = {}
        for row in taken.rows:
            if row.stream == name:
                parts.setdefault(row.feed, []).append(row)
        bounds = taken.bounds.get(name, {})
        tables: list[pa.Table] = []
        for feed in sorted({*parts, *bounds}):
            rows = parts.get(feed, [])
            cut = shuffled.randrange(len(rows) + 1)
            for some, promised in ((rows[:cut], {}), (rows[cut:], {feed: bounds[feed]} if feed in bounds else {})):
                if some or promised:
                    tables.append(_scanned(stream, feed, some, promised))
        shuffled.shuffle(tables)
        if tables:
            found[name] = tables
    return found


def _scanned(stream: Stream, feed: str, rows: Sequence[Row], promised: Mapping[str, int]) -> pa.Table:
    bounds = {name: None if bound == AFTER_ALL else bound for name, bound in promised.items()}
    numbers, deleted = [row.seq for row in rows], [row.deleted for row in rows]
    return scanned(
        stream, frame(stream, [row.cells for row in rows]), [row.arrival for row in rows], bounds, sequences=numbers,
        deleted=deleted, feed=feed,
    )  # fmt: skip
