"""The position of each key's row in a data file: one index per file, on the worker's disk."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...conf.errors import TableError
from ...conf.process_identity import boot_name, same_boot
from ...core.rows.buckets import spark_hash
from ...core.rows.columns import columns_at
from ...core.rows.exact_integers import Int64s

# No column of a table has such a name.
_HASH, _POSITION = "_upstream_hash", "_upstream_position"
_FORMAT = "2"
_SEEDS = (42, 0x5BD1E995)
_HOME = re.compile(r"([0-9a-f]{24})-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
# Mapped files that a process keeps; beyond them the one that was not needed for longest is let go.
_MAPPED = 512
# So many indexes written by a process between two looks at how much room they take.
_TIDY_EVERY = 64
# An index that no version names yet may be that of a file which awaits its commit.
_YOUNG_S = 3600


class Matches(NamedTuple):
    """Rows of a file whose hash is that of one of the keys."""

    positions: Int64s  # in the file, each once
    rows: pa.Table  # the deciding columns


def key_hashes(rows: pa.Table, key: Sequence[str]) -> Int64s:
    """Return a number for each row, the same for equal keys.

    A single key column of integers or times is its own hash. Other keys may share a hash, so callers compare
    the keys.
    """
    columns = columns_at(rows, key)
    kind = columns[0].type
    if len(columns) == 1 and (pa.types.is_signed_integer(kind) or pa.types.is_date32(kind) or _is_micros(kind)):
        whole = columns[0].cast(pa.int32()) if pa.types.is_date32(kind) else columns[0]
        return pc.fill_null(whole.cast(pa.int64()), 0).to_numpy().astype(np.int64, copy=False)
    halves = np.empty((rows.num_rows, 2), dtype="<i4")
    for half, seed in enumerate(_SEEDS):
        halves[:, half] = spark_hash(columns, seed)
    return halves.view("<i8").reshape(-1).astype(np.int64, copy=False)


class KeyIndex:
    """The indexes of one table's data files on this machine.

    A data file never changes, so neither does its index; the table's log records which rows are dead. An index
    is a cache: all processes of the machine share it, and a missing one is rebuilt from the data file. It is
    one Arrow file, mapped into memory: sorted hashes, their rows' positions, and by position the deciding
    columns. `folder` is the parent folder; None is the system's temporary folder. `limit` is in bytes.
    """

    def __init__(self, location: str, key: Sequence[str], folder: str | None, limit: int) -> None:
        self._key = tuple(key)
        self._limit = limit
        self._parent = folder
        self._table = hashlib.sha256(location.encode()).hexdigest()[:24]
        self._opened: OrderedDict[str, pa.Table] = OrderedDict()
        self._home: str | None = None
        self._written = 0

    def __getstate__(self) -> dict[str, object]:
        # It goes to tasks, perhaps on other machines; what this process has mapped does not.
        return {**self.__dict__, "_opened": OrderedDict(), "_home": None, "_written": 0}

    def put(self, path: str, deciding: pa.Table) -> None:
        """Write the index of a data file, from the deciding columns of all its rows in their order."""
        self._write(self._place(path), deciding)

    def lookup(self, path: str, hashes: Int64s, read: Callable[[], pa.Table]) -> Matches:
        """Return rows that may have keys of these hashes, best sorted. `read` reads columns if there is no index."""
        index = self._open(path, read)
        held = _as_mapped(index.column(_HASH))
        first, end = np.searchsorted(held, hashes), np.searchsorted(held, hashes, side="right")
        met = end > first
        first, counts = first[met], (end - first)[met]
        # Runs of equal hashes, laid end to end: from each one's first entry so many upwards.
        entries = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(int(counts.sum()))
        positions = _taken(index.column(_POSITION), entries).to_numpy().astype(np.int64)
        names = [name for name in index.column_names if name not in (_HASH, _POSITION)]
        return Matches(positions, _taken(index.select(names), positions))

    def replace(self, gone: Sequence[str], path: str, deciding: pa.Table) -> None:
        """Replace the indexes of some data files by that of a new one, if this machine has any of them."""
        kept = [place for place in map(self._place, gone) if os.path.exists(place)]
        if kept:  # else tasks run elsewhere
            self.put(path, deciding)
        for place in kept:
            with contextlib.suppress(OSError):
                os.remove(place)

    def tidy(self, named: Iterable[str]) -> None:
        """Remove indexes of files that the table dropped, and the least used ones beyond the limit, at times."""
        if self._written < _TIDY_EVERY:
            return
        self._written = 0
        home = self.home
        needed = {_file_name(path) for path in named}
        now = time.time()
        kept: list[tuple[float, int, str]] = []
        for entry in os.scandir(home):
            with contextlib.suppress(OSError):  # another task may tidy at the same time
                found = entry.stat()
                if entry.name not in needed and now - found.st_mtime > _YOUNG_S:
                    os.remove(entry.path)
                else:
                    kept.append((found.st_mtime, found.st_size, entry.path))
        room = self._limit - sum(size for _, size, _ in kept)
        for _, size, place in sorted(kept):
            if room >= 0:
                break
            with contextlib.suppress(OSError):
                os.remove(place)
            room += size

    def forget(self, named: Iterable[str]) -> int:
        """Remove the indexes of all but the named files; return their number. A running batch rebuilds its own."""
        kept, gone = {_file_name(path) for path in named}, 0
        for entry in list(os.scandir(self.home)):
            if entry.name not in kept:
                with contextlib.suppress(FileNotFoundError):  # another process was faster
                    os.remove(entry.path)
                    gone += 1
        return gone

    def _open(self, path: str, read: Callable[[], pa.Table]) -> pa.Table:
        place = self._place(path)
        found = self._opened.get(path)
        if found is None:
            found = _mapped(place)
            if found is None:
                self._write(place, read())
                found = _mapped(place)
            if found is None:
                raise TableError(
                    f"the index {place} cannot be read although it has just been written",
                    expected="a folder that nothing else empties, on a disk with room",
                    hint="give another folder in the option indexLocation, or set the option engine to rewrite",
                )
            with contextlib.suppress(OSError):
                os.utime(place)  # says when it was last needed
            self._opened[path] = found
            if len(self._opened) > _MAPPED:
                self._opened.popitem(last=False)
        else:
            self._opened.move_to_end(path)
        return found

    def _write(self, place: str, deciding: pa.Table) -> None:
        hashes = key_hashes(deciding, self._key)
        order = np.argsort(hashes)
        columns = [pa.array(hashes[order]), pa.array(order.astype(np.uint32))]
        columns += [column.combine_chunks() for column in deciding.columns]
        rows = pa.table(columns, names=[_HASH, _POSITION, *deciding.column_names])
        written = f"{place}.{uuid.uuid4()}.tmp"
        try:
            with pa.OSFile(written, "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
                writer.write_table(rows)
            # Tasks may write the same one at the same time; each is whole.
            os.replace(written, place)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.remove(written)
            raise TableError(
                f"the index {place} cannot be written: {error}",
                expected="a folder on the worker's own disk with room for the indexes",
                hint="give such a folder in the option indexLocation, or set the option engine to rewrite",
            ) from error
        self._written += 1

    def _place(self, path: str) -> str:
        return os.path.join(self.home, _file_name(path))

    @property
    def home(self) -> str:
        """Return the folder of this table's indexes; remove those of an earlier boot, which may be incomplete."""
        if self._home is None:
            parent = self._parent or _own_folder()
            os.makedirs(parent, mode=0o700, exist_ok=True)
            home, boot = os.path.join(parent, f"{self._table}-{boot_name()}"), boot_name()
            for entry in sorted(os.scandir(parent), key=lambda entry: entry.name):
                found = _HOME.fullmatch(entry.name)
                if found is None:
                    continue
                if not same_boot(found.group(2), boot):
                    # Of an earlier boot, of any table: what the system had not yet put on the disk then is not in it.
                    shutil.rmtree(entry.path, ignore_errors=True)
                elif found.group(1) == self._table:
                    home = entry.path
            os.makedirs(home, mode=0o700, exist_ok=True)
            self._home = home
        return self._home


def _file_name(path: str) -> str:
    return f"{hashlib.sha256(path.encode()).hexdigest()[:32]}-{_FORMAT}.arrow"


def _mapped(place: str) -> pa.Table | None:
    try:
        with pa.memory_map(place) as file:
            return pa.ipc.open_file(file).read_all()
    except FileNotFoundError:
        return None


def _taken(rows: pa.Table | pa.ChunkedArray, positions: Int64s) -> Any:
    return rows.take(pa.array(positions))


def _as_mapped(column: pa.ChunkedArray) -> Int64s:
    return column.chunk(0).to_numpy() if column.num_chunks == 1 else column.to_numpy()


def _is_micros(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.unit == "us"


def _own_folder() -> str:
    """Return a folder below the system's temporary one to which no other user can write."""
    user = os.getuid()
    place = os.path.join(tempfile.gettempdir(), f"upstream-index-{user}")
    os.makedirs(place, mode=0o700, exist_ok=True)
    found = os.lstat(place)
    if found.st_uid != user or not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o022:
        raise TableError(
            f"the folder {place} is another user's, or others may write to it",
            expected="a folder of this user's own: what is in it is trusted",
            hint="remove it, or give a folder in the option indexLocation",
        )
    return place
