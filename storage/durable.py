"""Syncs to disk, so that files and the folder entries that lead to them survive a power cut."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

# A disk combines concurrent syncs.
_AT_ONCE = 16


def sync_file(path: str) -> None:
    """Wait until a file, or the entries of a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_paths(root: str, paths: Iterable[str]) -> None:
    """Wait until files below `root` are on the disk, with the entries of all folders that lead to them, `root`
    included.

    An OSError means that a file is gone or the disk failed; the state of the files is then unknown.
    """
    files = sorted(set(paths))
    if not files:
        return
    folders = {""}
    for path in files:
        while path := os.path.dirname(path):
            folders.add(path)
    places = [os.path.join(root, path) for path in files]
    above = [os.path.join(root, path) if path else root for path in folders] + [os.path.dirname(os.path.abspath(root))]
    with ThreadPoolExecutor(min(_AT_ONCE, max(len(places), len(above)))) as pool:
        list(pool.map(sync_file, places))
        list(pool.map(sync_file, above))
