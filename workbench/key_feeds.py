"""One key in a query's input: the journal's plan of each batch, the rows in their files, and what is unread."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..conf.errors import SchemaError, UpstreamError
from ..conf.units import now_us
from ..core.feedback.offsets import checked_offset, journaled_offsets, whole_offset
from ..core.rows.columns import tree_of
from ..core.rows.key import Key
from ..datasource.connectors.contract import Chunk, Limit, Range, row_place
from ..datasource.connectors.files.store import FileAccess
from ..datasource.recorded_source import RecordedSource, recorded_sources
from ..datasource.row_shaper import RowShaper, ShapedRows
from ..datasource.task import Reading, place_of
from ..sink.admin.erase import KeyRows
from ..storage.folder import TableFolder
from .key_answer import cause

# Of one look at the unread input.
_MOST_BYTES = 256 << 20
# Bytes that are read to find a line.
_MOST_LINES = 128 << 20
_MOST_TEXTS = 20


class NumberedRange(NamedTuple):
    """A range, and the number of its first row; None if it is not planned yet."""

    first: int | None
    part: Range


@dataclasses.dataclass(frozen=True)
class PlannedBatch:
    """The plan of a batch of one source, from its end offset."""

    batch: int  # Spark's number
    source: int  # the source's place among those of the query
    offset: Mapping[str, Any]
    committed: bool  # whether the batch is done

    @property
    def at_us(self) -> int:
        return int(self.offset["now_us"])

    @property
    def ranges(self) -> list[NumberedRange]:
        ranges = [Range.from_json(value) for value in self.offset["ranges"]]
        firsts = np.cumsum([0] + [part.span for part in ranges]) + self.offset["first_seq"]
        return [NumberedRange(int(first), part) for first, part in zip(firsts, ranges, strict=False)]

    def holds(self, seq: int) -> bool:
        return self.offset["first_seq"] <= seq < self.offset["seq"]

    def place_of(self, seq: int) -> tuple[Range, int]:
        """Return the range with a row's number, which :meth:`holds` admits, and the row's place in it."""
        return next(
            (part, seq - first) for first, part in self.ranges if first is not None and first <= seq < first + part.span
        )


class BatchJournal:
    """The batches whose plans a checkpoint still has: the last hundred. `in_table` is the last one in the table."""

    def __init__(self, checkpoint: TableFolder, in_table: int) -> None:
        self._checkpoint = checkpoint
        self.batches = _numbers(checkpoint, "offsets")
        self._done = max(*_numbers(checkpoint, "commits"), in_table, -1)
        self._offsets: dict[int, list[Mapping[str, Any]]] = {}

    def plans(self, batch: int) -> list[PlannedBatch]:
        """Return the plans of a batch, of each source of this package that read in it."""
        before = self._ours(batch - 1) if batch - 1 in self.batches else []
        return [
            PlannedBatch(batch, number, offset, batch <= self._done)
            for number, offset in enumerate(self._ours(batch))
            if "ranges" in offset and offset not in before
        ]

    @property
    def last(self) -> list[Mapping[str, Any]]:
        """The end offsets of the last planned batch."""
        return self._ours(self.batches[-1]) if self.batches else []

    @property
    def unfinished(self) -> list[PlannedBatch]:
        """The plans of the batch that has not been committed."""
        return [plan for batch in self.batches if batch > self._done for plan in self.plans(batch)]

    def batch_of(self, seq: int) -> list[PlannedBatch]:
        """Return the plans that have a row of this number: at most one of each source."""
        if not self.batches or len(self.last) != 1:
            return [plan for batch in self.batches for plan in self.plans(batch) if plan.holds(seq)]
        low, high = 0, len(self.batches)
        while low < high:  # a source's numbers grow
            middle = (low + high) // 2
            ends = [int(offset["seq"]) for offset in self._ours(self.batches[middle])]
            low, high = (low, middle) if ends and ends[0] > seq else (middle + 1, high)
        return [each for batch in self.batches[low : low + 1] for each in self.plans(batch) if each.holds(seq)]

    def latest(self) -> Iterator[PlannedBatch]:
        """Yield the plans of the batches that are done, the latest first."""
        for batch in reversed(self.batches):
            if batch <= self._done:
                yield from self.plans(batch)

    def bound_before(self, plan: PlannedBatch, feed: str) -> int | None:
        """Return the low-watermark that a feed had before a batch; None if there was none, or it is unknown."""
        if plan.batch - 1 not in self.batches:
            return None
        offsets = self._ours(plan.batch - 1)
        if plan.source >= len(offsets):
            return None
        with contextlib.suppress(UpstreamError, OSError, ValueError):
            states = whole_offset(dict(offsets[plan.source]), self._checkpoint).get("progress", {})
            return states.get(feed, {}).get("bound")
        return None

    def _ours(self, batch: int) -> list[Mapping[str, Any]]:
        if batch not in self._offsets:
            try:
                found = journaled_offsets(self._checkpoint, batch)
            except (FileNotFoundError, ValueError):  # the query has just removed it
                found = []
            # A source that has read nothing yet has only a version.
            ours = (each for each in found if isinstance(each, dict) and "position" in each)
            self._offsets[batch] = [checked_offset(each) for each in ours]
        return self._offsets[batch]


def _numbers(checkpoint: TableFolder, folder: str) -> list[int]:
    return sorted(int(name) for name in checkpoint.names(folder) if name.isdigit())


class FeedRow(NamedTuple):
    """A row of the key in an input partition."""

    part: Range
    row: int  # its place in the range, from 0
    seq: int | None  # the order of arrival in the query; None if it is not read yet
    time_us: int | None
    arrival_us: int | None
    deleted: bool
    refused: str | None  # why the source drops it
    values: pa.Table | None  # the row as it leaves the source, unless it is refused

    @property
    def order(self) -> tuple[int, int]:
        return self.time_us or 0, self.seq or 0


class _Texts:
    """Lines that cannot be read as rows and have the key's text, and rows that lack a time or another key column."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self.found: list[tuple[str, str]] = []
        self.reasons: list[str] = []

    def report(self, *, text: str, place: str, line: int | None, reason: str) -> None:
        self.reasons.append(reason)
        if len(self.found) < _MOST_TEXTS and all(each in text for each in self._texts):
            self.found.append((place_of(place, line), reason))


