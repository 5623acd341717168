"""Tables that are watched from outside: their commits as they come, and a bounded history."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from ..conf.errors import TableError, UpstreamError
from ..conf.locations import absolute_location, is_remote
from ..conf.units import now_us
from ..core.feedback.ages import Ages
from ..delta_format.log import entry_place
from ..sink.figures.summary import CommitSummary, complete_up_to_us, read_summaries
from ..storage.folder import TableFolder

__all__ = ["Point", "UnknownNameError", "Watch", "WatchedTable", "checkpoint_of"]

_LOG = "_delta_log"
_RECENT = 200
# Of all tables together: about 45 MB.
_POINTS = 10_000
_LEAST_POINTS = 100
_FIRST_LOOK = 300
_DEPTH = 3
# A table without a commit for so long is looked at every few turns.
_QUIET_US = 60_000_000
_TURNS = 4

_log = logging.getLogger(__name__)


class UnknownNameError(UpstreamError, KeyError):
    """No watched table, query or entity has this name. A ``KeyError``."""

    __str__ = Exception.__str__


@dataclasses.dataclass(frozen=True)
class Point:
    """The figures of one commit, or of successive ones together. Counts are sums; levels are the last commit's."""

    version: int  # of the last commit
    at_us: int  # the last commit's time, in microseconds since the epoch
    commits: int
    rows: int
    updates: int
    applied: int
    superseded: int
    older: int
    deleted: int
    conflicts: int
    late: int
    ages: Ages
    p50_s: float | None  # the greatest of the commits', as is `p99_s`
    p99_s: float | None
    area: tuple[float, float]  # key square seconds: a lower and an upper bound
    keys: int | None
    pending: int | None
    oldest_s: float | None  # the greatest
    complete_up_to_us: int | None
    judged: int  # commits with a verdict on the target
    met: int  # of these, those that met it
    batch_s: float | None  # the longest, from the queue's plan to the commit

    @classmethod
    def of(cls, version: int, summary: CommitSummary) -> Point:
        queue = summary.queue
        return cls(
            version=version,
            at_us=summary.committed_at_us,
            commits=1,
            rows=summary.rows,
            updates=summary.updates,
            applied=summary.applied,
            superseded=summary.superseded,
            older=summary.older,
            deleted=summary.deleted,
            conflicts=summary.conflicts,
            late=summary.late or 0,
            ages=summary.ages or Ages(),
            p50_s=None if summary.staleness is None else summary.staleness.p50,
            p99_s=None if summary.staleness is None else summary.staleness.p99,
            area=summary.area or (0.0, 0.0),
            keys=summary.keys,
            pending=summary.pending,
            oldest_s=summary.oldest,
            complete_up_to_us=complete_up_to_us(summary.low_watermark),
            judged=int(summary.target_met is not None),
            met=int(summary.target_met is True),
            batch_s=None if queue is None else max(summary.committed_at_us - queue.clock_us, 0) / 1e6,
        )

    def then(self, other: Point) -> Point:
        """Return the two together; `other` is the later one."""
        counts = ("commits", "rows", "updates", "applied", "superseded", "older", "deleted", "conflicts", "late",
                  "judged", "met")  # fmt: skip
        return dataclasses.replace(
            other,
            **{name: getattr(self, name) + getattr(other, name) for name in counts},
            ages=Ages.together([self.ages, other.ages]),
            p50_s=_most(self.p50_s, other.p50_s),
            p99_s=_most(self.p99_s, other.p99_s),
            area=(self.area[0] + other.area[0], self.area[1] + other.area[1]),
            oldest_s=_most(self.oldest_s, other.oldest_s),
            batch_s=_most(self.batch_s, other.batch_s),
        )


