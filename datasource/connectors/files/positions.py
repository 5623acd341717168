"""Positions of the `files` connector: how far each file was consumed, and what was seen of it beyond that, and when."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import os
import zlib
from collections.abc import Iterable
from typing import Any

from ....conf.errors import CheckpointError
from ....storage.atomic_write import append_to, read_appended
from ..contract import Position

_VERSION = 1
EMPTY: Position = {"version": _VERSION, "files": []}

# Without a folder the position itself lists up to this many files, and this many after the rest were moved to the list.
_INLINE = 1000
_KEPT = 500
# With one it lists the files that have just moved, no more than as many, and so many others.
_OTHERS = 32
_MOST_SEGMENTS = 32
# The list is rewritten when it holds this many times more lines than there are files.
_STALE = 4


@dataclasses.dataclass(slots=True)
class FilePosition:
    """One file."""

    to: int = 0  # end of the consumed part: a byte, or in Parquet a row group; compressed: 0 or the size
    size: int = 0  # as of the last look
    mtime_ns: int = 0
    head: int = 0  # number of first bytes in the fingerprint; 0 until something was consumed
    mark: str = ""  # fingerprint of those and of the bytes before `to`
    kind: str = ""  # empty while unknown, "text", "parquet", or a codec
    # (end, arrival_us) of what was seen beyond `to`, in order; ends need not be line ends
    segments: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    node: int = 0  # the inode, which identifies a renamed file; 0 while unknown

    @property
    def end(self) -> int:
        return self.segments[-1][0] if self.segments else self.to

    def see(self, end: int, now_us: int) -> None:
        """Record that the file was seen up to `end` at `now_us`; merged segments keep the older arrival."""
        self.segments.append((end, now_us))
        if len(self.segments) > _MOST_SEGMENTS:
            pairs = zip(self.segments[:-1], self.segments[1:], strict=True)
            gaps = [after[1] - before[1] for before, after in pairs]
            at = gaps.index(min(gaps))
            self.segments[at : at + 2] = [(self.segments[at + 1][0], self.segments[at][1])]

    def record(self, path: str) -> list[Any]:
        flat = [number for segment in self.segments for number in segment]
        return [path, self.to, self.size, self.mtime_ns, self.head, self.mark, self.kind, flat, self.node]

    @classmethod
    def of(cls, record: list[Any]) -> FilePosition:
        _, to, size, mtime_ns, head, mark, kind, flat, node = record
        segments = list(zip(flat[::2], flat[1::2], strict=True))
        return cls(to, size, mtime_ns, head, mark, kind, segments, node)


class FileOffsets:
    """All files of one position, and the writer of the next.

    Recently moved files are in the position itself. The others, once they are many, are in an append-only list, of
    which the position holds the length. The list is a file in `folder`, or without one compressed text in the position.
    A later line about a file replaces an earlier one.
    """

    def __init__(self, position: Position, folder: str | None) -> None:
        if position.get("version") != _VERSION:
            raise CheckpointError(
                f"the file positions have version {position.get('version')!r}",
                expected=f"version {_VERSION}",
                hint="start with a new checkpoint, or run the release that wrote this one",
            )
        self._folder = folder
        self._quiet: dict[str, Any] = dict(position.get("quiet", {}))
        self.entries: dict[str, FilePosition] = {}
        # Paths that the position itself lists, least recently changed first.
        self._inline: dict[str, None] = {}
        self._touched: set[str] = set()
        lines = self._read_quiet()
        self._listed = len(lines)
        for line in lines:
            record = json.loads(line)
            self.entries[record[0]] = FilePosition.of(record)
        for record in position["files"]:
            self.entries[record[0]] = FilePosition.of(record)
            self._inline[record[0]] = None

    def touch(self, path: str) -> None:
        self._inline.pop(path, None)
        self._inline[path] = None
        self._touched.add(path)

    def position(self) -> Position:
        """Return the current position; all that it refers to is on disk by then."""
        moved, self._touched = min(len(self._touched), _INLINE), set()
        if self._folder is not None and len(self._inline) > moved + _OTHERS:
            self._move(list(self._inline)[: len(self._inline) - moved])
        elif self._folder is None and len(self._inline) > _INLINE:
            self._move(list(self._inline)[: len(self._inline) - _KEPT])
        position: dict[str, Any] = {
            "version": _VERSION,
            "files": [self.entries[path].record(path) for path in self._inline],
        }
        if self._quiet:
            position["quiet"] = dict(self._quiet)
        return position

    def forget(self, position: Position) -> None:
        """Remove lists that were rewritten before `position` was written."""
        current = position.get("quiet", {}).get("list")
        if (
            self._folder is None
            or current is None
            or "replaced" not in self._quiet
            or current != self._quiet.get("list")
        ):
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self._folder, self._quiet.pop("replaced")))

    @property
    def inline_only(self) -> bool:
        return self._folder is None

    def _move(self, paths: list[str]) -> None:
        for path in paths:
            del self._inline[path]
        lines = self._lines(paths)
        if self._listed + len(lines) > _STALE * len(self.entries) + _INLINE:
            lines = self._lines(path for path in self.entries if path not in self._inline)
            self._rewrite(lines)
        else:
            self._append(lines)
            self._listed += len(lines)

    def _lines(self, paths: Iterable[str]) -> list[str]:
        return [json.dumps(self.entries[path].record(path), separators=(",", ":")) for path in paths]

    def _rewrite(self, lines: list[str]) -> None:
        before = self._quiet.get("list")
        self._quiet = {}
        self._append(lines)
        if before is not None:
            self._quiet["replaced"] = before
        self._listed = len(lines)

    def _append(self, lines: list[str]) -> None:
        data = "".join(line + "\n" for line in lines).encode()
        if self._folder is None:
            packed = base64.b85encode(zlib.compress(data, 6)).decode()
            self._quiet["packed"] = [*self._quiet.get("packed", ()), packed]
            return
        self._quiet = {**self._quiet, **append_to(self._folder, self._quiet, data)}

    def _read_quiet(self) -> list[bytes]:
        packed: list[str] = self._quiet.get("packed", [])
        data = b"".join(zlib.decompress(base64.b85decode(text)) for text in packed)
        name = self._quiet.get("list")
        if name is None:
            return data.splitlines()
        if self._folder is None:
            raise CheckpointError(
                f"the checkpoint keeps its list of files in {name}, and no checkpointLocation is given",
                hint="set the option checkpointLocation to its first value",
            )
        return (data + read_appended(self._folder, self._quiet)).splitlines()
