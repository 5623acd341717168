"""Local files of runs of rows, which all Python workers of an executor map into memory: a cache of the state store.

A run never changes and its name is unique. An uncommitted attempt wrote names that no committed state mentions. So a
file is either right or missing, after any failure or replay; if it is missing, the run is read from the state store.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pyarrow as pa

from ...conf.units import parse_bytes

__all__ = ["LIMIT", "RunFiles", "of_worker"]

LIMIT = "UPSTREAM_STATE_CACHE"
"""The environment variable with the most bytes of an executor's files: ``2 GiB``, or 0 for none."""

_DEFAULT = 2 << 30
_SUFFIX = ".run"
_EACH_S = 30.0  # seconds between updates of the modification time of a file in use
_BETWEEN = 32  # files written between two scans of the folder


class RunFiles:
    """The run files of a folder.

    `limit` bounds the bytes of the files, and of those that this process has mapped. Least recently used files are
    removed first.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        self._mapped: dict[str, tuple[pa.Table, float]] = {}
        self._bytes = 0
        self._since = 0

    def get(self, name: str) -> pa.Table | None:
        """Return a run, mapped without a copy; None if there is no readable file."""
        now = time.monotonic()
        found = self._mapped.pop(name, None)
        if found is None:
            try:
                with pa.memory_map(str(self._path(name))) as file:
                    table = pa.ipc.open_stream(file).read_all()
            except OSError:
                return None
            self._bytes += table.nbytes
            found = table, now
        elif now - found[1] > _EACH_S:
            with contextlib.suppress(OSError):
                os.utime(self._path(name))
            found = found[0], now
        self._mapped[name] = found  # the most recently used one is last
        while self._bytes > self._limit and len(self._mapped) > 1:
            self._forget(next(iter(self._mapped)))
        return found[0]

    def put(self, name: str, run: pa.Table) -> None:
        """Write a run's file. If that fails, such as on a full disk, there is none."""
        path = self._path(name)
        part = path.with_suffix(f".{os.getpid()}")
        try:
            self._folder.mkdir(exist_ok=True)
            with pa.OSFile(str(part), "wb") as file, pa.ipc.new_stream(file, run.schema) as writer:
                writer.write_table(run)
            part.rename(path)
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            return
        self._since += 1
        if self._since >= _BETWEEN or run.nbytes * _BETWEEN > self._limit:
            self._since = 0
            self._shrink()

    def drop(self, names: Iterable[str]) -> None:
        """Remove the files of runs that no later batch needs. A replayed batch reads the state store."""
        for name in names:
            self._forget(name)
            with contextlib.suppress(OSError):
                self._path(name).unlink(missing_ok=True)

    def _forget(self, name: str) -> None:
        found = self._mapped.pop(name, None)
        if found is not None:
            self._bytes -= found[0].nbytes

    def _shrink(self) -> None:
        """Remove the least recently used files until a quarter of the limit is free."""
        files: list[tuple[float, int, str]] = []
        with contextlib.suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    status = entry.stat()
                    files.append((status.st_mtime, status.st_size, entry.path))
        total = sum(size for _, size, _ in files)
        if total <= self._limit:
            return
        for _, size, path in sorted(files):
            with contextlib.suppress(OSError):
                os.unlink(path)
            total -= size
            if total <= self._limit * 3 // 4:
                return

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}{_SUFFIX}"


@cache
def of_worker() -> RunFiles | None:
    """Return the files of this Python worker's executor; None outside one, or with a limit of 0.

    They are in the folder of the executor's blocks, which Spark removes when the executor ends.
    """
    folders = os.environ.get("SPARK_LOCAL_DIRS", "")
    limit = os.environ.get(LIMIT)
    most = _DEFAULT if limit is None else parse_bytes(limit)
    first = folders.split(",")[0]
    return RunFiles(Path(first, "upstream_runs"), most) if most and first and os.path.isdir(first) else None
