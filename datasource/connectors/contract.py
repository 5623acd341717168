"""The contract between the source and a connector."""

from __future__ import annotations

import dataclasses
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Position = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Limit:
    """The maximum of one batch; None means no limit. A connector takes at least one indivisible unit."""

    rows: int | None = None
    bytes: int | None = None
    files: int | None = None


@dataclasses.dataclass(frozen=True)
class Range:
    """A part of one feed that a single task reads."""

    feed: str
    place: Mapping[str, Any]  # in the connector's own JSON terms, such as {"path": …, "from": 0, "to": 1048576}
    span: int  # an upper bound of its rows; so many sequence numbers are reserved for it
    arrival_us: int | None = None  # when the system first could see its rows; None if its chunks have arrivals by row

    def to_json(self) -> dict[str, Any]:
        return {"feed": self.feed, "place": dict(self.place), "span": self.span, "arrival_us": self.arrival_us}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Range:
        return cls(value["feed"], value["place"], value["span"], value["arrival_us"])


def joined(part: Range, following: Range) -> Range | None:
    """Return one range with the rows of two, of a connector that joins ranges; None if they do not adjoin."""
    one, two = dict(part.place), dict(following.place)
    low, at, _ = one.pop("from", None), one.pop("to", None), one.pop("mark", None)
    begin, high, mark = two.pop("from", None), two.pop("to", None), two.pop("mark", None)
    arrivals = [
        *(one.pop("arrivals", None) or [[at, part.arrival_us]]),
        *(two.pop("arrivals", None) or [[high, following.arrival_us]]),
    ]
    if part.feed != following.feed or at is None or at != begin or one != two:
        return None
    kept = [each for each, later in itertools.pairwise([*arrivals, [None, None]]) if each[1] != later[1]]
    place = {**two, "from": low, "to": high, **({} if mark is None else {"mark": mark})}
    place |= {"arrivals": kept} if len(kept) > 1 else {}
    arrival = kept[0][1] if len(kept) == 1 else None
    return Range(part.feed, place, part.span + following.span, arrival)


def row_place(part: Range, row: int) -> dict[str, Any]:
    """Return the place of a row of a range, without the connector's own marks."""
    place, shown = part.place, {"feed": part.feed}
    if "partition" in place:
        return {**shown, "topic": place["topic"], "partition": place["partition"], "offset": int(place["from"]) + row}
    named = ("path", "from", "to", "groups") if "path" in place else ()
    return {**shown, "row": row, **{name: place[name] for name in named if name in place}}


def place_text(place: Mapping[str, Any]) -> str:
    """Return a row's place in words."""
    if "topic" in place:
        return f"topic {place['topic']}, partition {place['partition']}, offset {place['offset']}"
    if "path" not in place:
        return f"{place['feed']}, row {place['row'] + 1} of its part of the batch"
    if "line" in place:
        return f"{place['path']}, line {place['line']}"
    if "byte" in place:
        return f"{place['path']}, byte {place['byte']}"
    group = place["groups"][0] if "groups" in place else 0
    within = f" from byte {place['from']}" if place.get("from") else f" from row group {group + 1}" if group else ""
    return f"{place['path']}, row {place['row'] + 1}{within}"


