"""The Delta table as it is now: loaded once in a process, then brought up to date."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, final

from ...conf.errors import TableError
from ...conf.units import now_us
from ...core.rows.key import Key
from ...delta_format import latest_table
from ...delta_format.deletion_vectors import copy_of
from ...delta_format.log import LiveFiles, LogReplay, check_log, entry_place
from ..spec.layout import Layout
from ..spec.maintenance_rules import retention_properties
from ..spec.options import STORAGE_PREFIX, SinkTarget, parse_sink_options
from .files import DataFiles
from .log_entry import VECTORS_ENABLED, add_action, check_features, commit_stamp, put_entry, removed_action
from .mapped_table import make_table
from .tombstones import APP_ID, TombstoneList

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from ...delta_format.deletion_vectors import DeletionVector
    from .files import StagedFile


WORTH_MARKING = 100_000
"""From so many rows of a bucket on, marking costs so much less than rewriting it that slower reads are worth it
(docs/decisions/0006).
"""

_LOG = logging.getLogger("upstream.sink")
_REFUSING = "Daft, pandas and pyarrow over deltalake's dataset, and plain Parquet readers do not read such a table"
_advised: set[str] = set()


def marks_from_the_start(engine: str, expected_keys: int | None, buckets: int) -> bool:
    """Return True if a new table gets deletion vectors, which not every reader supports: no table gets them later."""
    return engine == "vectors" or (
        engine == "auto" and expected_keys is not None and expected_keys >= WORTH_MARKING * buckets
    )


def marks_allowed(configuration: Mapping[str, str]) -> bool:
    """Return True if a table has deletion vectors, by its properties."""
    return str(configuration.get(VECTORS_ENABLED)).lower() == "true"


def check_allowed(configuration: Mapping[str, str], location: str) -> None:
    """Refuse `engine=vectors` if a table's property forbids deletion vectors."""
    if str(configuration.get(VECTORS_ENABLED)).lower() == "false":
        raise TableError(
            f"the table at {location} forbids deletion vectors ({VECTORS_ENABLED} is false), and the option engine is "
            "vectors",
            expected="engine auto or rewrite, which rewrite touched parts",
            hint=f"leave the option engine out; or allow them: ALTER TABLE delta.`{location}` SET TBLPROPERTIES "
            f"('{VECTORS_ENABLED}' = 'true')",
        )


def say_chosen(location: str) -> None:
    """Log that a new table gets deletion vectors although no option names them."""
    _LOG.warning(
        "the new table at %s gets deletion vectors, since expectedKeys says that it becomes large: a batch costs what "
        "it changes. %s; "
        "for a table that everybody reads, set engine=rewrite before it is made",
        location,
        _REFUSING,
    )


def advise(table: str, location: str, configuration: Mapping[str, str], largest: Callable[[], int]) -> bool:
    """Log once for a table's id that deletion vectors would pay, by its `largest` bucket; return True if logged now."""
    if table in _advised or VECTORS_ENABLED in configuration:
        return False
    most = largest()
    if most < WORTH_MARKING:
        return False
    _advised.add(table)
    _LOG.warning(
        "the table at %s has up to %s rows in a bucket, and each batch rewrites the buckets that it touches. With "
        "engine=vectors, once, a batch would "
        "cost what it changes; but %s. More buckets (`upstream rebucket`) make less to write, too. To keep it as it is "
        "and hear no more of it, set the table's property %s to false",
        location,
        f"{most:,}",
        _REFUSING,
        VECTORS_ENABLED,
    )
    return True


_Fingerprint = tuple[int, int, int] | bytes
_TURNS = 64
_GOLDEN = 0x9E3779B97F4A7C15


class BucketFiles(NamedTuple):
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

    def of_bucket(self, bucket: int) -> BucketFiles:
        paths = self.files.get(bucket, ())
        counts = tuple(self.rows[path] for path in paths)
        vectors = tuple(self.vectors.get(path) for path in paths)
        return BucketFiles(paths, self.tombstones.paths.get(bucket), counts, vectors)

    @property
    def largest_bucket(self) -> int:
        """Return the number of live rows in the largest bucket."""
        return max((self.of_bucket(bucket).live for bucket in self.files), default=0)

    def has_turn(self, bucket: int, buckets: int) -> bool:
        """Return True if the batch on this version may rewrite the bucket's large files: no batch rewrites many."""
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
class _CachedTable:
    table: DeltaTable
    last_entry: _Fingerprint | None
    log: LogReplay
    transactions: LogReplay


