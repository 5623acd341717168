"""Maintenance of a table by its one writer: after a commit, within a budget of time, and so that it may end between any two steps.

Nothing is remembered between two times. The log itself says what is to be done: its oldest entries name the files that went out of use
first. So files are removed entry by entry, and then the entry; whoever comes next begins with the oldest that is left. No folder of data
is listed for that: what it costs follows what was changed, not what is there. Only files that no entry names, left by tasks and
processes that died, have to be looked for, in one partition each time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ...conf.clock import now_us
from ...delta_format.column_mapping import is_mapped
from ...delta_format.data_files import LiveFiles
from ...delta_format.deletion_vectors import COPIES, VECTORS, DeletionVector, copy_of, put_back
from ...delta_format.latest_table import BUCKET, Delivered
from ...delta_format.log import LogReplay, entry_place
from ...storage.folder import Listed, TableFolder
from ..spec import steps
from ..spec.maintenance_rules import (
    FILE_RETENTION,
    LogFiles,
    Maintained,
    MaintenanceRules,
    checkpoint_pays,
    interval_due,
    is_ours,
    oldest_promised,
    parse_interval_s,
    retention_properties,
)
from ..spec.options import SinkOptions, SinkTarget
from ..spec.steps import Step
from ..table.log_entry import put_entry
from ..table.tombstones import DELETIONS, TombstoneList
from ..table.tombstones import FOLDER as TOMBSTONES
from .compact import compact_bucket, compact_worst

if TYPE_CHECKING:
    from deltalake import DeltaTable, PostCommitHookProperties

__all__ = ["Upkeep", "commit_hooks", "last_maintained", "maintain"]

_LOG = logging.getLogger("upstream.maintenance")

_ENTRIES = "_delta_log/"
_LAST_CHECKPOINT = "_last_checkpoint"

# So many entries are read and removed from one look at the time to the next.
_CHUNK = 32
# A file that no version names may be of a batch that is still under way, whatever the retention.
_UNNAMED_US = 86_400_000_000
# A bucket with so many files of less than that is read faster as one.
_MANY, _SMALL = 8, 16 << 20


@dataclasses.dataclass
class _Known:
    """What a process knows of a table and would have to look up again else, since it is asked after each commit."""

    checkpoint: int | None = None  # the version of the last one; -1 if there was none
    checkpointed_us: int = 0
    weighed_to: int = -1  # entries up to this version have been asked for their length
    weight: int = 0  # bytes of the entries after the checkpoint
    looked_to: int = -1  # entries up to this version have been asked whether they are a RESTORE
    restored: int = -1


_known: dict[str, _Known] = {}  # by Delta's table id
_last: dict[str, Maintained] = {}  # by location


def commit_hooks(*, on: bool = False) -> PostCommitHookProperties:
    """Whether delta-rs makes checkpoints of its own accord after a commit: not where maintenance does, within its budget."""
    from deltalake import PostCommitHookProperties

    return PostCommitHookProperties(create_checkpoint=on, cleanup_expired_logs=None if on else False)


def last_maintained(location: str) -> Maintained | None:
    """What maintenance did after this process's last commit to a table; None if it was not due."""
    return _last.get(location)


def maintain(
    target: SinkTarget,
    table: DeltaTable,
    clock_us: Callable[[], int] = now_us,
    compact: Callable[[DeltaTable], int] | None = None,
) -> Maintained | None:
    """Do what is due after a commit, within the budget. Never raises: the batch is in the table, and what fails here is tried again.

    Parameters
    ----------
    target, table
        The table, as it was before the commit, or later.
    clock_us
        The time.
    compact
        How small files are put together, if not bucket by bucket.

    Returns
    -------
    Maintained or None
        None if nothing was due, the options say that the table is left to itself, or somebody else has made it.
    """
    folder, done = target.folder, None
    try:
        configuration = table.metadata().configuration
        rules = target.options.maintenance_rules(configuration)
        if rules is not None and is_ours(configuration):
            began = time.monotonic()
            late = began + rules.budget_s
            upkeep = Upkeep(folder, table, rules, clock_us, compact=compact)
            if upkeep.due():
                done = upkeep.run()
            else:
                upkeep.shorten_log()
            version = table.version()
            by_bucket = compact is None
            if by_bucket and (went := compact_worst(target, table, lambda: time.monotonic() > late, clock_us)):
                done = done or Maintained(version)
                done.seconds = time.monotonic() - began
                done.compacted += went
        steps.reached(Step.COMPACTED)
    except Exception as error:  # noqa: BLE001 whatever it is, the batch is committed
        done = done or Maintained(table.version())
        done.failed = folder.masked(error).strip()[:500]
        _LOG.warning(
            "maintenance of the table at %s failed, and is tried again later: %s", folder.location, done.failed
        )
    _last.pop(folder.location, None)
    if done is not None:
        _last[folder.location] = done
    return done