def _most(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else max(one, other)


class WatchedTable:
    """A table's latest commits whole, and earlier ones as points that grow coarser with their age.

    Attributes
    ----------
    name : str
        Unique among the tables of a watch.
    location : str
        The absolute path or address.
    storage : mapping of str to str
        Options of the object store; never shown.
    checkpoint : str or None
        The location of the checkpoint of the query that writes the table, if it is found.
    version : int
        The last version read; -1 before the first.
    """

    def __init__(self, name: str, location: str, storage: Mapping[str, str], *, points: int) -> None:
        self.name = name
        self.location = location
        self.storage = storage
        self.version = -1
        self._query: tuple[str | None, str | None] = (None, None)
        self._limit = points
        self._recent: deque[tuple[int, CommitSummary]] = deque(maxlen=_RECENT)
        self._points: list[Point] = []
        self._lock = threading.Lock()
        self._reading = threading.Lock()

    @property
    def folder(self) -> TableFolder:
        return TableFolder(self.location, self.storage)

    @property
    def commits(self) -> list[tuple[int, CommitSummary]]:
        """The latest commits of queries with their versions, oldest first: at most 200."""
        with self._lock:
            return list(self._recent)

    @property
    def last(self) -> CommitSummary | None:
        with self._lock:
            return self._recent[-1][1] if self._recent else None

    @property
    def points(self) -> list[Point]:
        """All that is held of the history, oldest first."""
        with self._lock:
            return list(self._points)

    @property
    def checkpoint(self) -> str | None:
        last = self.last
        query = None if last is None else last.query_id
        if query != self._query[0] or self._query[1] is None:
            self._query = (query, None if query is None else checkpoint_of(self.folder, query))
        return self._query[1]

    def refresh(self) -> list[tuple[int, CommitSummary]]:
        """Read the commits since the last call, and return them, oldest first."""
        with self._reading:
            begun = self.version
            if begun >= 0 and not self.folder.has(entry_place(begun)):
                newest = self._newest()
                if newest is None or newest < begun:  # another table is in its place
                    with self._lock:
                        self._recent.clear()
                        self._points.clear()
                    begun = -1
            if begun < 0:
                newest = self._newest()
                begun = -1 if newest is None else max(newest - _FIRST_LOOK, -1)
            found = read_summaries(self.location, begun, self.storage)
            with self._lock:
                self._recent.extend(found)
                self._points.extend(Point.of(*each) for each in found)
                if len(self._points) > self._limit:
                    self._points = _coarser(self._points, self._limit)
            self.version = found[-1][0] if found else self._read_to(begun)
            return found

    def between(self, after_version: int) -> list[tuple[int, CommitSummary]]:
        """Return the commits after a version, from memory if it has them all, else from the log."""
        commits = self.commits
        if not commits or commits[0][0] <= after_version + 1:
            return [each for each in commits if each[0] > after_version]
        return read_summaries(self.location, after_version, self.storage)

    def _read_to(self, version: int) -> int:
        # Entries that no query wrote, such as OPTIMIZE's, are read once.
        while self.folder.is_local and self.folder.has(entry_place(version + 1)):
            version += 1
        return version

    def _newest(self) -> int | None:
        names = (name for name in self.folder.names(_LOG) if name.endswith(".json") and name[:-5].isdigit())
        return max((int(name[:-5]) for name in names), default=None)


def _coarser(points: list[Point], limit: int) -> list[Point]:
    """Return at most three quarters of `limit` points: pairs of the older half become one each."""
    while len(points) > limit * 3 // 4:
        half = len(points) // 2 // 2 * 2
        if not half:
            break
        points = [points[at].then(points[at + 1]) for at in range(0, half, 2)] + points[half:]
    return points


class Watch:
    """The tables below some locations: tables, checkpoints, or folders that hold tables.

    Parameters
    ----------
    locations : sequence of str
        Paths or addresses. A folder is searched three levels deep, and again at each :meth:`search`.
    storage : mapping of str to str
        Options of the object store.
    clock_us : callable
        Microseconds since the epoch.
    """

    def __init__(
        self, locations: Sequence[str], storage: Mapping[str, str], *, clock_us: Callable[[], int] = now_us
    ) -> None:
        self.locations = [absolute_location(each) for each in locations]
        self.storage = storage
        self.clock_us = clock_us
        self.checkpoints: list[str] = []
        self._tables: dict[str, WatchedTable] = {}
        self._turn = 0
        self._wrong: dict[str, str] = {}
        self.search()

    def tables(self) -> list[WatchedTable]:
        return list(self._tables.values())

    def table(self, name: str | None = None) -> WatchedTable:
        """Return a table by its name, by default the first; raise UnknownNameError."""
        if name is None and self._tables:
            return next(iter(self._tables.values()))
        found = self._tables.get(name or "")
        if found is None:
            known = ", ".join(map(repr, list(self._tables)[:10])) or "no table yet"
            raise UnknownNameError(
                "no table is here yet" if name is None else f"no table is named {name!r}",
                expected=f"one of those that are watched: {known}",
            )
        return found

    def search(self) -> None:
        """Find tables and checkpoints that have come since; raise a TableError for a location that cannot exist."""
        found = dict.fromkeys(each for location in self.locations for each in _found(location, self.storage))
        tables = [place for kind, place in found if kind == "table"]
        self.checkpoints = [place for kind, place in found if kind == "checkpoint"]
        points = max(_POINTS // max(len(tables), 1), _LEAST_POINTS)
        known = {table.location for table in self._tables.values()}
        for location in tables:
            if location not in known:
                name = self._name(location)
                self._tables[name] = WatchedTable(name, location, self.storage, points=points)

    def refresh(self, wanted: Collection[str] = ()) -> dict[str, list[tuple[int, CommitSummary]]]:
        """Read new commits, and return them by the table's name.

        The `wanted` tables, and those that had a commit within the last minute, are read each time; others in turns.
        A table that cannot be read now is logged and left out.
        """
        self._turn += 1
        found: dict[str, list[tuple[int, CommitSummary]]] = {}
        for number, (name, table) in enumerate(list(self._tables.items())):
            last = table.last
            quiet = last is None or last.committed_at_us < self.clock_us() - _QUIET_US
            if quiet and table.version >= 0 and name not in wanted and (number + self._turn) % _TURNS:
                continue
            try:
                new = table.refresh()
            except (OSError, ValueError, UpstreamError) as error:  # one that is being replaced, a store that is away
                self._report(table, error)
                continue
            self._wrong.pop(name, None)
            if new:
                found[name] = new
        return found

    def _report(self, table: WatchedTable, error: Exception) -> None:
        text = table.folder.masked(error)
        if self._wrong.get(table.name) != text:
            self._wrong[table.name] = text
            _log.warning("the table %s cannot be read now: %s", table.name, text)

    def _name(self, location: str) -> str:
        parts = location.rstrip("/").split("/")
        for count in range(1, len(parts) + 1):
            name = "/".join(parts[-count:])
            if name not in self._tables:
                return name
        raise AssertionError("unreachable: locations differ")


def _found(location: str, storage: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    folder = TableFolder(location, storage)
    kind = _kind(folder)
    if kind is not None:
        yield kind, location
    if kind == "table" or is_remote(location):
        return
    if kind is None and not os.path.isdir(location):
        raise TableError(
            f"there is no folder {location}",
            expected="a table, a checkpoint, or a folder of tables",
            hint="check the path, or create the folder if its tables are still to come",
        )
    yield from _below(location, _DEPTH)


def _below(location: str, depth: int) -> Iterator[tuple[str, str]]:
    if not depth:
        return
    with os.scandir(location) as entries:
        folders = sorted(
            entry.path for entry in entries if entry.is_dir() and not entry.name.startswith((".", "_", "upstream-"))
        )
    for place in folders:
        kind = _kind(TableFolder(place, {}))
        if kind is not None:
            yield kind, place
        if kind != "table":
            yield from _below(place, depth - 1)


def _kind(folder: TableFolder) -> str | None:
    if folder.names(_LOG):
        return "table"
    begun = folder.has("metadata") and folder.names("offsets")
    return "checkpoint" if begun or folder.has("queries/streams.json") else None


def checkpoint_of(folder: TableFolder, query_id: str) -> str | None:
    """Return the folder beside a local table whose query has this id, looking at the conventional names first.

    A hosted query's id has its host's before a slash, and the job's checkpoint is beside the folder of its tables.
    """
    if not folder.is_local:
        return None
    parent = os.path.dirname(folder.location)
    with os.scandir(parent) as entries:
        beside = sorted(entry.path for entry in entries if entry.is_dir())
    usual = folder.location + "_checkpoint"
    for place in [usual, parent + "_checkpoint", *(each for each in beside if each != usual)]:
        try:
            with open(os.path.join(place, "metadata"), encoding="utf-8") as file:
                if json.load(file).get("id") == query_id.partition("/")[0]:
                    return place
        except (OSError, ValueError, AttributeError):
            continue
    return None
