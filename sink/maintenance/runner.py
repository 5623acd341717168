"""Maintenance of a table: after a commit within a budget of time, or by command."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...conf.errors import TableError
from ...conf.locations import absolute_location
from ...conf.units import now_us
from ...delta_format.column_mapping import is_mapped
from ...delta_format.deletion_vectors import COPIES, put_back
from ...delta_format.latest_table import BUCKET
from ...delta_format.log import LiveFiles, LogReplay, entry_place
from ...delta_format.scan import open_table
from ...storage.folder import TableFolder
from ..spec import steps
from ..spec.maintenance_rules import (
    FILE_RETENTION,
    LogFiles,
    MaintenanceResult,
    MaintenanceRules,
    checkpoint_pays,
    interval_due,
    is_ours,
    oldest_promised,
    parse_interval_s,
    retention_properties,
)
from ..spec.options import SinkOptions, SinkTarget
from ..spec.steps import CommitStep
from ..table.log_entry import commit_stamp, put_entry
from .compact import compact_bucket, compact_table, compact_worst
from .removal import Removal, Restores, vector_files

if TYPE_CHECKING:
    from deltalake import DeltaTable, PostCommitHookProperties


_LOG = logging.getLogger("upstream.maintenance")

_ENTRIES = "_delta_log/"
_LAST_CHECKPOINT = "_last_checkpoint"

# A bucket with so many files of less than that is read faster as one.
_MANY, _SMALL = 8, 16 << 20


@dataclasses.dataclass
class _Known:
    """A process's memory of a table, to avoid a look-up after each commit."""

    checkpoint: int | None = None  # the version of the last one; -1 if there was none
    checkpointed_us: int = 0
    weighed_to: int = -1  # entries up to this version have been asked for their length
    weight: int = 0  # bytes of the entries after the checkpoint
    restores: Restores = dataclasses.field(default_factory=Restores)


_known: dict[str, _Known] = {}  # by Delta's table id
_last: dict[str, MaintenanceResult] = {}  # by location


def commit_hooks(*, on: bool = False) -> PostCommitHookProperties:
    """Return delta-rs' properties for after a commit: checkpoints only if `on`, as maintenance makes them too."""
    from deltalake import PostCommitHookProperties

    return PostCommitHookProperties(create_checkpoint=on, cleanup_expired_logs=None if on else False)


def last_maintained(location: str) -> MaintenanceResult | None:
    """Return the maintenance after this process's last commit to a table; None if it was not due."""
    return _last.get(location)


def maintain(
    target: SinkTarget,
    table: DeltaTable,
    clock_us: Callable[[], int] = now_us,
    compact: Callable[[DeltaTable], int] | None = None,
    *,
    due: bool = False,
) -> MaintenanceResult | None:
    """Do the maintenance that is due after a commit, or in any case if `due`, within the budget.

    It never raises: the batch is in the table, and failed steps are tried again. It returns None if nothing was
    due, maintenance is off, or another program has made the table. `compact` replaces compaction by bucket.
    """
    folder, done = target.folder, None
    try:
        configuration = table.metadata().configuration
        rules = target.options.maintenance_rules(configuration)
        if rules is not None and is_ours(configuration):
            began = time.monotonic()
            late = began + rules.budget_s
            upkeep = TableMaintenance(folder, table, rules, clock_us, compact=compact)
            if due or upkeep.due():
                done = upkeep.run()
            else:
                upkeep.shorten_log()
            version = table.version()
            by_bucket = compact is None
            if by_bucket and (went := compact_worst(target, table, lambda: time.monotonic() > late, clock_us)):
                done = done or MaintenanceResult(version)
                done.seconds = time.monotonic() - began
                done.compacted += went
        steps.reached(CommitStep.COMPACTED)
    except Exception as error:  # noqa: BLE001 whatever it is, the batch is committed
        done = done or MaintenanceResult(table.version())
        done.failed = folder.masked(error).strip()[:500]
        _LOG.warning(
            "maintenance of the table at %s failed, and is tried again later: %s", folder.location, done.failed
        )
    _last.pop(folder.location, None)
    if done is not None:
        _last[folder.location] = done
    return done


