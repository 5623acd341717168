"""A shard's state in files: each batch adds a file with the values that it changed, and takes over smaller ones."""

from __future__ import annotations

import functools
import json
import struct
import uuid
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from ...conf.errors import CheckpointError
from ...storage.folder import TableFolder

_END = struct.Struct("<QI4s")  # length and checksum of the index, and a mark
_MARK = b"UPSV"
_LARGE = 64 << 20
"""A file with so many bytes in force is taken over only if most of it is superseded: to copy it delays a batch."""
_WHOLE = 8 << 20
"""A file of an object store up to this size is read at once: a request costs as much as some megabytes."""

_Place = tuple[str, int]
_Extent = tuple[int, int]


class _File(NamedTuple):
    """A file's index: where it has each value; None for one that the file removes."""

    name: str
    size: int  # bytes of all values
    extents: dict[_Place, _Extent | None]


class FileStore:
    """A store in a folder, as of some files; a later file's value of a page supersedes that of an earlier one.

    It changes none of these files. :meth:`write` adds one and returns the files of the new state, which the caller
    records. An attempt that dies or comes too late leaves a file without readers. A new file takes over what is in
    force of files up to twice its size. So a state has few files, and a value is copied as often as the size of later
    changes doubles.
    """

    def __init__(self, folder: TableFolder, names: Sequence[str] = ()) -> None:
        self._folder = folder
        self._files = [_file(folder, name) for name in names]
        self._changes: dict[_Place, bytes | None] = {}

    def get(self, kind: str, page: int) -> bytes | None:
        place = kind, page
        if place in self._changes:
            return self._changes[place]
        for file in reversed(self._files):
            if place in file.extents:
                return self._value(file, file.extents[place])
        return None

    def put(self, kind: str, page: int, value: bytes) -> None:
        self._changes[kind, page] = value

    def remove(self, kind: str, page: int) -> None:
        self._changes[kind, page] = None

    def write(self, name: str) -> tuple[str, ...]:
        """Write the changes to a new file whose name begins with `name`; return the state's files, oldest first."""
        if not self._changes:
            return tuple(file.name for file in self._files)
        values = dict(self._changes)
        size = sum(len(value) for value in values.values() if value is not None)
        kept: list[_File] = []
        newer = set[_Place]()
        for file in reversed(self._files):
            extents = {
                place: each for place, each in file.extents.items() if place not in values and place not in newer
            }
            live = sum(each[1] for each in extents.values() if each is not None)
            if live > 2 * size or (live > _LARGE and live * 2 > file.size):
                kept.append(file)
                newer |= file.extents.keys()
            else:
                values |= {place: self._value(file, each) for place, each in extents.items()}
                size += live
        kept.reverse()
        values = {place: each for place, each in values.items() if each is not None or place in newer}
        kept.append(_written(self._folder, f"{name}-{uuid.uuid4().hex[:12]}", values))
        self._files, self._changes = kept, {}
        return tuple(file.name for file in kept)

    def _value(self, file: _File, extent: _Extent | None) -> bytes | None:
        return None if extent is None else _read(self._folder, file, extent)


_known: dict[tuple[str, str], _File] = {}
"""Indexes that this process has read or written, by folder and name: a file never changes."""
_MOST = 1024


def _file(folder: TableFolder, name: str) -> _File:
    found = _known.pop((folder.location, name), None) or _loaded(folder, name)
    return _keep(folder, found)


def _keep(folder: TableFolder, file: _File) -> _File:
    _known[folder.location, file.name] = file
    while len(_known) > _MOST:
        _known.pop(next(iter(_known)), None)
    return file


def _loaded(folder: TableFolder, name: str) -> _File:
    end = folder.size(name) - _END.size
    length, checksum, mark = _END.unpack(folder.read_range(name, end, _END.size)) if end >= 0 else (0, 0, b"")
    index = folder.read_range(name, end - length, length) if mark == _MARK else b""
    if not index or zlib.crc32(index) != checksum:
        raise _damaged(folder, name)
    extents: dict[_Place, _Extent | None] = {}
    at = 0
    for kind, page, size in json.loads(index):
        extents[kind, page] = None if size is None else (at, size)
        at += size or 0
    return _File(name, at, extents)


def _damaged(folder: TableFolder, name: str) -> CheckpointError:
    return CheckpointError(
        f"the state's file {name} in {folder.location} is missing or damaged",
        expected="all files that the job has written below its checkpoint",
        hint="restore the checkpoint, or start with a new checkpoint location",
    )


def _written(folder: TableFolder, name: str, values: dict[_Place, bytes | None]) -> _File:
    index: list[tuple[str, int, int | None]] = []
    extents: dict[_Place, _Extent | None] = {}
    at = 0
    with folder.opened_to_write(name, 1 << 20) as stream:
        for (kind, page), value in values.items():
            index.append((kind, page, None if value is None else len(value)))
            extents[kind, page] = None if value is None else (at, len(value))
            if value is not None:
                stream.write(value)
                at += len(value)
        text = json.dumps(index, separators=(",", ":")).encode()
        stream.write(text)
        stream.write(_END.pack(len(text), zlib.crc32(text), _MARK))
    folder.sync([name])
    return _keep(folder, _File(name, at, extents))


def _read(folder: TableFolder, file: _File, extent: _Extent) -> bytes:
    start, count = extent
    if folder.is_local or file.size > _WHOLE:
        found = folder.read_range(file.name, start, count)
    else:
        found = _content(folder.location, tuple(sorted(folder.storage.items())), file.name)[start : start + count]
    if len(found) != count:
        raise _damaged(folder, file.name)
    return found


@functools.lru_cache(maxsize=32)
def _content(location: str, storage: tuple[tuple[str, str], ...], name: str) -> bytes:
    return TableFolder(location, dict(storage)).read(name)
