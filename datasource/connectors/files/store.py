"""Access to files on this machine's disks and to objects in S3 stores, by path or address (``s3://bucket/key``)."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fnmatch
import logging
import os
import re
import stat
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, cast

from ....conf.errors import OptionError
from ....conf.locations import is_remote, scheme_of
from ....conf.locations import local_path as absolute_path
from ....storage.folder import TableFolder

# Size in bytes, time of the last change in nanoseconds, number of the path it was found under.
Seen = tuple[int, int, int]
# Of each folder listed: the time of its last change before that, in nanoseconds, and the number of the path.
Folders = dict[str, tuple[int, int]]
_Fits = Callable[[str], object]

CODECS = {".gz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".zstd": "zstd"}
FORMATS = {
    ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json",
    ".parquet": "parquet", ".pq": "parquet", ".log": "zeek",
}  # fmt: skip
_MAGIC = re.compile(r"[*?\[{]")
# What log rotation appends to a name.
_ROTATED = re.compile(r"(?<=\w)(?:\.\d{1,4}|-\d{8}(?:-?\d+)?)(?=(?:\.gz|\.gzip|\.zst|\.zstd)?$)")
_DIGITS = re.compile(r"([0-9]+)")


def local_path(path: str) -> str:
    """Return the absolute local path of a path or ``file:`` address."""
    return absolute_path(os.path.expanduser(path))


def has_magic(path: str) -> bool:
    """Return whether a path is a pattern. A path that exists as it is written is none."""
    return is_pattern(path) and not os.path.lexists(path)


def is_pattern(path: str) -> bool:
    """Return whether a path has a pattern's characters in it."""
    return _MAGIC.search(path) is not None


def kind_by_name(path: str) -> tuple[str | None, str | None]:
    """Return the format and codec that a file's extensions name, or None; ``a.csv.1``, ``a.csv-20240701`` are CSV."""
    stem, extension = os.path.splitext(_without_rotation(path))
    codec = CODECS.get(extension)
    if codec is not None:
        extension = os.path.splitext(stem)[1]
    return FORMATS.get(extension), codec


def is_tab_separated(path: str) -> bool:
    """Return whether a file's name has the extension of tab-separated fields."""
    stem, extension = os.path.splitext(_without_rotation(path))
    return (os.path.splitext(stem)[1] if extension in CODECS else extension) == ".tsv"


def _without_rotation(path: str) -> str:
    return _ROTATED.sub("", path.lower())


def natural_key(path: str) -> list[tuple[int, int | str]]:
    """Return a sort key that puts part2 before part10."""
    # Digits of other scripts, and superscripts, are text: `isdigit` takes them for digits, and `int` not always.
    return [(0, int(piece)) if piece[0] in "0123456789" else (1, piece) for piece in _DIGITS.split(path) if piece]


def find(
    path: str, root: int, folders: Folders, *, recursive: bool, name_filter: str | None
) -> Iterator[tuple[str, Seen]]:
    """Yield the files that a path matches, without hidden ones (``_``, ``.``); add the listed folders to `folders`."""
    search = _Search(root, folders, recursive=recursive, name_filter=name_filter)
    if not has_magic(path):
        yield from search.below(path)
        return
    for pattern in alternatives(path):
        yield from search.expand("/", pattern.strip("/").split("/"))


def new_in(
    folder: str, root: int, folders: Folders, known: Container[str], *, name_filter: str | None
) -> Iterator[tuple[str, Seen]]:
    """Yield the files in one folder that are not known yet, without a look at the others."""
    return _Search(root, folders, recursive=False, name_filter=name_filter).listed(folder, known)


