"""Runs of entries or rows: pages of neighbouring panes, written once and removed when their panes are over.

A batch adds runs and reads only those of the panes it needs. Its cost depends on its rows and on the panes that enter
or leave a window, never on the size of the state.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ...conf.units import parse_bytes
from ...core.rows.exact_integers import Int64s
from ...core.rows.frames import from_frame, to_frame
from .entries import PANE
from .store import Store

# Fewer rows do not justify a run: a call to Spark's state store costs as much as some thousand rows.
_ROWS = 2048
_MANY = 16
_FEW = 4  # runs of one pane, each entry of which is likely to meet another of its key


class Run(NamedTuple):
    """A page of entries, or of rows, of neighbouring panes."""

    number: int  # its page in the store
    first: int  # least pane
    last: int  # greatest pane
    rows: int
    level: int  # the number of merges behind it
    size: int  # bytes in the store


class Runs:
    """A shard's runs, saved as :attr:`known`.

    `span` is the most panes that a run should cover, since windows enter and leave parts of them. `combine` reduces the
    rows of merged runs that have one key and pane. `fit` adds columns to tables that an earlier run of the job wrote.
    """

    def __init__(
        self,
        store: Store,
        kind: str,
        known: Sequence[Any],
        span: int,
        combine: Callable[[pa.Table], pa.Table] | None = None,
        fit: Callable[[pa.Table], pa.Table] | None = None,
    ) -> None:
        self._store = store
        self._kind = kind
        self._runs = [Run(*each) for each in known]
        self._span = max(1, span)
        self._combine = combine
        self._fit = fit
        self._loaded: dict[int, pa.Table] = {}
        self.read = self.written = 0

    @property
    def known(self) -> list[Run]:
        return self._runs

    @property
    def rows(self) -> int:
        return sum(run.rows for run in self._runs)

    @property
    def bytes(self) -> int:
        return sum(run.size for run in self._runs)

    @property
    def last_pane(self) -> int | None:
        return max((run.last for run in self._runs), default=None)

    def rows_from(self, pane: int) -> int:
        """Return an upper bound of the number of entries from a pane on."""
        return sum(run.rows for run in self._runs if run.last >= pane)

    def first_from(self, pane: int) -> int | None:
        """Return the first pane with entries at or after `pane`. Only runs that begin before `pane` are read."""
        found: list[int] = []
        for run in self._runs:
            if run.first >= pane:
                found.append(run.first)
            elif run.last >= pane:
                panes = self._load(run).column(PANE).to_numpy()  # sorted, as all runs are
                found.append(int(panes[np.searchsorted(panes, pane)]))
        return min(found, default=None)

    def tables(self, first: int, last: int) -> list[pa.Table]:
        """Return the entries with ``first <= pane <= last``, one table for each run that has any."""
        found: list[pa.Table] = []
        for run in self._runs:
            if run.last < first or run.first > last:
                continue
            table = self._load(run)
            if run.first < first or run.last > last:
                panes = table.column(PANE).to_numpy()
                table = table.filter(pa.array((panes >= first) & (panes <= last)))
            if table.num_rows:
                found.append(table)
        return found

    def add(self, table: pa.Table) -> None:
        """Add entries, a table with a column :data:`PANE`."""
        if table.num_rows == 0:
            return
        panes = table.column(PANE).to_numpy()
        order = np.argsort(panes, kind="stable")
        table, panes = table.take(pa.array(order)), panes[order]
        for low, high in self._parts(panes):
            self._put(table.slice(low, high - low), panes[low:high], 0)
        self._merge()

    def drop_below(self, pane: int) -> None:
        for run in self._runs:
            if run.last < pane:
                self._store.remove(self._kind, run.number)
        self._runs = [run for run in self._runs if run.last >= pane]

    def _parts(self, panes: Int64s) -> list[tuple[int, int]]:
        """Split sorted entries where a span begins, unless a part would have too few of them."""
        spans = panes // self._span
        begins = np.flatnonzero(np.concatenate([[True], spans[1:] != spans[:-1]]))
        # Spans within the same few thousand rows remain in one run.
        part = begins // _ROWS
        cuts = begins[np.concatenate([[True], part[1:] != part[:-1]])]
        return list(zip(cuts.tolist(), [*cuts[1:].tolist(), len(panes)], strict=True))

    def _merge(self) -> None:
        """Merge many runs of one level into one. An entry is rewritten once for each such factor of growth."""
        while True:
            many = self._many()
            if many is None:
                return
            table = pa.concat_tables([self._load(run) for run in many])
            if self._combine is not None:
                table = self._combine(table)
            for run in many:
                self._store.remove(self._kind, run.number)
            gone = set(many)
            self._runs = [run for run in self._runs if run not in gone]
            panes = table.column(PANE).to_numpy()
            order = np.argsort(panes, kind="stable")
            table, panes = table.take(pa.array(order)), panes[order]
            for low, high in self._parts(panes):
                self._put(table.slice(low, high - low), panes[low:high], many[0].level + 1)

    def _many(self) -> list[Run] | None:
        """Find runs to merge: small ones, since each costs a call, or combinable ones of one pane."""
        small: dict[int, list[Run]] = {}
        alike: dict[tuple[int, int], list[Run]] = {}
        for run in self._runs:
            if run.rows < _ROWS:
                small.setdefault(run.level, []).append(run)
            elif run.first == run.last and self._combine is not None:
                alike.setdefault((run.first, run.level), []).append(run)
        found = [runs for runs in small.values() if len(runs) > _MANY]
        return next(iter(found + [runs for runs in alike.values() if len(runs) > _FEW]), None)

    def _put(self, table: pa.Table, panes: Int64s, level: int) -> None:
        number = max((run.number for run in self._runs), default=-1) + 1
        frame = to_frame(table)
        self._store.put(self._kind, number, frame)
        self._loaded[number] = table
        self._runs.append(Run(number, int(panes[0]), int(panes[-1]), table.num_rows, level, len(frame)))
        self.written += 1

    def _load(self, run: Run) -> pa.Table:
        if run.number not in self._loaded:
            frame = self._store.get(self._kind, run.number)
            assert frame is not None, f"run {run.number} is not in the state store"
            table = from_frame(frame)
            self._loaded[run.number] = table if self._fit is None else self._fit(table)
            self.read += 1
        return self._loaded[run.number]


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
    """Return the files of this worker's executor, in a folder that Spark removes; None outside one, or with limit 0."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", "")
    limit = os.environ.get(LIMIT)
    most = _DEFAULT if limit is None else parse_bytes(limit)
    first = folders.split(",")[0]
    return RunFiles(Path(first, "upstream_runs"), most) if most and first and os.path.isdir(first) else None