class Upkeep:
    """Maintenance of one table.

    Parameters
    ----------
    folder, table
        The table, at any version.
    rules
        How much is kept.
    clock_us, seconds
        The time, and a clock that only measures.
    dry
        Only find out what would be done.
    compact
        How small files are put together, if not bucket by bucket; returns how many were.
    """

    def __init__(
        self,
        folder: TableFolder,
        table: DeltaTable,
        rules: MaintenanceRules,
        clock_us: Callable[[], int] = now_us,
        seconds: Callable[[], float] = time.monotonic,
        *,
        dry: bool = False,
        compact: Callable[[DeltaTable], int] | None = None,
    ) -> None:
        self._folder = folder
        self._table = table
        self._rules = rules
        self._clock_us = clock_us
        self._seconds = seconds
        self._dry = dry
        self._compact = compact or self._compact_a_bucket
        self._known = _known.setdefault(str(table.metadata().id), _Known())

    def due(self) -> bool:
        """Whether anything is, as far as the log's last checkpoint tells. Without looking at the log, most of the time."""
        version, now, known = self._table.version(), self._clock_us(), self._known
        if known.checkpoint is None or self._rules.due(version, known.checkpoint, known.checkpointed_us, now):
            # Another process may have made one.
            known.checkpoint, known.checkpointed_us = self._last_checkpoint() or (-1, now)
        return self._rules.due(version, known.checkpoint, known.checkpointed_us, now)

    def run(self, *, whole: bool = False) -> Maintained:
        """Do it all, as far as the time goes.

        Parameters
        ----------
        whole
            Look for files that no version names in all of the table's folders, not in the one whose turn it is.
        """
        begun = self._seconds()
        deadline = begun + self._rules.budget_s
        self._table.update_incremental()
        done = Maintained(self._table.version())
        log = self._log()
        done.oldest = oldest_promised(log.entries, self._rules, self._clock_us())
        if not self._dry:
            vectors = self._vectors(self._table.version())
            put_back(self._folder, (path for path in vectors if not path.startswith(COPIES)))
            self._set_properties(log, done)
            done.compacted = self._compact(self._table)
            self._make_checkpoint()
            done.checkpoint = True
            if whole:  # by hand, maybe of a table that rests: the checkpoint that was just made may be the base
                log = self._log()
        base = log.base(done.oldest)
        if base is None:
            done.oldest = min(log.entries)
        else:
            self._clear(log, base, done, deadline, whole=whole)
        done.seconds = self._seconds() - begun
        return done

    def shorten_log(self) -> None:
        """Make a checkpoint where readers have more to read since the last one than it takes. To be asked after :meth:`due`."""
        known, version = self._known, self._table.version()
        last = -1 if known.checkpoint is None else known.checkpoint
        if known.weighed_to < last:  # somebody else has made it
            known.weighed_to, known.weight = last, 0
        entries = [entry_place(each) for each in range(known.weighed_to + 1, version + 1)]
        known.weight += sum(self._folder.each(self._folder.size, entries))
        known.weighed_to = max(known.weighed_to, version)
        if checkpoint_pays(known.weight, 0) and checkpoint_pays(
            known.weight, self._folder.size(f"{_ENTRIES}{last:020d}.checkpoint.parquet")
        ):
            self._make_checkpoint()  # at this version: at a later one maintenance may be due, and would be passed over

    def _make_checkpoint(self) -> None:
        self._table.create_checkpoint()
        known, version = self._known, self._table.version()
        # Before entries that it stands for are removed.
        made = f"{version:020d}.checkpoint"
        self._folder.sync(
            _ENTRIES + name
            for name in self._folder.names(_ENTRIES)
            if name.startswith(made) or name == _LAST_CHECKPOINT
        )
        known.checkpoint, known.checkpointed_us = version, self._clock_us()
        known.weighed_to, known.weight = version, 0

    def _last_checkpoint(self) -> tuple[int, int] | None:
        for listed in self._folder.listing(_ENTRIES):
            if listed.name == _LAST_CHECKPOINT:
                return int(json.loads(self._folder.read(_ENTRIES + listed.name))["version"]), listed.modified_us
        return None

    def _log(self) -> LogFiles:
        return LogFiles.of(
            (each.name, each.modified_us) for each in self._folder.listing(_ENTRIES) if not each.is_folder
        )

    def _set_properties(self, log: LogFiles, done: Maintained) -> None:
        """Let the table itself say for how long what is removed can be read, as far as `retentionVersions` allows."""
        bound = done.oldest > min(log.entries) and done.oldest == max(log.entries) - self._rules.versions + 1
        kept_us = self._clock_us() - log.entries[done.oldest] if bound and done.oldest in log.entries else None
        recorded = self._table.metadata().configuration
        said_s = parse_interval_s(recorded.get(FILE_RETENTION))
        wanted = retention_properties(self._rules, interval_due(said_s, self._rules, kept_us) or said_s)
        if any(recorded.get(name) != value for name, value in wanted.items()):
            done.properties = self._record(wanted)

    def _record(self, properties: Mapping[str, str]) -> bool:
        """Whether the table says so now; if somebody else took the version, the next maintenance tries again."""
        if self._table.protocol().min_writer_version < 7:
            self._table.alter.set_table_properties(
                dict(properties),
                raise_if_not_exists=False,  # it does not know ours
                post_commithook_properties=commit_hooks(),
            )
            return True
        # To a table whose features are named delta-rs (1.6.6) adds one that nobody asked for, variantType, and readers without it are shut out.
        version, log = self._table.version(), LogReplay(self._folder)
        log.follow(version)
        changed = {**log.metadata, "configuration": {**log.metadata["configuration"], **properties}}
        info = {"operation": "SET TBLPROPERTIES", "engineInfo": "pyspark-upstream", "readVersion": version}
        committed = put_entry(self._folder, version + 1, info, [{"metaData": changed}])
        self._table.update_incremental()
        return committed

    def _clear(self, log: LogFiles, base: int, done: Maintained, deadline: float, *, whole: bool) -> None:
        """Remove what only versions before the base need."""
        from deltalake import DeltaTable

        if not self._look_for_restores(base, deadline):
            done.left = True
            return
        if self._known.restored > base:
            done.held = f"version {self._known.restored} is a RESTORE, so files that older entries call removed may be in use again"
            done.oldest = min(log.entries)
            return
        at_base = DeltaTable(self._folder.location, base, storage_options=dict(self._folder.storage) or None)
        kept = _paths(at_base) | _paths(self._table) | self._vectors(base) | self._vectors(self._table.version())
        doomed = log.before(base)
        for start in range(0, len(doomed), _CHUNK):
            if self._seconds() > deadline:
                done.left = True
                return
            self._clear_versions(doomed[start : start + _CHUNK], log, kept, done)
        self._clear_replaced_by(base, kept, done)
        edge = min(log.entries[base], self._clock_us() - self._rules.retention_us) - _UNNAMED_US
        partitions = sorted(each.name for each in self._folder.listing() if each.is_folder and "=" in each.name)
        units = ["", *partitions]
        for unit in units if whole else [units[self._table.version() // self._rules.every % len(units)]]:
            if self._seconds() > deadline:
                done.left = True
                return
            self._clear_orphans(unit, edge, kept, done)

    def _clear_versions(self, versions: list[int], log: LogFiles, kept: set[str], done: Maintained) -> None:
        there = [version for version in versions if version in log.entries]
        contents = self._folder.each(self._entry, there)
        gone = {path: size for content in contents for path, size in _out_of_use(content).items() if path not in kept}
        done.files += len(gone)
        done.bytes += sum(gone.values())
        done.entries += len(there)
        if not self._dry:
            self._folder.remove(gone)
            # Not before what they name is gone, and in their order: the log stays without a gap if this ends here.
            for version in versions:
                self._folder.remove(f"{_ENTRIES}{name}" for name in log.names[version])

    def _clear_replaced_by(self, base: int, kept: set[str], done: Maintained) -> None:
        """Remove what the base took out of use: a table that rests has no later entry with which it would go."""
        content = self._entry(base)
        gone = {path: size for path, size in _out_of_use(content, told=False).items() if path not in kept}
        gone = {path: size for path, size in gone.items() if self._folder.has(path)}
        done.files += len(gone)
        done.bytes += sum(gone.values())
        if not self._dry:
            self._folder.remove(gone)

    def _clear_orphans(self, unit: str, edge_us: int, kept: set[str], done: Maintained) -> None:
        """In one of the table's folders: what is older than all that is kept, and in none of it."""
        listed: dict[str, int] = {}
        folders = [unit, f"{DELETIONS}{unit}"] if unit else ["", VECTORS, COPIES]
        for folder in folders:
            listed |= _old_files(folder, self._folder.listing(folder), edge_us, (".parquet", ".bin"))
        if not unit:  # what a process has left that died while it put an entry
            listed |= _old_files(_ENTRIES.rstrip("/"), self._folder.listing(_ENTRIES), edge_us, (".tmp",))
        folder = f"{TOMBSTONES}{unit}"
        if buried := _old_files(folder.rstrip("/"), self._folder.listing(folder), edge_us, (".parquet", ".json")):
            remembered = TombstoneList.of(self._table, self._folder).held()
            listed |= {path: size for path, size in buried.items() if path not in remembered}
        gone = {path: size for path, size in listed.items() if path not in kept}
        done.orphans += len(gone)
        done.bytes += sum(gone.values())
        if not self._dry:
            self._folder.remove(gone)

    def _look_for_restores(self, base: int, deadline: float) -> bool:
        """Ask the entries after the base whether they brought back files of before; False if time ran out. A process asks each entry once."""
        known, last = self._known, self._table.version()
        for start in range(max(base, known.looked_to) + 1, last + 1, _CHUNK):
            if self._seconds() > deadline:
                return False
            versions = range(start, min(start + _CHUNK, last + 1))
            for version, content in zip(versions, self._folder.each(self._entry, versions), strict=True):
                if b'"operation":"RESTORE"' in content:
                    known.restored = version
            known.looked_to = versions[-1]
        return True

    def _vectors(self, version: int) -> set[str]:
        """The files of deletion vectors that a version has."""
        if "deletionVectors" not in (self._table.protocol().writer_features or ()):
            return set()
        log = LogReplay(self._folder)
        log.follow(version)
        paths = {vector.path for vector in log.vectors().values() if vector.path is not None}
        return paths | set(map(copy_of, paths))

    def _entry(self, version: int) -> bytes:
        try:
            return self._folder.read(f"{_ENTRIES}{version:020d}.json")
        except FileNotFoundError:
            return b""

    def _compact_a_bucket(self, table: DeltaTable) -> int:
        """Put the small files of one bucket together: the one with the most of them."""
        if "deletionVectors" in (table.protocol().writer_features or ()):
            return 0  # that is done after each commit
        small: dict[Any, list[int]] = {}
        live = LiveFiles.of(table)
        for bucket, size in zip(live.partition(BUCKET), live.sizes, strict=True):
            if size < _SMALL:
                small.setdefault(bucket, []).append(size)
        bucket = max(small, key=lambda each: len(small[each]), default=None)
        if bucket is None or len(small[bucket]) < _MANY:
            return 0
        from deltalake import WriterProperties
        from deltalake.exceptions import DeltaError

        # delta-rs refuses mapped tables, and text that is not UTF-8.
        if not is_mapped(table.metadata().configuration):
            properties = WriterProperties(compression="ZSTD")
            with contextlib.suppress(DeltaError):
                figures = table.optimize.compact(
                    [(BUCKET, "=", str(bucket))], target_size=_SMALL, writer_properties=properties
                )
                return int(figures["numFilesRemoved"])
            table.update_incremental()
        target = SinkTarget(SinkOptions(), self._folder.location, self._folder.storage, "")
        log = LogReplay(self._folder)
        went = compact_bucket(target, table, log, bucket, _SMALL, self._clock_us() // 1000)
        return went or 0  # if somebody else was faster there will be another time


def _out_of_use(content: bytes, *, told: bool = True) -> dict[str, int]:
    """The files that one entry took out of the table, or (`told`) named for followers alone, with their sizes as far as it says them."""
    removed: dict[str, int] = {}
    added: set[str] = set()
    for line in content.splitlines():
        action: dict[str, Any] = json.loads(line) if line.strip() else {}
        if remove := action.get("remove"):
            removed[unquote(remove["path"])] = remove.get("size") or 0
            if (vector := remove.get("deletionVector")) and (place := DeletionVector.from_json(vector).path):
                removed |= {place: 0, copy_of(place): 0}
        elif add := action.get("add"):
            added.add(unquote(add["path"]))
        elif told and (info := action.get("commitInfo")) and (delivered := Delivered.of_commit(info)):
            removed |= dict.fromkeys(delivered.deletions, 0)
    # One that was taken out and added by the same entry is still the table's, with other rows deleted. One of another folder is not ours.
    return {path: size for path, size in removed.items() if path not in added and _inside(path)}


def _inside(path: str) -> bool:
    return not path.startswith("/") and "://" not in path and ".." not in path.split("/")


def _old_files(folder: str, listed: Iterable[Listed], edge_us: int, endings: tuple[str, ...]) -> dict[str, int]:
    prefix = f"{folder}/" if folder else ""
    return {
        prefix + each.name: each.size
        for each in listed
        if not each.is_folder and each.modified_us < edge_us and each.name.endswith(endings)
    }


def _paths(table: DeltaTable) -> set[str]:
    return set(LiveFiles.of(table).paths)
