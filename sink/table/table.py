"""The Delta table as it is now: loaded once in a process, then brought up to date."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ...conf.errors import TableError
from ...delta_format.data_files import LiveFiles
from ...delta_format.deletion_vectors import copy_of
from ...delta_format.latest_table import BUCKET
from ...delta_format.log import LogReplay, entry_place
from ..spec.layout import Layout
from ..spec.maintenance_rules import retention_properties
from ..spec.options import SinkTarget
from .engine_choice import marks_from_the_start, say_chosen
from .files import DataFiles
from .mapped_table import make_table
from .tombstones import APP_ID, TombstoneList

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from ...delta_format.deletion_vectors import DeletionVector

__all__ = [
    "Held",
    "Snapshot",
    "create_table",
    "entry_fingerprint",
    "has_entry_after",
    "load_table",
    "remove_unnamed",
    "replay_log",
    "take_snapshot",
    "transaction_version",
]

_Fingerprint = tuple[int, int, int] | bytes
_TURNS = 64
_GOLDEN = 0x9E3779B97F4A7C15


class Held(NamedTuple):
    """The files of one bucket."""

    rows: tuple[str, ...]  # paths, relative to the table
    tombstones: str | None
    counts: tuple[int | None, ...] = ()  # rows of each file, dead ones included; None if the log has no count
    vectors: tuple[DeletionVector | None, ...] = ()  # dead rows of each file; None if there are none

    @property
    def live(self) -> int:
        """Return the number of live rows, as far as the log has row counts."""
        return sum(count or 0 for count in self.counts) - sum(
            vector.cardinality for vector in self.vectors if vector is not None
        )

    def live_in(self, at: int, count: int) -> int:
        """Return the number of live rows among the `count` rows of the file at index `at`."""
        vector = self.vectors[at]
        return count if vector is None else count - vector.cardinality


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The table's files at one version."""

    version: int  # -1 if there is no table yet
    files: Mapping[int, tuple[str, ...]]  # by bucket, the sorted paths relative to the table
    rows: Mapping[str, int | None]  # rows of each file, dead ones included; None if its statistics have no count
    tombstones: TombstoneList
    # only for files that have dead rows
    vectors: Mapping[str, DeletionVector] = dataclasses.field(default_factory=dict)

    @classmethod
    def empty(cls) -> Snapshot:
        return cls(-1, {}, {}, TombstoneList())

    def of_bucket(self, bucket: int) -> Held:
        paths = self.files.get(bucket, ())
        counts = tuple(self.rows[path] for path in paths)
        vectors = tuple(self.vectors.get(path) for path in paths)
        return Held(paths, self.tombstones.paths.get(bucket), counts, vectors)

    @property
    def largest_bucket(self) -> int:
        """Return the number of live rows in the largest bucket."""
        return max((self.of_bucket(bucket).live for bucket in self.files), default=0)

    def has_turn(self, bucket: int, buckets: int) -> bool:
        """Return True if the batch upon this version may rewrite the bucket's large files.

        Buckets take turns, so that no batch has to rewrite many.
        """
        turns = min(buckets, _TURNS)
        # Fractions of multiples of the golden ratio: spread evenly also over every second version, where others commit
        # in between.
        spread = self.version * _GOLDEN % (1 << 64)
        return bucket % turns == spread * turns >> 64

    def live_rows(self, path: str) -> int | None:
        """Return a file's number of live rows; None if its statistics have no row count."""
        count, vector = self.rows[path], self.vectors.get(path)
        return count if count is None or vector is None else count - vector.cardinality

    def count(self, paths: Iterable[str] | None = None) -> int | None:
        """Return the number of live rows in some files, or in all; None if one has no row count."""
        counts = [self.live_rows(path) for path in (self.rows if paths is None else paths)]
        return None if None in counts else sum(count or 0 for count in counts)

    def named(self) -> set[str]:
        """Return every file that this version of the table names, tombstones and vectors included."""
        kept = {path for vector in self.vectors.values() if (path := vector.path) is not None}
        return set(self.rows) | self.tombstones.held() | kept | set(map(copy_of, kept))


@dataclasses.dataclass
class _Cached:
    table: DeltaTable
    last_entry: _Fingerprint | None
    log: LogReplay
    transactions: LogReplay


_Place = tuple[str, tuple[tuple[str, str], ...]]
_cache: dict[_Place, _Cached] = {}