_Place = tuple[str, tuple[tuple[str, str], ...]]
_cache: dict[_Place, _CachedTable] = {}


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
            check_log(target.folder)
            table = DeltaTable(target.location, storage_options=dict(target.storage) or None)
            log = LogReplay(target.folder)
            # In a store an entry is a request: there one reading of it serves both.
            transactions = LogReplay(target.folder, transactions_only=True) if target.is_local else log
            cached = _CachedTable(table, None, log, transactions)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError, ValueError) as error:
        raise TableError(
            f"the log of the table at {target.location} cannot be read: {target.masked(error)}",
            expected="all entries of _delta_log since the last checkpoint in it, each of them whole",
            hint="restore the missing or broken entry from a copy, or fill a table at another path from the input, "
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
            made = make_table(target, schema, layout.ids, [latest_table.BUCKET], configuration, vectors=vectors)
            if made and vectors and options.engine == "auto":
                say_chosen(target.location)
        else:
            DeltaTable.create(
                target.location,
                Schema.from_json(json.dumps(schema)),
                partition_by=[latest_table.BUCKET],
                configuration=configuration,
                storage_options=dict(target.storage) or None,
                raise_if_key_not_exists=False,
            )
    except (DeltaError, OSError) as error:
        found = load_table(target)
        if found is None:
            raise TableError(
                f"the table at {target.location} cannot be created: {target.masked(error)}",
                hint="check that the folder is writable, and the storage options",
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
    for bucket, path in zip(live.partition(latest_table.BUCKET), live.paths, strict=True):
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
    """Return False if the log surely has no later entry. In an object store, a look costs as much as a load."""
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


@final
class TableChange:
    """A change of the table and its commit, for use in a ``with`` statement.

    A process that dies leaves an unchanged table, and files that ``upstream maintain`` removes. `changed` is False if
    rows only move to other files. `version` is the one that the commit makes. A table with features whose rules our
    entries do not follow is a TableError.
    """

    def __init__(
        self,
        target: SinkTarget,
        table: DeltaTable,
        files: DataFiles,
        *,
        changed: bool = True,
        log: LogReplay | None = None,
        at_ms: int | None = None,
    ) -> None:
        # What is loaded is shared by all that this process writes to the table, and may move on.
        self.version = table.version() + 1
        self._target = target
        self._files = files
        self._changed = changed
        self._log = replay_log(target, table) if log is None else log
        check_features(self._log, target.location)
        self._at_ms = now_us() // 1000 if at_ms is None else at_ms
        self._made: list[str] = []
        self._actions: list[dict[str, Any]] = []
        self._committed = False

    def __enter__(self) -> TableChange:
        return self

    def __exit__(self, *error: object) -> None:
        if not self._committed:
            remove_unnamed(self._target, self._files, self._made)

    def wrote(self, *paths: str) -> None:
        """Register files that are removed unless the commit is made."""
        self._made += paths

    def replace(self, gone: Iterable[str], rows: Iterable[StagedFile | None]) -> int:
        """Replace files by one for each iterable, None for one without rows; return the number of new rows."""
        count = 0
        for file in rows:
            if file is not None:
                self.wrote(file.path)
                self._actions.append(add_action(file, self._at_ms, changed=self._changed))
                count += file.rows
        self._actions += [removed_action(self._log.files[path], self._at_ms, changed=self._changed) for path in gone]
        return count

    def commit(
        self,
        operation: str,
        commit_info: Mapping[str, Any] | None = None,
        *,
        properties: Mapping[str, str | None] | None = None,
        numbers: Mapping[str, int] | None = None,
    ) -> bool:
        """Commit the change; return False if another writer has taken the version. A full disk is a TableError.

        A property that is None is removed; `numbers` are transaction versions by application.
        """
        actions = list(self._actions)
        if properties:
            configuration = {**self._log.metadata["configuration"], **properties}
            configuration = {name: value for name, value in configuration.items() if value is not None}
            actions.insert(0, {"metaData": {**self._log.metadata, "configuration": configuration}})
        actions += [{"txn": {"appId": name, "version": number}} for name, number in (numbers or {}).items()]
        try:
            info = {"operation": operation, **(commit_info or {}), **commit_stamp(self._log, self._target.folder)}
            self._committed = put_entry(self._target.folder, self.version, info, actions)
        except OSError as error:
            raise TableError(
                f"version {self.version} cannot be committed to the table at {self._target.location}: "
                f"{self._target.masked(error)}",
                hint="check that the folder is writable and has room, and rerun",
            ) from error
        return self._committed


def recorded_options(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options that a table records: key, order, buckets, history, and partial updates.

    There are none if no table is there, or if another program made it. `given` has `path` and the store's
    options.
    """
    # The place and the store alone: the other options may need what the table records. Any key will do.
    place = {
        name: value
        for name, value in given.items()
        if name.lower() == "path" or name.lower().startswith(STORAGE_PREFIX)
    }
    table = load_table(parse_sink_options({**place, "key": "k"}, started=False))
    found = {} if table is None else table.metadata().configuration
    if latest_table.KEY_PROPERTY not in found:
        return {}
    known = {
        "key": Key(json.loads(found[latest_table.KEY_PROPERTY])).text or None,
        "history": found.get(latest_table.HISTORY_PROPERTY),
        "sequenceBy": Key(json.loads(found.get(latest_table.SEQUENCE_PROPERTY, "[]"))).text or None,
        "eventTime": found.get(latest_table.TIME_PROPERTY),
        "buckets": found.get(latest_table.BUCKETS_PROPERTY),
        "nullMeans": found.get(latest_table.NULLS_PROPERTY),
        "columnGroups": found.get(latest_table.GROUPS_PROPERTY),
    }
    return {name: value for name, value in known.items() if value is not None}
