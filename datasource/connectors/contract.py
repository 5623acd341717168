"""The contract between the source and a connector.

A connector knows one kind of input. It says which feeds there are, how far they reach now, and reads a range as Arrow
batches. Everything that must survive a restart goes into the *position*, a JSON value that Spark journals with each
batch, and into the *ranges* that lead from one position to the next, which are journalled too. So a batch is a function
of what was recorded: ``read`` may depend on nothing but the range and the data the range names.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Advance", "Chunk", "Connector", "Limit", "MalformedRows", "Position", "Range"]

Position = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Limit:
    """How much one batch may take. ``None`` is no limit. A connector takes at least one indivisible unit, so that it
    moves on.
    """

    rows: int | None = None
    bytes: int | None = None
    files: int | None = None


@dataclasses.dataclass(frozen=True)
class Range:
    """A piece of one feed that a single task reads.

    Attributes
    ----------
    feed : str
        The feed it belongs to (`_upstream.source`).
    place : mapping
        Where it lies, in the connector's own JSON terms, for example ``{"path": …, "from": 0, "to": 1048576}``.
    span : int
        An upper bound of its rows; that many sequence numbers are reserved for it.
    arrival_us : int or None
        When the system first could see its rows, if that is one instant; ``None`` if its chunks say so row by row.
    """

    feed: str
    place: Mapping[str, Any]
    span: int
    arrival_us: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value: the inverse of :meth:`from_json`."""
        return {"feed": self.feed, "place": dict(self.place), "span": self.span, "arrival_us": self.arrival_us}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Range:
        """Return the range that :meth:`to_json` described."""
        return cls(value["feed"], value["place"], value["span"], value["arrival_us"])


@dataclasses.dataclass(frozen=True)
class Advance:
    """A step from one position to the next.

    Attributes
    ----------
    position : mapping
        The position after the step; equal to the one given if nothing has come.
    ranges : sequence of Range
        What lies between, per feed in arrival order. Small enough each that several tasks share a large step.
    ended : frozenset of str
        Feeds that have said they will send nothing more.
    waiting : mapping of str to int
        Feeds of which the limit has left rows for later, and when the oldest of these arrived, or earlier, in
        microseconds. They are not silent, whether or not a range is theirs.
    promised : mapping of str to int
        Of feeds that say besides their rows how far they are complete: the bound after this step, in microseconds
        (`progress=promised`).
    """

    position: Position
    ranges: Sequence[Range]
    ended: frozenset[str] = frozenset()
    waiting: Mapping[str, int] = dataclasses.field(default_factory=dict)
    promised: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Rows in arrival order.

    Attributes
    ----------
    rows : pyarrow.Table
        The columns asked for, in the connector's schema.
    index : int64 array of length rows, or int
        Each row's place within its range (increasing, below the range's span), or the first one's if they are
        contiguous.
    arrival_us : int64 array of length rows, or None
        Each row's arrival in microseconds since the epoch; ``None`` when the range gives one instant for all.
    deleted : bool array of length rows, or None
        Which rows are tombstones, of which nothing is known but the key; None if none is.
    tombstone_us : int64 array of length rows, or None
        The time of a tombstone whose time column says none, in microseconds since the epoch; of other rows without
        meaning.
    misfits : sequence of str or None, or None
        Per row why it is malformed, None where it is not; None if no row is. Such rows are seen by progress, and do not
        leave.
    origin : pyarrow.Table or None
        The rows as the feed has them, for reports of malformed ones; None if that is `rows`.
    imaged : bool
        Whether tombstones carry the row that they took away, so that a condition is for them as for any row.
    """

    rows: pa.Table
    index: npt.NDArray[np.int64] | int
    arrival_us: npt.NDArray[np.int64] | None = None
    deleted: npt.NDArray[np.bool_] | None = None
    tombstone_us: npt.NDArray[np.int64] | None = None
    misfits: Sequence[str | None] | None = None
    origin: pa.Table | None = None
    imaged: bool = False


class MalformedRows(Protocol):
    """Where a connector reports what it cannot read. May raise (`onMalformed=fail`)."""

    def report(self, *, text: str, place: str, line: int | None, reason: str) -> None:
        """Take one malformed row.

        Its parts are its raw text, a readable place (a file and position), its 1-based line if known, and the reason.
        """
        ...


class Connector(ABC):
    """One kind of input. Instances are pickled to the tasks, so they hold options, not open handles.

    Guarantee: rows of a range are the same, in the same order, each time it is read, or reading raises
    :class:`~upstream.conf.errors.FeedChangedError`.
    """

    name: ClassVar[str]
    smallest_task: int = 4 << 20
    """A task whose ranges span less than this costs more to start than it saves."""
    tasks_report: bool = False
    """Whether reading twice is dear, so that tasks look at the times, not the driver. Then a feed is best one range of
    a step.
    """

    @abstractmethod
    def schema(self) -> pa.Schema:
        """Return the schema of the rows, inferred unless the user gave it."""

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
        """Return how far the feeds reach at `now_us`, at most `limit` beyond `position`.

        The driver calls this once per trigger.
        """

    @abstractmethod
    def read(self, part: Range, columns: Sequence[str] | None, malformed: MalformedRows) -> Iterator[Chunk]:
        """Yield the rows of a range in bounded memory; only `columns` if given.

        Tasks call this, and so does the driver if it looks at times alone.
        """

    def limit(self, common: Limit) -> Limit:
        """Return the limit of one batch: the common one, or with limits that only this connector has (files)."""
        return common

    def quarantine_folder(self) -> str:
        """Return the folder for malformed rows, for a query with neither `quarantineLocation` nor a checkpoint.

        By default this is `_quarantine` in the working directory. A connector that reads a folder returns one beside
        the data.
        """
        return "_quarantine"

    def backlog(self, position: Position | None, now_us: int) -> dict[str, Any] | None:
        """Return the input beyond `position`, for people (for example ``{"bytes": …, "files": …}``), if known."""
        del position, now_us
        return None

    def commit(self, position: Position) -> None:
        """Forget what is no longer needed after the commit of a batch that ended at `position`."""
        del position
