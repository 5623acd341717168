"""File names: which are meant by a path, what their extensions say, and their natural order."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator
from urllib.parse import unquote, urlparse

__all__ = ["Seen", "find", "has_magic", "is_tab_separated", "kind_by_name", "local_path", "natural_key"]

# Size in bytes, time of the last change in nanoseconds, number of the path it was found under.
Seen = tuple[int, int, int]

CODECS = {".gz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".zstd": "zstd"}
FORMATS = {
    ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json",
    ".parquet": "parquet", ".pq": "parquet", ".log": "zeek",
}  # fmt: skip
_MAGIC = re.compile(r"[*?\[{]")
_DIGITS = re.compile(r"([0-9]+)")


def local_path(path: str) -> str:
    """The absolute local path of a path or ``file:`` address."""
    if path.startswith("file:"):
        path = unquote(urlparse(path).path)
    return os.path.abspath(os.path.expanduser(path))


def has_magic(path: str) -> bool:
    """Whether a path is a pattern. One that exists as it is written is not."""
    return _MAGIC.search(path) is not None and not os.path.lexists(path)


def kind_by_name(path: str) -> tuple[str | None, str | None]:
    """Format and codec that a file's extensions say, each ``None`` if they say nothing."""
    stem, extension = os.path.splitext(path.lower())
    codec = CODECS.get(extension)
    if codec is not None:
        extension = os.path.splitext(stem)[1]
    return FORMATS.get(extension), codec


def is_tab_separated(path: str) -> bool:
    """Whether a file's name says that tabs separate its fields."""
    stem, extension = os.path.splitext(path.lower())
    return (os.path.splitext(stem)[1] if extension in CODECS else extension) == ".tsv"


def natural_key(path: str) -> list[tuple[int, int | str]]:
    """A sort key that puts part2 before part10."""
    return [(0, int(piece)) if piece.isdigit() else (1, piece) for piece in _DIGITS.split(path) if piece]


def find(path: str, root: int, *, recursive: bool, name_filter: str | None) -> Iterator[tuple[str, Seen]]:
    """The files that a path, directory or pattern means now.

    Files and directories whose names begin with ``_`` or ``.`` are hidden, unless they are what `path` names.
    """
    matches = re.compile(fnmatch.translate(name_filter)).match if name_filter else None
    if not has_magic(path):
        yield from _below(path, root, recursive, matches)
        return
    for pattern in _alternatives(path):
        parts = pattern.strip("/").split("/")
        yield from _expand("/", parts, root, recursive, matches)


def _below(path: str, root: int, recursive: bool, matches: object) -> Iterator[tuple[str, Seen]]:
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        return
    if not os.path.isdir(path):
        if matches is None or matches(os.path.basename(path)):  # pyright: ignore[reportCallIssue]
            yield path, (stat.st_size, stat.st_mtime_ns, root)
        return
    yield from _listed(path, root, recursive, matches)


def _listed(folder: str, root: int, recursive: bool, matches: object) -> Iterator[tuple[str, Seen]]:
    folders: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                name = entry.name
                if name[0] in "._":
                    continue
                try:
                    if entry.is_dir():
                        folders.append(entry.path)
                    elif matches is None or matches(name):  # pyright: ignore[reportCallIssue]
                        stat = entry.stat()
                        yield entry.path, (stat.st_size, stat.st_mtime_ns, root)
                except FileNotFoundError:
                    continue  # gone since it was listed, or a link to nothing
    except FileNotFoundError:
        return
    if recursive:
        for each in folders:
            yield from _listed(each, root, recursive, matches)


def _expand(base: str, parts: list[str], root: int, recursive: bool, matches: object) -> Iterator[tuple[str, Seen]]:
    if not parts:
        yield from _below(base, root, recursive, matches)
        return
    part, rest = parts[0], parts[1:]
    if part == "**":
        yield from _expand(base, rest, root, recursive, matches)
        for name in _names(base):
            if os.path.isdir(os.path.join(base, name)):
                yield from _expand(os.path.join(base, name), parts, root, recursive, matches)
        return
    if not _MAGIC.search(part):
        yield from _expand(os.path.join(base, part), rest, root, recursive, matches)
        return
    fits = re.compile(fnmatch.translate(part)).match
    for name in _names(base):
        if fits(name) and (not rest or os.path.isdir(os.path.join(base, name))):
            yield from _expand(os.path.join(base, name), rest, root, recursive, matches)


def _names(folder: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name[0] not in "._")
    except (FileNotFoundError, NotADirectoryError):
        return []


def _alternatives(pattern: str) -> list[str]:
    """Patterns without braces: a{b,c} is ab and ac."""
    opened = re.search(r"\{([^{}]*)\}", pattern)
    if opened is None:
        return [pattern]
    before, after = pattern[: opened.start()], pattern[opened.end() :]
    return [each for choice in opened.group(1).split(",") for each in _alternatives(before + choice + after)]