class TableMaintenance:
    """Maintenance of one table.

    Only the log determines the work, so it may end between any two steps. Its cost follows the changes, not the table's
    size: no data folder is listed, except one partition each time for orphans. `dry` only counts. `compact` replaces
    compaction by bucket and returns the number of files replaced.
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
        """Return True if maintenance is due, by the log's last checkpoint; most calls do not read the log."""
        version, now, known = self._table.version(), self._clock_us(), self._known
        if known.checkpoint is None or self._rules.due(version, known.checkpoint, known.checkpointed_us, now):
            # Another process may have made one.
            known.checkpoint, known.checkpointed_us = self._last_checkpoint() or (-1, now)
        return self._rules.due(version, known.checkpoint, known.checkpointed_us, now)

    def run(self, *, whole: bool = False) -> MaintenanceResult:
        """Do all maintenance, as far as the time allows; with `whole`, look for orphans in all folders."""
        begun = self._seconds()
        deadline = begun + self._rules.budget_s
        self._table.update_incremental()
        done = MaintenanceResult(self._table.version())
        log = self._log()
        done.oldest = oldest_promised(log.entries, self._rules, self._clock_us())
        if not self._dry:
            vectors = vector_files(self._folder, self._table, self._table.version())
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
            given = self._folder, self._table, self._rules, self._known.restores, self._clock_us
            removal = Removal(*given, lambda: self._seconds() > deadline, dry=self._dry)
            removal.run(log, base, done, whole=whole)
        done.seconds = self._seconds() - begun
        return done

    def shorten_log(self) -> None:
        """Make a checkpoint if it costs less than reading the log since the last one. Call it after :meth:`due`."""
        known, version = self._known, self._table.version()
        last = -1 if known.checkpoint is None else known.checkpoint
        if known.weighed_to < last:  # another program has made it
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

    def _set_properties(self, log: LogFiles, done: MaintenanceResult) -> None:
        """Record in the table how long removed files can be read, as far as `retentionVersions` allows."""
        bound = done.oldest > min(log.entries) and done.oldest == max(log.entries) - self._rules.versions + 1
        kept_us = self._clock_us() - log.entries[done.oldest] if bound and done.oldest in log.entries else None
        recorded = self._table.metadata().configuration
        said_s = parse_interval_s(recorded.get(FILE_RETENTION))
        wanted = retention_properties(self._rules, interval_due(said_s, self._rules, kept_us) or said_s)
        if any(recorded.get(name) != value for name, value in wanted.items()):
            done.properties = self._record(wanted)

    def _record(self, properties: Mapping[str, str]) -> bool:
        """Record properties; return False if another writer took the version: the next run tries again."""
        if self._table.protocol().min_writer_version < 7:
            self._table.alter.set_table_properties(
                dict(properties),
                raise_if_not_exists=False,  # it does not know ours
                post_commithook_properties=commit_hooks(),
            )
            return True
        # To a table whose features are named delta-rs (1.6.6) adds one that nobody asked for, variantType, and readers
        # without it are shut out.
        version, log = self._table.version(), LogReplay(self._folder)
        log.follow(version)
        changed = {**log.metadata, "configuration": {**log.metadata["configuration"], **properties}}
        info = {"operation": "SET TBLPROPERTIES", **commit_stamp(log, self._folder)}
        committed = put_entry(self._folder, version + 1, info, [{"metaData": changed}])
        self._table.update_incremental()
        return committed

    def _compact_a_bucket(self, table: DeltaTable) -> int:
        """Merge the small files of the bucket that has the most of them; return the number of files replaced."""
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
        return went or 0  # if another program was faster there will be another time


def maintain_table(
    path: str,
    *,
    storage: Mapping[str, str] | None = None,
    retention_us: int | None = None,
    versions: int | None = None,
    dry_run: bool = False,
    compact: bool = False,
) -> MaintenanceResult:
    """Maintain a table; see :meth:`~upstream.LatestTable.maintain` and :meth:`~upstream.LatestTable.compact`."""
    from deltalake.exceptions import DeltaError

    folder = TableFolder(absolute_location(path), storage or {})
    table = open_table(path, storage)
    try:
        configuration = table.metadata().configuration
        if not is_ours(configuration):
            raise TableError(
                f"the Delta table in {path} was not made by this package, and may have other guarantees",
                expected="a table that write_latest or write_batch has made",
                hint="use Delta's VACUUM",
            )
        rules = MaintenanceRules.of_table(configuration, retention_us, versions, math.inf)
        target = SinkTarget(SinkOptions(), folder.location, dict(folder.storage), "")
        written_again = functools.partial(compact_table, target) if compact else _leave
        return TableMaintenance(folder, table, rules, dry=dry_run, compact=written_again).run(whole=True)
    except (DeltaError, OSError) as error:
        said = folder.masked(error).strip().splitlines()[0]
        raise TableError(
            f"the table in {path} cannot be maintained: {said}",
            expected="a table that can be read and written from here",
        ) from error


def _leave(table: object) -> int:
    del table
    return 0