class FeedSearch:
    """A search of a source's rows for one key, which ends at a moment of the monotonic clock.

    Attributes
    ----------
    complete : bool
        Whether all rows of the ranges have been searched.
    failed : str
        Why some rows could not be read; empty if all could.
    """

    def __init__(self, reading: Reading, key: Key, values: Sequence[pa.Array], until_s: float) -> None:
        self._reading = reading
        columns = tree_of(reading.shape.rows)
        if missing := key.absent(columns):
            raise SchemaError(f"the source has no column {', '.join(missing)}", expected="the table's key")
        key = key.resolved(columns)
        self._key = KeyRows(key, values)
        self._names = list(dict.fromkeys(key.columns(reading.shape.rows.names)))
        self._until_s = until_s
        self._lines = _Texts([str(value[0].as_py()) for value in values])
        self._shaper = RowShaper(reading.shape, reading.options, None)
        self.complete = True
        self.failed = ""

    @property
    def unread_lines(self) -> list[tuple[str, str]]:
        """Lines that have the key's text and cannot be read as rows: their places, and why."""
        return self._lines.found

    def rows(self, ranges: Iterable[NumberedRange], entered: Mapping[str, int] | None = None) -> Iterator[FeedRow]:
        """Yield the key's rows in some ranges."""
        for first, part in ranges:
            if time.monotonic() > self._until_s:
                self.complete = False
                return
            try:
                for chunk in self._reading.connector.read(part, None, self._lines):
                    yield from self._of_chunk(chunk, first, part, (entered or {}).get(part.feed))
                    if time.monotonic() > self._until_s:
                        self.complete = False
                        return
            except (UpstreamError, OSError, pa.ArrowException) as error:
                self.complete, self.failed = False, cause(error)

    def _of_chunk(self, chunk: Chunk, first: int | None, part: Range, entered_us: int | None) -> Iterator[FeedRow]:
        at = np.flatnonzero(self._key.among(chunk.rows.select(self._names)))
        if not len(at):
            return
        mine = _chosen(chunk, at)
        refused, shaped = self._judged(mine, part, entered_us)
        stays = {number: place for place, number in enumerate(shaped.seq.tolist())}
        index = np.asarray(mine.index)
        deleted = np.zeros(len(at), np.bool_) if mine.deleted is None else mine.deleted
        for place, number in enumerate(index.tolist()):
            arrival_us = part.arrival_us if mine.arrival_us is None else int(mine.arrival_us[place])
            seq = None if first is None else first + number
            gone, why, left = bool(deleted[place]), refused.get(number), stays.get(number)
            time_us = None if left is None or shaped.time_us is None else int(shaped.time_us[left])
            values = None if left is None else shaped.table.slice(left, 1)
            yield FeedRow(part, number, seq, time_us, arrival_us, gone, why, values)

    def _judged(self, chunk: Chunk, part: Range, entered_us: int | None) -> tuple[dict[int, str], ShapedRows]:
        """Return why rows are dropped, by their places in the range, and the rows that the source can read."""
        heard = _Texts([])
        shaped = self._shaper.shape(chunk, part, first_seq=0, malformed=heard, entered_us=entered_us)
        stays = shaped.seq.tolist()
        refused: dict[int, str] = {}
        for place, number in enumerate(np.setdiff1d(np.asarray(chunk.index), shaped.seq).tolist()):
            alone = _Texts([])
            if place < _MOST_TEXTS:
                one = _chosen(chunk, np.flatnonzero(np.asarray(chunk.index) == number))
                self._shaper.shape(one, part, first_seq=0, malformed=alone, entered_us=entered_us)
            refused[number] = (alone.reasons or heard.reasons)[0]
        condition = self._reading.condition
        if condition is not None and len(stays):
            holds, failed = condition.holds(shaped.table)
            if shaped.deleted is not None and not chunk.imaged:
                holds, failed = holds | shaped.deleted, failed & ~shaped.deleted
            for place in np.flatnonzero(~holds).tolist():
                why = "where" if not failed[place] else "the condition cannot be computed:"
                refused[stays[place]] = f"{why} {condition.sql}"
        return refused, shaped