class _Search:
    def __init__(self, root: int, folders: Folders, *, recursive: bool, name_filter: str | None) -> None:
        self._root = root
        self._folders = folders
        self._recursive = recursive
        self._fits: _Fits = re.compile(fnmatch.translate(name_filter)).match if name_filter else lambda _: True

    def below(self, path: str) -> Iterator[tuple[str, Seen]]:
        try:
            status = os.stat(path)
        except OSError as error:
            if error.errno not in _NOWHERE:
                raise
            return
        if stat.S_ISDIR(status.st_mode):
            yield from self.listed(path)
        elif self._fits(os.path.basename(path)) and _is_file(path, status):
            yield path, (status.st_size, status.st_mtime_ns, self._root)

    def listed(self, folder: str, known: Container[str] = ()) -> Iterator[tuple[str, Seen]]:
        inner: list[str] = []
        try:
            self._folders[folder] = (os.stat(folder).st_mtime_ns, self._root)
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name[0] in "._" or entry.path in known:
                        continue
                    try:
                        if entry.is_dir():
                            inner.append(entry.path)
                        elif self._fits(entry.name) and _is_file(entry.path, status := entry.stat()):
                            yield entry.path, (status.st_size, status.st_mtime_ns, self._root)
                    except OSError as error:  # gone since it was listed, or a link to nothing
                        if error.errno not in _NOWHERE:
                            raise
        except FileNotFoundError:
            return
        if self._recursive:
            for each in inner:
                if not _leads_up(each):
                    yield from self.listed(each)

    def expand(self, base: str, parts: list[str]) -> Iterator[tuple[str, Seen]]:
        if not parts:
            yield from self.below(base)
            return
        part, rest = parts[0], parts[1:]
        if part == "**":
            yield from self.expand(base, rest)
            for name in _names(base):
                if os.path.isdir(os.path.join(base, name)) and not _leads_up(os.path.join(base, name)):
                    yield from self.expand(os.path.join(base, name), parts)
        elif not _MAGIC.search(part):
            yield from self.expand(os.path.join(base, part), rest)
        else:
            fits = re.compile(fnmatch.translate(part)).match
            for name in _names(base):
                path = os.path.join(base, name)
                if fits(name) and (not rest or os.path.isdir(path)) and not _leads_up(path):
                    yield from self.expand(path, rest)


def _names(folder: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name[0] not in "._")
    except OSError as error:
        if error.errno not in _NOWHERE:
            raise
        return []


# There is nothing there, or a link that leads to itself.
_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def _is_file(path: str, status: os.stat_result) -> bool:
    """Return whether a path is that of a file that can be read and recorded; log once if it is not."""
    if not stat.S_ISREG(status.st_mode):
        return _skipped(path, "is not a regular file")
    if not path.isascii() and path.encode("utf-8", "replace").decode() != path:
        return _skipped(path, "has a name that is not UTF-8")
    return True


def _leads_up(folder: str) -> bool:
    """Return whether a folder is a link to one above itself, whose files would be found again and again."""
    if not os.path.islink(folder):
        return False
    above = os.path.join(os.path.realpath(os.path.dirname(folder)), "")
    return above.startswith(os.path.join(os.path.realpath(folder), "")) and not _skipped(folder, "leads to itself")


def _skipped(path: str, why: str) -> bool:
    if path not in _reported:
        _reported.add(path)
        _log.warning("%s is not read, because it %s", path.encode("utf-8", "backslashreplace").decode(), why)
    return False


_log = logging.getLogger("upstream.files")
_reported: set[str] = set()


def alternatives(pattern: str) -> list[str]:
    """Return a pattern's alternatives without braces: a{b,c} becomes ab and ac."""
    opened = re.search(r"\{([^{}]*)\}", pattern)
    if opened is None:
        return [pattern]
    before, after = pattern[: opened.start()], pattern[opened.end() :]
    return [each for choice in opened.group(1).split(",") for each in alternatives(before + choice + after)]


_SCHEMES = ("s3", "s3a")


def check_scheme(path: str) -> None:
    """Raise OptionError for a path that is neither on a mounted file system nor in S3."""
    scheme = scheme_of(path)
    if scheme and scheme not in _SCHEMES:
        raise OptionError(
            f"path {path!r} is on {scheme}, which the files connector cannot read",
            expected="a local or mounted path, or an address in a store that supports the S3 protocol: s3://bucket/folder",
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