def load_table(target: SinkTarget) -> DeltaTable | None:
    """Load the table at its latest version; return None if there is none, and raise a TableError for a broken log.

    A process caches tables: a load takes up to 30 ms, or two requests for each entry in an object store. An
    update takes 4 ms for a thousand files, or three requests. A table that was deleted and made again is
    recognised by its last log entry.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    place = _place(target)
    cached = _cache.pop(place, None)
    version = None if cached is None else cached.table.version()
    try:
        if cached is not None and version is not None and cached.last_entry == entry_fingerprint(target, version):
            if has_entry_after(target, version):
                cached.table.update_incremental()
        else:
            table = DeltaTable(target.location, storage_options=dict(target.storage) or None)
            log = LogReplay(target.folder)
            # In a store an entry is a request: there one reading of it serves both.
            transactions = LogReplay(target.folder, transactions_only=True) if target.is_local else log
            cached = _Cached(table, None, log, transactions)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError, ValueError) as error:
        raise TableError(
            f"the log of the table at {target.location} cannot be read: {target.masked(error)}",
            expected="all entries of _delta_log since the last checkpoint in it, each of them whole",
            hint="put the missing or broken entry back from a copy, or fill a table at another path from the input, "
            "with a new "
            "checkpointLocation. Nothing was changed",
        ) from error
    if cached.last_entry is None or cached.table.version() != version:
        cached.last_entry = entry_fingerprint(target, cached.table.version())
    if cached.last_entry is not None:
        _cache[place] = cached
    return cached.table


def replay_log(target: SinkTarget, table: DeltaTable) -> LogReplay:
    """Return the log of a loaded table, at its version; a process reads each entry once."""
    cached = _cache.get(_place(target))
    log = LogReplay(target.folder) if cached is None or cached.table is not table else cached.log
    log.follow(table.version())
    return log


def transaction_version(target: SinkTarget, table: DeltaTable, application: str) -> int | None:
    """Return an application's last transaction version in a loaded table; None if it has none."""
    cached = _cache.get(_place(target))
    if cached is not None and cached.table is table:
        # delta-rs reads the log since the last checkpoint for each such question.
        with contextlib.suppress(TableError):  # a log in a form that is not followed here
            cached.transactions.follow(table.version())
            return cached.transactions.transactions.get(application)
    return table.transaction_version(application)


def create_table(target: SinkTarget, layout: Layout) -> DeltaTable:
    """Create the table, empty; if another writer has just created it, return theirs if it fits."""
    from deltalake import DeltaTable, Schema
    from deltalake.exceptions import DeltaError

    schema = layout.plain_schema()
    configuration = layout.properties() | retention_properties(target.options.maintenance_rules({}))
    options = target.options
    vectors = (
        marks_from_the_start(options.engine, options.expected_keys, layout.buckets)
        and target.folder.puts_refused() is None
    )
    try:
        # Of an entry that can be seen before it is on the disk, a power cut may leave an empty one, and no table that
        # opens: delta-rs does not wait.
        if layout.ids is not None or vectors or (target.is_durable and target.is_local):
            made = make_table(target, schema, layout.ids, [BUCKET], configuration, vectors=vectors)
            if made and vectors and options.engine == "auto":
                say_chosen(target.location)
        else:
            DeltaTable.create(
                target.location,
                Schema.from_json(json.dumps(schema)),
                partition_by=[BUCKET],
                configuration=configuration,
                storage_options=dict(target.storage) or None,
                raise_if_key_not_exists=False,
            )
    except (DeltaError, OSError) as error:
        found = load_table(target)
        if found is None:
            raise TableError(
                f"the table at {target.location} cannot be made: {target.masked(error)}",
                hint="check that the folder may be written to, and the storage options",
            ) from error
    table = load_table(target)
    if table is None:
        raise TableError(f"the table at {target.location} was made and is gone again")
    layout.check(table, target.location)
    return table


def take_snapshot(table: DeltaTable, files: DataFiles, target: SinkTarget) -> Snapshot:
    """Return the files of a loaded table; `files` reads the list of its tombstones."""
    live = LiveFiles.of(table)
    found: dict[int, list[str]] = {}
    for bucket, path in zip(live.partition(BUCKET), live.paths, strict=True):
        found.setdefault(bucket, []).append(path)
    rows = dict(zip(live.paths, live.rows, strict=True))
    by_bucket = {bucket: tuple(sorted(paths)) for bucket, paths in found.items()}
    admitted = "deletionVectors" in (table.protocol().reader_features or ())
    vectors = replay_log(target, table).vectors() if admitted else {}
    tombstones = TombstoneList.numbered(transaction_version(target, table, APP_ID) or 0, files)
    return Snapshot(table.version(), by_bucket, rows, tombstones, vectors)


def remove_unnamed(target: SinkTarget, files: DataFiles, paths: Iterable[str]) -> None:
    """Remove the files that an attempt has left, except those that the table names.

    The commit may have been made although it seemed to fail. If the table cannot be read, the files stay, and
    maintenance removes them later.
    """
    with contextlib.suppress(Exception):  # what failed matters more than what is left lying about
        table = load_table(target)
        held = set[str]()
        if table is not None:
            divided = table.metadata().partition_columns
            held |= take_snapshot(table, files, target).named() if divided else set(LiveFiles.of(table).paths)
        files.remove(set(paths) - held)


def _place(target: SinkTarget) -> _Place:
    """Return the cache's key for a table: one address in two stores is two tables."""
    return target.location, tuple(sorted(target.storage.items()))


def has_entry_after(target: SinkTarget, version: int) -> bool:
    """Return False if the log surely has no entry after a version that it has; entries have no gaps.

    In an object store it is always True: to look costs as much as to load.
    """
    return not target.is_local or os.path.exists(os.path.join(target.location, entry_place(version + 1)))


def entry_fingerprint(target: SinkTarget, version: int) -> _Fingerprint | None:
    """Return a fingerprint that distinguishes a version's entry from any other of that version; None without one."""
    place = entry_place(version)
    try:
        if not target.is_local:
            # What a store says of an object's time is too coarse; an entry has ids in it.
            return hashlib.sha256(target.folder.read(place)).digest()
        entry = os.stat(os.path.join(target.location, place))
    except OSError:
        return None
    return entry.st_ino, entry.st_mtime_ns, entry.st_size