def _chosen(chunk: Chunk, at: npt.NDArray[np.int64]) -> Chunk:
    """Return some rows of a chunk."""

    def some(values: Any) -> Any:
        return None if values is None else values[at]

    return dataclasses.replace(
        chunk,
        rows=chunk.rows.take(pa.array(at)),
        index=chunk.index + at if isinstance(chunk.index, int) else chunk.index[at],
        arrival_us=some(chunk.arrival_us),
        deleted=some(chunk.deleted),
        tombstone_us=some(chunk.tombstone_us),
        misfits=None if chunk.misfits is None else [chunk.misfits[each] for each in at],
        origin=None if chunk.origin is None else chunk.origin.take(pa.array(at)),
    )


class UnreadRanges(NamedTuple):
    """The input of a source beyond what is planned."""

    ranges: Sequence[NumberedRange]
    feeds: list[dict[str, Any]]  # each with its position, and how far it is behind
    whole: bool  # whether the ranges are all of it
    problem: str  # why it is not known; empty if it is
    looked_us: int = 0  # the arrival of rows that only this look has seen


class KeySources:
    """The sources of a query, as its checkpoint records them.

    Attributes
    ----------
    problem : str
        Why some rows cannot be read again; empty if all can.
    """

    def __init__(self, checkpoint: TableFolder, journal: BatchJournal) -> None:
        self.problem = ""
        self._records: list[RecordedSource] = []
        try:
            self._records = recorded_sources(checkpoint)
        except UpstreamError as error:
            self.problem = cause(error)
        self.journal = journal

    def of(self, offset: Mapping[str, Any]) -> Reading | None:
        """Return the reading of the source that made an end offset; None if it is unknown, or not of files."""
        fit = [each for each in self._records if (each.connector, each.columns) == _made_by(offset)]
        return fit[0].reading if len(fit) == 1 else None

    def why_not(self, offset: Mapping[str, Any]) -> str:
        """Return why the rows of a source cannot be read again."""
        if self.problem:
            return self.problem
        connector = offset.get("connector")
        if connector != "files" and any(each.connector == connector for each in self._records):
            return f"only the running query can connect to {connector}"
        fit = [each for each in self._records if (each.connector, each.columns) == _made_by(offset)]
        if len(fit) > 1:
            return "several sources of the query have the same columns"
        return "the checkpoint has no record of the source. Set its option checkpointLocation"

    @cached_property
    def readings(self) -> list[Reading]:
        return [each.reading for each in self._records if each.reading is not None]

    @property
    def recorded(self) -> bool:
        return bool(self._records)

    def waiting(self, offset: Mapping[str, Any], *, all_of_it: bool = False) -> UnreadRanges:
        """Return what a source has not planned yet, or `all_of_it` from the beginning; nothing is written."""
        position, reading = offset.get("position"), self.of(offset)
        if reading is None:
            feeds = [{"feed": feed, "offset": at} for feed, at in sorted((position or {}).get("at", {}).items())]
            return UnreadRanges([], feeds, False, self.why_not(offset))
        try:
            limit, looked_us = Limit(bytes=_MOST_BYTES), now_us()
            found = reading.connector.unread(None if all_of_it else position, looked_us, limit)
        except (UpstreamError, OSError, ValueError) as error:
            return UnreadRanges([], [], False, cause(error))
        if found is None:
            return UnreadRanges([], [], False, "only the running query can look at the source")
        feeds = [
            {"feed": feed, "files": count, "bytes": found.bytes[feed]}
            for feed, count in sorted(found.files.items())
            if count
        ]
        return UnreadRanges([NumberedRange(None, part) for part in found.ranges], feeds, found.whole, "", looked_us)


