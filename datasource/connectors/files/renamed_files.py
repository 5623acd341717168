"""Renamed files, as by log rotation, recognized by their inode and by what was read of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from .content import fingerprint
from .paths import Seen
from .positions import Entry

__all__ = ["MOVED", "node_of", "renamed"]

MOVED = "moved"
"""The kind of the entry that stays under a name that a file has left."""


def node_of(path: str) -> int:
    """Return the number of the file that has this name now; 0 if there is none."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


def renamed(entries: Mapping[str, Entry], found: Mapping[str, Seen], gone: Iterable[str]) -> dict[str, str]:
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


def _is(path: str, entry: Entry) -> bool:
    whole = entry.kind not in ("", "text")
    to = entry.size if whole else entry.to
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            return (size == to if whole else size >= to) and fingerprint(file, entry.head, to) == entry.mark
    except OSError:
        return False
