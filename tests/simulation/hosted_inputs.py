"""The streams that hosted queries read: feeds whose rows come late or not, promise, fall silent, and end."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from kit.hosting import frame, scanned
from kit.journal import through_json

from upstream.core.feedback.lanes import Lane, StreamLanes
from upstream.core.watermark.bounds import AFTER_ALL
from upstream.datasource.lanes import intake_of, with_lanes
from upstream.operators.relations.plan.nodes import Stream

from .hosted_rows import STREAMS, Row, Taken, at, cells_of
from .machine import MACHINE

_ROWS_OF_A_RANGE = 2


class HostedInputs:
    """All that comes."""

    def __init__(self) -> None:
        self.taken: list[Taken] = []
        self._waiting: list[Row] = []
        self._rows: dict[str, list[Row]] = {}
        self.ends: dict[str, dict[str, Any]] = {name: {"batch": 0, "seq": 0} for name in STREAMS}
        """The end offset of each stream's source."""
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
        return bool(self._waiting or self._new or any(each.get("owed") for each in self.ends.values()))

    def take(self, lanes: Mapping[str, StreamLanes]) -> None:
        """Let the next batch take it, as much as the report on the lanes allows."""
        number = len(self.taken)
        taken = Taken([], [dataclasses.replace(each, batch=number) for each in self._waiting], {}, frozenset())
        for name, start in self.ends.items():
            planned = self._planned(name, start)
            end = self.ends[name] = through_json(with_lanes(start, planned, name, lanes.get(name), joins=True))
            if end == start:
                continue
            given = end.get("given", intake_of(end))
            for part in given["ranges"]:
                rows = self._rows[part["feed"]][part["place"]["from"] : part["place"]["to"]]
                taken.rows.extend(dataclasses.replace(each, batch=number) for each in rows)
            if given["punctuation"]:
                taken.bounds[name] = given["punctuation"]
            if "given" in end:
                taken = dataclasses.replace(taken, lagging=taken.lagging | {name})
        self.taken.append(taken)
        self._waiting, self._new = [], {}

    def _planned(self, stream: str, start: dict[str, Any]) -> dict[str, Any]:
        """Return the end of a batch by the input of a stream that is new, with few rows in a range."""
        ranges: list[dict[str, Any]] = []
        for row in self._waiting:
            if row.stream != stream:
                continue
            known = self._rows.setdefault(row.feed, [])
            known.append(row)
            at = len(known)
            if ranges and ranges[-1]["feed"] == row.feed and ranges[-1]["span"] < _ROWS_OF_A_RANGE:
                ranges[-1] |= {"span": ranges[-1]["span"] + 1, "place": {**ranges[-1]["place"], "to": at}}
            else:
                place = {"from": at - 1, "to": at}
                ranges.append({"feed": row.feed, "place": place, "span": 1, "arrival_us": row.arrival})
        bounds = self._new.get(stream, {})
        if not ranges and not bounds:
            return start
        seq = start["seq"]
        end = {"batch": start["batch"] + 1, "first_seq": seq, "seq": seq + sum(each["span"] for each in ranges)}
        return {**end, "now_us": MACHINE.now_us, "ranges": ranges, "punctuation": bounds}

    def rows(self, *, newest: bool = False) -> list[Row]:
        return [row for each in self.taken for row in (each.newest if newest else each.rows)]


def tasks_of(taken: Taken, shuffled: Any) -> dict[str, list[pa.Table]]:
    """Return the rows of each task of each stream's scan, with punctuation, as Spark divides them by chance."""
    found: dict[str, list[pa.Table]] = {}
    for name, stream in STREAMS.items():
        lanes: dict[Lane, tuple[list[Row], dict[str, int]]] = {"both": (taken.rows, taken.bounds.get(name, {}))}
        if name in taken.lagging:
            lanes = {"newest": (taken.newest, {}), "every": lanes["both"]}
        tables: list[pa.Table] = []
        for lane, (came, bounds) in lanes.items():
            parts: dict[str, list[Row]] = {}
            for row in came:
                if row.stream == name:
                    parts.setdefault(row.feed, []).append(row)
            for feed in sorted({*parts, *bounds}):
                rows = parts.get(feed, [])
                cut = shuffled.randrange(len(rows) + 1)
                for some, promised in ((rows[:cut], {}), (rows[cut:], {feed: bounds[feed]} if feed in bounds else {})):
                    if some or promised:
                        table = _scanned(stream, feed, some, promised)
                        tables.append(table.replace_schema_metadata({"lane": lane}))
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
