"""Access to files on this machine's disks and to objects in S3 stores, by path or address (``s3://bucket/key``)."""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from ....conf.errors import OptionError
from ....conf.locations import is_remote, scheme_of
from ....storage.folder import TableFolder
from .paths import Folders, Seen, alternatives, find, has_magic, is_pattern, local_path

__all__ = ["FileAccess", "check_scheme", "feed_root"]

_SCHEMES = ("s3", "s3a")


def check_scheme(path: str) -> None:
    """Raise OptionError for a path that is neither on a mounted file system nor in S3."""
    scheme = scheme_of(path)
    if scheme and scheme not in _SCHEMES:
        raise OptionError(
            f"path {path!r} is on {scheme}, which the files connector cannot read",
            expected="a local or mounted path, or an address in a store that speaks S3's protocol: s3://bucket/folder",
            hint="mount it on every machine and give the path, or copy the files to S3",
        )


def feed_root(path: str) -> str:
    """Return a path as an absolute one, and an address as it is."""
    return path.rstrip("/") if is_remote(path) else local_path(path)


@dataclasses.dataclass(frozen=True)
class FileAccess:
    """Access to files and objects. The connector reads its input only through this class."""

    storage: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)  # the store's options; never shown

    def open(self, path: str) -> Any:
        """Open a file or an object for binary, seekable reads."""
        if not is_remote(path):
            return open(path, "rb")
        bucket, key = self._bucket(path)
        with bucket.guarded():
            where, filesystem = bucket.place(key)
            with contextlib.suppress(FileNotFoundError):
                return filesystem.open_input_file(where)
        raise FileNotFoundError(path)

    def size(self, path: str) -> int:
        if not is_remote(path):
            return os.path.getsize(path)
        with self.open(path) as file:
            return cast("int", file.seek(0, 2))

    def exists(self, path: str) -> bool:
        """Return whether there is a file or folder; in a store, an object of that name or below it."""
        if not is_remote(path):
            return os.path.exists(path)
        return next(self._objects(path), None) is not None

    def is_pattern(self, path: str) -> bool:
        return is_pattern(path) if is_remote(path) else has_magic(path)

    def folder_of(self, address: str) -> str:
        """Return the folder that an address or a pattern in a store begins with."""
        before = address
        while is_pattern(before) or self._is_object(before):
            before = before.rpartition("/")[0]
        return before

    def find(
        self, path: str, root: int, folders: Folders, *, recursive: bool, name_filter: str | None
    ) -> Iterator[tuple[str, Seen]]:
        """Find the files that a path matches now, as :func:`.paths.find` does."""
        if not is_remote(path):
            yield from find(path, root, folders, recursive=recursive, name_filter=name_filter)
            return
        fits = re.compile(fnmatch.translate(name_filter or "*")).match
        for pattern in alternatives(path) if is_pattern(path) else [path]:
            parts = pattern.split("/")[3:] if is_pattern(path) else [_exactly(each) for each in path.split("/")[3:]]
            for key, seen in self._objects(_before_pattern(pattern) if is_pattern(path) else path):
                names = key.split("/")
                if fits(names[-1]) and _meant(names, parts, recursive=recursive):
                    yield f"{'/'.join(path.split('/')[:3])}/{key}", (*seen, root)

    def _objects(self, path: str) -> Iterator[tuple[str, tuple[int, int]]]:
        """Yield the object of that name, and those below it: key, and size with time of change."""
        import pyarrow.fs as pa_fs

        bucket, key = self._bucket(path)
        with bucket.guarded():
            where, filesystem = bucket.place(key)
            found = filesystem.get_file_info(where) if key else None
            selector = pa_fs.FileSelector(where, allow_not_found=True, recursive=True)
            listed = [found] if found is not None and found.type == pa_fs.FileType.File else []
            listed += filesystem.get_file_info(selector)
        for info in listed:
            if info.type == pa_fs.FileType.File:
                yield info.path, (info.size, info.mtime_ns or 0)

    def _is_object(self, address: str) -> bool:
        bucket, key = self._bucket(address)
        return bool(key) and bucket.has(key)

    def _bucket(self, path: str) -> tuple[TableFolder, str]:
        scheme, _, bucket, *key = path.split("/")
        return TableFolder(f"{scheme}//{bucket}", self.storage), "/".join(key)


def _exactly(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name)


def _before_pattern(pattern: str) -> str:
    parts = pattern.split("/")
    first = next((number for number, part in enumerate(parts) if is_pattern(part)), len(parts))
    return "/".join(parts[:first])


def _meant(names: Sequence[str], parts: Sequence[str], *, recursive: bool) -> bool:
    """Return whether a pattern matches an object, or a folder that contains it; hidden names only if spelled out."""
    if not parts:
        return (recursive or len(names) <= 1) and not any(name[:1] in "._" for name in names)
    if not names:
        return False
    part, rest = parts[0], parts[1:]
    if part == "**":
        return _meant(names, rest, recursive=recursive) or (
            len(names) > 1 and names[0][:1] not in "._" and _meant(names[1:], parts, recursive=recursive)
        )
    if is_pattern(part) and names[0][:1] in "._":
        return False
    return bool(re.fullmatch(fnmatch.translate(part), names[0])) and _meant(names[1:], rest, recursive=recursive)