def _made_by(offset: Mapping[str, Any]) -> tuple[Any, Any]:
    return offset.get("connector"), offset.get("schema")


def place_shown(part: Range, row: int, access: FileAccess | None) -> dict[str, Any]:
    """Return a row's place for people; with an `access`, the line in a text file is looked for."""
    shown, place = row_place(part, row), part.place
    found = _line_of(access, place, row) if access is not None and "from" in shown else None
    return shown if found is None else {**shown, "byte": found[0], **({} if found[1] is None else {"line": found[1]})}


def _line_of(access: FileAccess, place: Mapping[str, Any], row: int) -> tuple[int, int | None] | None:
    """Return the first byte and the number of the line, from 1, of a row of a text file; rows are lines."""
    low, high = place["from"], place["to"]
    if high - low > _MOST_LINES:
        return None
    try:
        with access.open(place["path"]) as file:
            file.seek(low)
            content = np.frombuffer(file.read(high - low), np.uint8)
            before = None
            if low <= _MOST_LINES:
                file.seek(0)
                before = file.read(low).count(b"\n")
    except OSError:
        return None
    ends = np.flatnonzero(content == ord("\n"))
    if len(content) and content[-1] != ord("\n"):
        ends = np.append(ends, len(content))
    starts = np.concatenate([[0], ends + 1])[: len(ends)]
    # Blank lines are no rows.
    length = ends - starts
    returns = np.zeros(len(ends), np.bool_)
    returns[length == 1] = content[starts[length == 1]] == ord("\r")
    lines = np.flatnonzero((length > 0) & ~returns)
    if row >= len(lines):
        return None
    return int(low + starts[lines[row]]), None if before is None else int(before + lines[row] + 1)


def arrival_of(place: Mapping[str, Any], row: int, shown: Mapping[str, Any], arrival_us: int | None) -> int | None:
    """Return the arrival of a row that the journal alone describes: ranges seen in parts have one for each part."""
    looks = place.get("arrivals")
    if arrival_us is not None or not looks:
        return arrival_us
    at = int(place["from"]) + row if "partition" in place else shown.get("byte")
    return None if at is None else next((int(seen) for end, seen in looks if at < end), None)
