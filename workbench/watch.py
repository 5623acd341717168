"""Tables that are watched from outside: their commits as they come, and a bounded history."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from ..conf.errors import TableError, UpstreamError
from ..conf.locations import absolute_location, is_remote
from ..conf.units import now_us
from ..core.feedback.ages import Ages
from ..delta_format.log import entry_place, newest_version
from ..sink.figures.summary import CommitSummary, complete_up_to_us, read_summaries
from ..storage.folder import TableFolder

__all__ = ["Point", "UnknownNameError", "Watch", "WatchCopy", "WatchedTable", "checkpoint_of", "readable"]

_LOG = "_delta_log"
_DEPTH = 3
# Tables that pages have shown last have all of their latest commits, and share so many points, of about 1.5 kB each.
_SHOWN = 16
_COMMITS, _POINTS = 200, 10_000
# Of each other table: about 20 kB.
_FEW_COMMITS, _FEW_POINTS = 4, 8
# In each turn, so many tables that no page shows are read; more within this time if they have not been read before.
_OTHERS = 16
_FIRST_S = 0.1
_UNKNOWN_S = 5.0
# The folder of a table of dead letters is named so, in the checkpoint or beside that or the table.
_LETTERS = re.compile(r"(.+)[/_]dead_letters/?")

_log = logging.getLogger(__name__)


class UnknownNameError(UpstreamError, KeyError):
    """No watched table, query or entity has this name. A ``KeyError``."""

    __str__ = Exception.__str__


@dataclasses.dataclass(frozen=True, slots=True)
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
    packed_ages: bytes
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
            packed_ages=(summary.ages or Ages()).packed(),
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

    @property
    def ages(self) -> Ages:
        return Ages.unpacked(self.packed_ages)

    def then(self, other: Point) -> Point:
        """Return the two together; `other` is the later one."""
        counts = ("commits", "rows", "updates", "applied", "superseded", "older", "deleted", "conflicts", "late",
                  "judged", "met")  # fmt: skip
        return dataclasses.replace(
            other,
            **{name: getattr(self, name) + getattr(other, name) for name in counts},
            packed_ages=Ages.together([self.ages, other.ages]).packed(),
            p50_s=_most(self.p50_s, other.p50_s),
            p99_s=_most(self.p99_s, other.p99_s),
            area=(self.area[0] + other.area[0], self.area[1] + other.area[1]),
            oldest_s=_most(self.oldest_s, other.oldest_s),
            batch_s=_most(self.batch_s, other.batch_s),
        )


def _most(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else max(one, other)


class WatchedTable:
    """A table's latest commits whole, and all as points that grow coarser with their age.

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
    error : str
        Why it could not be read last; empty if it was.
    """

    def __init__(self, name: str, location: str, storage: Mapping[str, str], *, points: int, commits: int) -> None:
        self.name = name
        self.location = location
        self.storage = storage
        self.version = -1
        self.error = ""
        self._checkpoint: tuple[str | None, str | None, float] = (None, None, 0.0)
        self._limit = points
        self._recent: deque[tuple[int, CommitSummary]] = deque(maxlen=commits)
        self._points: list[Point] = []
        self._lock = threading.Lock()
        self._reading = threading.Lock()

    @property
    def folder(self) -> TableFolder:
        return TableFolder(self.location, self.storage)

    @property
    def commits(self) -> list[tuple[int, CommitSummary]]:
        """The latest commits of queries with their versions, oldest first."""
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
        known, place, until_s = self._checkpoint
        if query != known or (place is None and time.monotonic() > until_s):
            place = None if query is None else checkpoint_of(self.folder, query)
            self._checkpoint = query, place, time.monotonic() + _UNKNOWN_S
        return place

    def keep(self, points: int, commits: int) -> None:
        """Hold so much from now on; if that is more commits, the next refresh reads them again."""
        if (points, commits) == (self._limit, self._recent.maxlen):
            return
        with self._reading, self._lock:
            if commits > (self._recent.maxlen or 0):
                self.version = -1
            self._limit = points
            self._recent = deque(self._recent, maxlen=commits)
            self._points = _coarser(self._points, points)

    def refresh(self) -> list[tuple[int, CommitSummary]]:
        """Read the commits since the last call, and return them, oldest first."""
        with self._reading:
            begun = self.version
            if begun >= 0 and not self.folder.has(entry_place(begun)):
                newest = newest_version(self.folder)
                if newest is None or newest < begun:  # another table is in its place
                    with self._lock:
                        self._recent.clear()
                        self._points.clear()
                    begun = -1
            if begun < 0:
                newest = newest_version(self.folder)
                begun = -1 if newest is None else max(newest - (self._recent.maxlen or 0) * 3 // 2, -1)
            # Only entries that are there before the log is read are sure to be among those that it gives.
            there = self._read_to(begun)
            found = read_summaries(self.location, begun, self.storage)
            with self._lock:
                if self.version < 0:
                    self._recent.clear()
                self._recent.extend(found)
                self._points = [each for each in self._points if each.version <= begun]
                self._points.extend(Point.of(*each) for each in found)
                self._points = _coarser(self._points, self._limit)
            self.version = found[-1][0] if found else there
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


def _coarser(points: list[Point], limit: int) -> list[Point]:
    """Return the points if `limit` allows them, else three quarters: the latest, and sums of earlier ones."""
    if len(points) <= limit:
        return points
    most, latest = 2, limit // 4
    while len(points) > limit * 3 // 4:
        merged: list[Point] = []
        for each in points[:-latest]:
            if merged and merged[-1].commits + each.commits <= most:
                merged[-1] = merged[-1].then(each)
            else:
                merged.append(each)
        points, most = merged + points[-latest:], most * 2
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
        self.broken: dict[str, str] = {}  # why places below the locations cannot be looked into
        self._tables: dict[str, WatchedTable] = {}
        self._shown: dict[str, WatchedTable] = {}  # the latest last
        self._wanted: Collection[str] = ()
        self._choosing = threading.Lock()
        self._next = 0
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

    def shown(self, name: str | None = None) -> WatchedTable:
        """Return a table that a page shows, with its latest commits; raise UnknownNameError."""
        table = self.table(name)
        with self._choosing:
            new = table.name not in self._shown
            self._shown[table.name] = self._shown.pop(table.name, table)
            others = [each for each in self._shown if each not in self._wanted and each != table.name]
            for each in others[: max(len(self._shown) - _SHOWN, 0)]:
                self._shown.pop(each).keep(_FEW_POINTS, _FEW_COMMITS)
            if new:
                table.keep(self._points, _COMMITS)
        if table.version < 0:
            self._read(table)
        return table

    def search(self) -> None:
        """Find new tables (but no dead letters) and checkpoints; raise TableError for an impossible location."""
        broken: dict[str, str] = {}
        found = dict.fromkeys(each for location in self.locations for each in _found(location, self.storage, broken))
        self.checkpoints = [place for kind, place in found if kind == "checkpoint"]
        places = {place for _, place in found}
        tables = [place for kind, place in found if kind == "table" and _letters_of(place) not in places]
        known = {table.location: name for name, table in self._tables.items()}
        self.broken = {place: why for place, why in broken.items() if place not in known}
        for location in known.keys() & (places - {*tables}):  # the letters came before their table
            self._tables.pop(known[location])
            self._shown.pop(known[location], None)
        for location in tables:
            if location not in known:
                name, few = self._name(location), len(self._tables) >= _SHOWN
                points, commits = (_FEW_POINTS, _FEW_COMMITS) if few else (self._points, _COMMITS)
                table = WatchedTable(name, location, self.storage, points=points, commits=commits)
                self._tables[name] = table
                if not few:
                    self._shown[name] = table
        for table in list(self._shown.values()):
            table.keep(self._points, _COMMITS)

    @property
    def _points(self) -> int:
        return _POINTS // min(max(len(self._tables), 1), _SHOWN)

    def refresh(self, wanted: Collection[str] = ()) -> dict[str, list[tuple[int, CommitSummary]]]:
        """Read new commits, and return them by the table's name.

        The `wanted` tables are read each time, and others in turns. A table that cannot be read now is logged and left
        out.
        """
        self._wanted = wanted
        tables = self.tables()
        found = {table.name: self._read(table) for table in tables if table.name in wanted}
        others = [table for table in tables if table.name not in wanted]
        first, until_s = self._next % max(len(others), 1), time.monotonic() + _FIRST_S
        for number, table in enumerate(others[first:] + others[:first]):
            if number >= _OTHERS and (table.version >= 0 or time.monotonic() > until_s):
                break
            self._next = first + number + 1
            found[table.name] = self._read(table)
        return {name: commits for name, commits in found.items() if commits}

    def _read(self, table: WatchedTable) -> list[tuple[int, CommitSummary]]:
        try:
            new = table.refresh()
        except (OSError, ValueError, UpstreamError) as error:  # one that is being replaced, a store that is away
            text = table.folder.masked(error)
            if table.error != text:
                table.error = text
                _log.warning("the table %s cannot be read now: %s", table.name, text)
            return []
        table.error = ""
        return new

    def _name(self, location: str) -> str:
        parts = readable(location).rstrip("/").split("/")
        for count in range(1, len(parts) + 1):
            name = "/".join(parts[-count:])
            if name not in self._tables:
                return name
        return f"{'/'.join(parts)} {len(self._tables)}"  # names that differ only where they are not UTF-8


class WatchCopy(Watch):
    """The tables and checkpoints that another process has found, each read when it is requested."""

    def search(self) -> None:
        """Leave the search to the other process."""

    def take(self, tables: Sequence[tuple[str, str]], checkpoints: Sequence[str]) -> None:
        """Watch the tables of these names and locations from now on."""
        known, self.checkpoints = self._tables, [*checkpoints]
        self._tables = {
            name: known[name]
            if name in known and known[name].location == location
            else WatchedTable(name, location, self.storage, points=_FEW_POINTS, commits=_COMMITS)
            for name, location in tables
        }

    def shown(self, name: str | None = None) -> WatchedTable:
        """Return a table with its commits up to now; raise UnknownNameError."""
        table = self.table(name)
        self._read(table)
        return table


def readable(text: str) -> str:
    """Return a text with escapes for what is not Unicode, as in a file's name that is not UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _found(location: str, storage: Mapping[str, str], broken: dict[str, str]) -> Iterator[tuple[str, str]]:
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
    yield from _below(location, _DEPTH, broken)