@dataclasses.dataclass(frozen=True)
class Advance:
    """A step from one position to the next."""

    position: Position  # equal to the previous one if there is no new input
    ranges: Sequence[Range]  # per feed in arrival order; small enough that several tasks share a large step
    ended: frozenset[str] = frozenset()  # feeds that send nothing more
    # feeds with rows beyond the limit: microseconds of the oldest one's arrival, or earlier; they are not idle
    waiting: Mapping[str, int] = dataclasses.field(default_factory=dict)
    # low-watermarks in microseconds that feeds report apart from rows (`watermark=from_table`)
    promised: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class UnreadInput:
    """The input beyond a position."""

    ranges: Sequence[Range]  # all of it, or its beginning
    whole: bool  # whether it is all
    files: Mapping[str, int]  # by feed, how many files have unread bytes
    bytes: Mapping[str, int]  # by feed, how many bytes are unread


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Rows in arrival order. Arrays and sequences have one element per row."""

    rows: pa.Table  # the requested columns, in the connector's schema
    # places in the range, increasing and below its span; the first one if contiguous
    index: npt.NDArray[np.int64] | int
    arrival_us: npt.NDArray[np.int64] | None = None  # None if the range has one instant for all rows
    deleted: npt.NDArray[np.bool_] | None = None  # tombstones, of which only the key is known; None if there is none
    # times of tombstones that have none in the time column; undefined for other rows
    tombstone_us: npt.NDArray[np.int64] | None = None
    misfits: Sequence[str | None] | None = None  # why rows are malformed; they count for progress and do not leave
    origin: pa.Table | None = None  # the rows as the feed has them, to report malformed ones; None if equal to `rows`
    imaged: bool = False  # tombstones carry the deleted row, so that conditions apply to them


class MalformedRows(Protocol):
    """A receiver of rows that a connector cannot read. It may raise (`onMalformed=fail`)."""

    def report(self, *, text: str, place: str, line: int | None, reason: str) -> None:
        """Receive one malformed row; `place` is for people (a file and position), `line` counts from 1."""
        ...


class Connector(ABC):
    """One kind of input. Instances are pickled to the tasks, so they hold options, not open handles.

    Spark journals the *position*, a JSON value, and the *ranges* that lead to it. So `read` may depend only on the
    range and the data that it names.

    Guarantee: each read of a range returns the same rows in the same order, or raises
    :class:`~upstream.conf.errors.FeedChangedError`.
    """

    name: ClassVar[str]
    smallest_task: int = 4 << 20
    """A task whose ranges span less than this, in bytes or rows, costs more to start than it saves."""
    tasks_report: bool = False
    """Reading twice is expensive, so tasks observe the times, not the driver. One range per feed and step is best."""
    joins_ranges: bool = False
    """A range may begin and end at any other's end, with ``from`` and ``to`` in its place; ``arrivals`` there has the
    arrivals of its rows up to each end."""

    @abstractmethod
    def schema(self) -> pa.Schema:
        """Return the schema of the rows, inferred unless the user gave it."""

    def key(self) -> Sequence[str]:
        """Return the columns of the update key that the feed itself names, once its schema is inferred."""
        return ()

    def event_time(self) -> str | None:
        """Return the column of the event time that the feed itself names."""
        return None

    @abstractmethod
    def fix_schema(self, schema: pa.Schema) -> None:
        """Read by `schema` (the user's, or the one that was inferred) from now on."""

    @abstractmethod
    def feeds(self, position: Position | None) -> Sequence[str]:
        """Return the names of the feeds known at a position; ``None`` is the beginning."""

    @abstractmethod
    def freeze(self, now_us: int) -> None:
        """Ignore from now on what arrives after `now_us` (`Trigger.AvailableNow`, and batch reads)."""

    @abstractmethod
    def advance(self, position: Position | None, now_us: int, limit: Limit) -> Advance:
        """Return the step from `position` towards the input at `now_us`, within `limit`; called once per trigger."""

    @abstractmethod
    def read(self, part: Range, columns: Sequence[str] | None, malformed: MalformedRows) -> Iterator[Chunk]:
        """Yield the rows of a range in bounded memory; only `columns` if given. The driver reads only times."""

    def limit(self, common: Limit) -> Limit:
        """Return the limit of one batch: the common one, or with limits that only this connector has (files)."""
        return common

    def backlog(self, position: Position | None, now_us: int) -> dict[str, Any] | None:
        """Return the input beyond `position`, for people (for example ``{"bytes": …, "files": …}``), if known."""
        del position, now_us
        return None

    def unread(self, position: Position | None, now_us: int, limit: Limit) -> UnreadInput | None:
        """Return the input beyond `position`, and write nothing; None if only a running query can look.

        The ranges are within the limit. ``None`` is the beginning.
        """
        del position, now_us, limit
        return None

    def commit(self, position: Position) -> None:
        """Forget what is no longer needed after the commit of a batch that ended at `position`."""
        del position


class ConnectorLayer(Connector):
    """A connector that reads what another one reads, its position included, and changes the rows."""

    def __init__(self, inner: Connector) -> None:
        self._inner = inner
        self.smallest_task = inner.smallest_task
        self.tasks_report = inner.tasks_report
        self.joins_ranges = inner.joins_ranges

    def key(self) -> Sequence[str]:
        return self._inner.key()

    def event_time(self) -> str | None:
        return self._inner.event_time()

    def feeds(self, position: Position | None) -> Sequence[str]:
        return self._inner.feeds(position)

    def freeze(self, now_us: int) -> None:
        self._inner.freeze(now_us)

    def advance(self, position: Position | None, now_us: int, limit: Limit) -> Advance:
        return self._inner.advance(position, now_us, limit)

    def limit(self, common: Limit) -> Limit:
        return self._inner.limit(common)

    def backlog(self, position: Position | None, now_us: int) -> dict[str, Any] | None:
        return self._inner.backlog(position, now_us)

    def unread(self, position: Position | None, now_us: int, limit: Limit) -> UnreadInput | None:
        return self._inner.unread(position, now_us, limit)

    def commit(self, position: Position) -> None:
        self._inner.commit(position)
