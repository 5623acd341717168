"""The frontier: input beyond a position, file by file, in order of arrival."""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterable, Mapping

from ....conf.errors import FeedChangedError
from ..contract import Position
from .content import fingerprint
from .positions import FileOffsets, FilePosition
from .store import FileAccess, Seen, natural_key

MOVED = "moved"
"""The kind of the entry that stays under a name that a file has left."""


def node_of(path: str) -> int:
    """Return the number of the file that has this name now; 0 if there is none."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


def renamed(entries: Mapping[str, FilePosition], found: Mapping[str, Seen], gone: Iterable[str]) -> dict[str, str]:
    """Return the new names of partly consumed files, by the old names.

    File systems reuse inodes, and files may begin alike, so both must match. A file that left the paths is searched in
    its folder, so that rows written before the rename are still read. `found` are new or changed files.
    """
    left = {
        path: entries[path]
        for path in (*found, *gone)
        if path in entries and entries[path].node and entries[path].mark and node_of(path) != entries[path].node
    }
    if not left:
        return {}
    now = {node_of(path): path for path in found}
    names: dict[str, str] = {}
    for path, entry in left.items():
        new = now.get(entry.node) or _beside(path, entry.node)
        if new is not None and _is(new, entry):
            names[path] = new
    return names


def _beside(path: str, node: int) -> str | None:
    try:
        with os.scandir(os.path.dirname(path)) as files:
            # A name that hides a file says that it is not to be read.
            return next((file.path for file in files if file.name[0] not in "._" and file.inode() == node), None)
    except OSError:
        return None


def _is(path: str, entry: FilePosition) -> bool:
    whole = entry.kind not in ("", "text")
    to = entry.size if whole else entry.to
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            return (size == to if whole else size >= to) and fingerprint(file, entry.head, to) == entry.mark
    except OSError:
        return False


RESUME = (
    "restore the file as it was and restart, or start with a new checkpoint, which reads everything again; "
    "let a writer only append, or give new content a new name (of logrotate's ways `create` with delaycompress, not "
    "`copytruncate`)"
)

_ON_DISKS = FileAccess()

# Arrival, time of the last change, natural order of names, path.
_Turn = tuple[int, int, list[tuple[int, "int | str"]], str]


def changed(path: str, what: str) -> FeedChangedError:
    """Return the error for a file that differs from its record."""
    return FeedChangedError(f"file {path} {what}", expected="files that do not change, except by growing", hint=RESUME)


class Frontier:
    """The known input beyond one position. `feed_of` takes a path and the number of the root it was found under."""

    def __init__(
        self,
        position: Position,
        folder: str | None,
        feed_of: Callable[[str, int], str],
        access: FileAccess = _ON_DISKS,
    ) -> None:
        self.position = position
        self.ledger = FileOffsets(position, folder)
        # Paths seen whose last line is unfinished, or that are not complete yet; they wait for a change.
        self.held: dict[str, str] = {}
        self.turns: dict[str, list[_Turn]] = {}
        # Files that were renamed to something that the paths do not name: their writers may not have let go of them.
        self.outside: dict[str, None] = {}
        self._feed_of = feed_of
        self._access = access
        self._feeds: dict[str, str] = {}

    @property
    def entries(self) -> dict[str, FilePosition]:
        return self.ledger.entries

    def feed(self, path: str) -> str:
        return self._feeds[path]

    def start(self, files: Mapping[str, Seen], now_us: int) -> None:
        """Record all present files, once the ledger is loaded."""
        for path, entry in self.entries.items():
            if entry.mark and not entry.node:
                entry.node = node_of(path)
        self.rename(files, [path for path in self.entries if path not in files])
        for path, entry in self.entries.items():
            if path not in files and entry.mark and entry.kind == "text" and node_of(path) == entry.node != 0:
                self.outside[path] = None
                self._feeds[path] = self._feed_of(path, 0)
                if entry.segments:
                    self._enqueue(path, entry)
        for path, seen in files.items():
            entry = self.entries.get(path)
            if entry is not None:
                self._feeds[path] = self._feed_of(path, seen[2])
                if entry.segments:
                    self._enqueue(path, entry)
                elif _unfinished(entry):
                    self.held[path] = "unfinished"
            self.see(path, seen, now_us)
        self.vanish(
            [
                path
                for path, entry in self.entries.items()
                if path not in files and (entry.segments or _unfinished(entry))
            ]
        )

    def see(self, path: str, seen: Seen, now_us: int) -> None:
        """Record a file's current state; raise FeedChangedError if it has shrunk or differs from what was consumed."""
        size, mtime_ns, root = seen
        entry = self.entries.get(path)
        if entry is None or entry.kind == MOVED:
            entry = self.entries[path] = FilePosition()
            self._feeds[path] = self._feed_of(path, root)
        elif entry.size == size and entry.mtime_ns == mtime_ns:
            return
        elif path not in self._feeds:
            self._feeds[path] = self._feed_of(path, root)
        self._check(path, entry, size)
        self.held.pop(path, None)
        entry.size, entry.mtime_ns = size, mtime_ns
        entry.node = entry.node or node_of(path)
        if entry.kind in ("", "text"):
            if size > entry.end:
                self._extend(path, entry, size, now_us)
        elif entry.segments:
            # A whole file that changed before its turn: what counts is its last state.
            entry.segments[:] = [(size, entry.segments[0][1])]
        elif not entry.mark and size:
            self._extend(path, entry, size, now_us)
        self.ledger.touch(path)

    def rename(self, found: Mapping[str, Seen], gone: Iterable[str]) -> None:
        names = renamed(self.entries, found, gone)
        moved = [
            (old, new, self.entries[old], self._feeds.get(old), self.held.pop(old, None)) for old, new in names.items()
        ]
        for old, *_ in moved:
            self.entries[old] = FilePosition(kind=MOVED)
            self.outside.pop(old, None)
            self.ledger.touch(old)
        for _, new, entry, feed, why in moved:
            self.entries[new] = entry
            self._feeds[new] = feed or self._feed_of(new, found[new][2] if new in found else 0)
            self.ledger.touch(new)
            if new not in found:
                self.outside[new] = None
            if why is not None:
                self.held[new] = why
            if entry.segments:
                self._enqueue(new, entry)

    def look_outside(self, now_us: int) -> None:
        """Record what was written to files after they were renamed to a name outside of the paths."""
        for path in list(self.outside):
            try:
                stat = os.stat(path)
            except OSError:
                del self.outside[path]
                self.vanish([path])
                continue
            if stat.st_ino != self.entries[path].node:
                del self.outside[path]
                self.rename({}, [path])
                continue
            self.see(path, (stat.st_size, stat.st_mtime_ns, 0), now_us)

    def again(self, path: str, now_us: int) -> None:
        entry = self.entries[path]
        del self.held[path]
        if entry.size > entry.end:
            self._extend(path, entry, entry.size, now_us)

    def hold(self, path: str, why: str) -> None:
        """Hold a file back until it changes: the rest beyond its consumed part cannot be read yet."""
        self.entries[path].segments.clear()
        self.held[path] = why

    def vanish(self, paths: list[str]) -> None:
        """Record that files are gone; raise FeedChangedError if one was not wholly consumed."""
        for path in paths:
            entry = self.entries.get(path)
            if entry is None or self._access.exists(path):
                continue
            self.held.pop(path, None)
            if entry.segments or _unfinished(entry):
                left = entry.size - entry.to if entry.kind in ("", "text") else entry.size
                raise changed(path, f"has disappeared before all of it was consumed; {left} bytes of it are missing")

    def consumed(self, path: str) -> None:
        entry = self.entries[path]
        self.ledger.touch(path)
        if entry.segments:
            self._enqueue(path, entry)

    def backlog(self) -> dict[str, int]:
        left = self.left().values()
        return {"files": sum(files for files, _ in left), "bytes": sum(size for _, size in left)}

    def left(self) -> dict[str, tuple[int, int]]:
        """Return how many files and bytes of each feed wait for their turn."""
        found: dict[str, tuple[int, int]] = {}
        for feed, turns in self.turns.items():
            waiting = [self.entries[path] for path in {turn[3] for turn in turns}]
            waiting = [entry for entry in waiting if entry.segments]
            size = sum(entry.end - (entry.to if entry.kind != "parquet" else 0) for entry in waiting)
            found[feed] = len(waiting), size
        return found

    def peek(self, feed: str) -> tuple[str, int | None] | None:
        """Return the file whose turn it is in a feed, and the arrival of the next file's rows; None without files."""
        turns = self.turns.get(feed)
        while turns:
            arrival, _, _, path = turns[0]
            segments = self.entries[path].segments
            if not segments or segments[0][1] != arrival:
                heapq.heappop(turns)
                continue
            following = min((turn[0] for turn in turns[1:3]), default=None)
            return path, following
        self.turns.pop(feed, None)
        return None

    def pop(self, feed: str) -> None:
        heapq.heappop(self.turns[feed])

    def _extend(self, path: str, entry: FilePosition, size: int, now_us: int) -> None:
        first = not entry.segments
        entry.see(size, now_us)
        if first:
            self._enqueue(path, entry)

    def _enqueue(self, path: str, entry: FilePosition) -> None:
        turn = (entry.segments[0][1], entry.mtime_ns, natural_key(path), path)
        heapq.heappush(self.turns.setdefault(self._feeds[path], []), turn)

    def _check(self, path: str, entry: FilePosition, size: int) -> None:
        whole = entry.kind not in ("", "text")
        known = entry.size if whole else entry.end
        if size < known and self._access.size(path) < known:
            if not entry.mark:
                # Nothing of it was delivered yet; a writer may start over until then.
                entry.segments.clear()
                return
            raise changed(path, f"has shrunk to {size} bytes from {known}")
        if not entry.mark:
            return
        if whole and size != entry.size:
            raise changed(path, f"was changed after it was consumed: it has {size} bytes and had {entry.size}")
        try:
            with self._access.open(path) as file:
                mark = fingerprint(file, entry.head, entry.size if whole else entry.to)
        except OSError as error:
            raise changed(path, f"cannot be read: {error}") from error
        if mark != entry.mark:
            raise changed(path, "was replaced or rewritten: what was consumed of it is no longer there")


def _unfinished(entry: FilePosition) -> bool:
    """Return whether a file's last line was seen without its end."""
    return entry.kind == "text" and entry.to < entry.size