def _below(location: str, depth: int, broken: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the tables and checkpoints below a folder, and note why places cannot be looked into."""
    if not depth:
        return
    for place in _folders(location, broken, skip=(".", "_", "upstream-")):
        try:
            kind = _kind(TableFolder(place, {}))
        except OSError as error:
            broken[place] = _cause(error)
            continue
        if kind is not None:
            yield kind, place
        if kind != "table":
            yield from _below(place, depth - 1, broken)


def _folders(location: str, broken: dict[str, str], skip: tuple[str, ...] = ()) -> list[str]:
    """Return the folders in a folder without those whose names begin in some ways, and note what cannot be read."""
    found: list[str] = []
    try:
        with os.scandir(location) as entries:
            for entry in entries:
                if entry.name.startswith(skip):
                    continue
                try:
                    if entry.is_dir():
                        found.append(entry.path)
                    elif entry.is_symlink():
                        os.stat(entry.path)
                except OSError as error:
                    broken[entry.path] = _cause(error)
    except OSError as error:
        broken[location] = _cause(error)
    return sorted(found)


def _cause(error: OSError) -> str:
    return "the link leads to nothing" if isinstance(error, FileNotFoundError) else error.strerror or str(error)


def _letters_of(location: str) -> str | None:
    """Return the table or checkpoint whose dead letters are in a folder of this name."""
    match = _LETTERS.fullmatch(location)
    return None if match is None else match[1]


def _kind(folder: TableFolder) -> str | None:
    if folder.names(_LOG):
        return "table"
    if folder.is_local and os.path.islink(log := os.path.join(folder.location, _LOG)):
        os.stat(log)  # raises FileNotFoundError for a link to nothing
    begun = folder.has("metadata") and folder.names("offsets")
    return "checkpoint" if begun or folder.has("queries/streams.json") else None


def checkpoint_of(folder: TableFolder, query_id: str) -> str | None:
    """Return the folder beside a local table whose query has this id, looking at the conventional names first.

    A hosted query's id has its host's before a slash, and the job's checkpoint is beside the folder of its tables.
    """
    if not folder.is_local:
        return None
    parent = os.path.dirname(folder.location)

    def places() -> Iterator[str]:
        yield folder.location + "_checkpoint"
        yield parent + "_checkpoint"
        yield from _folders(parent, {})

    for place in places():
        try:
            with open(os.path.join(place, "metadata"), encoding="utf-8") as file:
                if json.load(file).get("id") == query_id.partition("/")[0]:
                    return place
        except (OSError, ValueError, AttributeError):
            continue
    return None
