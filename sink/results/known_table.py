"""A process's knowledge of a result table: its log, followed entry by entry, without delta-rs."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...conf.errors import CheckpointError, TableError
from ...core.feedback.checkpoint_layout import SINK
from ...core.feedback.reports import read_values, write_value
from ...delta_format.column_mapping import field_ids, ids_of, is_mapped, last_id, needs_mapping
from ...delta_format.latest_table import BUCKET, METADATA_KEY, CommitChanges, recorded_under
from ...delta_format.log import LogReplay, commit_info, entry_place
from ..commit.last_commit import restored_over
from ..figures.summary import CommitSummary
from ..table.table import Snapshot, entry_fingerprint
from ..table.tombstones import TombstoneList

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...delta_format.column_mapping import Ids
    from ...storage.folder import TableFolder
    from ..spec.layout import Layout
    from ..spec.options import SinkTarget


_LOG = "_delta_log"
_VERSION = re.compile(r"(\d{20})\.(json|checkpoint(?:\.\d{10}\.\d{10})?\.parquet)")
# Our own commits follow each other; others may have come after the last one.
_LOOK_BACK = 8


class KnownTable:
    """A result table and its log, as far as this process has followed it.

    A batch may commit to a thousand small tables, and delta-rs takes up to 30 ms to load one. Here two looks at
    the folder prove that no other process has committed. The log's version is -1 if there is no table.
    `maintained` is the version at which the table was last maintained; -1 if it is unknown.
    """

    def __init__(self, target: SinkTarget) -> None:
        self._target = target
        self._last_entry: Any = None
        self._snapshot: Snapshot | None = None
        self._last: tuple[int, CommitSummary | None] = (-1, None)
        self._fits: tuple[Layout, Mapping[str, Any]] | None = None
        self.log = LogReplay(target.folder)
        self.maintained = -1

    @property
    def exists(self) -> bool:
        return self.log.version >= 0

    @property
    def table_id(self) -> str:
        """Return the id in the table's metadata; empty without a table."""
        return str(self.log.metadata.get("id", ""))

    def refresh(self) -> None:
        """Follow the log to its latest version; raise a TableError if it has a gap or a damaged entry."""
        version = self.log.version
        if version < 0 or entry_fingerprint(self._target, version) != self._last_entry:
            self._load()
            return
        folder = self._target.folder
        while folder.has(entry_place(version + 1)):
            version += 1
        if version > self.log.version:
            try:
                self.log.follow(version)
            except TableError:  # it has been shortened meanwhile
                self._load()
                return
            self._last_entry = entry_fingerprint(self._target, version)

    def advance(self, actions: list[dict[str, Any]], summary: CommitSummary) -> None:
        """Follow a commit that this process has just made."""
        self.log.advance(actions)
        self._last_entry = entry_fingerprint(self._target, self.log.version)
        self._last = self.log.version, summary

    def snapshot(self) -> Snapshot:
        """Return the table's files at the version followed."""
        if not self.exists:
            return Snapshot.empty()
        if self._snapshot is None or self._snapshot.version != self.log.version:
            self._snapshot = _snapshot(self.log)
        return self._snapshot

    def ids(self, schema: Any) -> Ids | None:
        """Return the column mapping ids of a schema's columns, present or new; None if they need none."""
        if self.exists and is_mapped(configuration := self.log.metadata["configuration"]):
            return field_ids(schema, ids_of(json.loads(self.log.metadata["schemaString"])), last_id(configuration))
        return field_ids(schema) if needs_mapping(schema) else None

    def check_once(self, layout: Layout, location: str) -> None:
        """Refuse a table that no longer fits a layout, as :meth:`.Layout.check_metadata` does.

        A result is reused until the log has new metadata.
        """
        metadata = self.log.metadata
        if self._fits is None or self._fits[0] is not layout or self._fits[1] is not metadata:
            layout.check_metadata(metadata, location)
            self._fits = layout, metadata

    def last_summary(self, writer: str) -> CommitSummary | None:
        """Return a writer's last summary, if it is among the last few commits."""
        version, summary = self._last
        if version < 0 or version > self.log.version:
            summary = self._find_summary(writer)
            self._last = self.log.version, summary
        return summary

    def entries_after(self, version: int) -> list[dict[str, Any]]:
        """Return the `commitInfo` and `version` of each later version that the log still has, newest first."""
        found: list[dict[str, Any]] = []
        for each in range(self.log.version, version, -1):
            try:
                info = commit_info(self._target.folder, each)
            except FileNotFoundError:
                break
            found += [] if info is None else [{**info, "version": each}]
        return found

    def named_beside(self, commits: int) -> set[str]:
        """Return the files of deletions that the last commits name for followers."""
        entries = self.entries_after(max(self.log.version - commits, -1))
        delivered = [CommitChanges.of_commit(entry) for entry in entries]
        return {path for each in delivered if each is not None for path in each.deletions}

    def _find_summary(self, writer: str) -> CommitSummary | None:
        for info in self.entries_after(max(self.log.version - _LOOK_BACK, -1)):
            recorded = recorded_under(METADATA_KEY, info)
            if recorded is not None and recorded.get("query_id") == writer:
                return CommitSummary.from_json(recorded)
        return None

    def _load(self) -> None:
        self.log = LogReplay(self._target.folder)
        self._last_entry, self._snapshot, self._last = None, None, (-1, None)
        found = [match for name in self._target.folder.names(_LOG) if (match := _VERSION.fullmatch(name))]
        self.maintained = max((int(match.group(1)) for match in found if match.group(2) != "json"), default=-1)
        if found:
            self.log.follow(max(int(match.group(1)) for match in found))
            self._last_entry = entry_fingerprint(self._target, self.log.version)


# A job with more tables reads their logs again, time after time.
_MOST = 20_000

_Place = tuple[str, tuple[tuple[str, str], ...]]
_known: dict[_Place, KnownTable] = {}


def known_table(target: SinkTarget) -> KnownTable:
    """Return this process's one object for a table, which one thread at a time may use."""
    place = target.location, tuple(sorted(target.storage.items()))
    found = _known.get(place)
    if found is None:
        found = _known[place] = KnownTable(target)
        while len(_known) > _MOST:  # those of queries that were dropped, as a rule
            _known.pop(next(iter(_known)), None)
    return found


def _snapshot(log: LogReplay) -> Snapshot:
    found: dict[int, list[str]] = {}
    rows: dict[str, int | None] = {}
    for path, add in log.files.items():
        found.setdefault(int(add["partitionValues"][BUCKET]), []).append(path)
        rows[path] = json.loads(add.get("stats") or "{}").get("numRecords")
    files = {bucket: tuple(sorted(paths)) for bucket, paths in found.items()}
    return Snapshot(log.version, files, rows, TombstoneList(), log.vectors())


_NAME = "result-tables.json"


@dataclasses.dataclass(frozen=True)
class Begun:
    """The last commit to a table that the checkpoint remembers.

    A query sends its table only changes. Without this check, a deleted table would be made with these alone,
    and a restored one would lack some.
    """

    query_id: int  # the incarnation that made the commit
    table_id: str  # the id in the table's metadata
    version: int  # the version of that commit, or a later one
    batch_id: int

    def fields(self) -> tuple[int, str, int, int]:
        return self.query_id, self.table_id, self.version, self.batch_id

    def check(self, known: KnownTable, location: str, recorded: int | None, writer: str, name: str) -> None:
        """Refuse a table that lost commits of the query: it is gone, another one, or was restored.

        `recorded` is the query's last batch by the table's transactions, and `writer` its name in them.
        """
        if not known.exists:
            raise self._lost(f"there is no table at {location} any more", name)
        if known.table_id != self.table_id:
            raise self._lost(f"the table at {location} is another one than the query {name!r} has written", name)
        if known.log.version < self.version or recorded is None or recorded < self.batch_id:
            raise self._lost(
                f"the table at {location}, at version {known.log.version}, does not hold the last commit of the query "
                f"{name!r}",
                name,
            )
        if known.log.version > self.version:
            restored = restored_over(known.entries_after(self.version), self.version, writer)
            if restored is not None:
                raise self._lost(
                    f"version {restored} of the table at {location} has restored it to an earlier one, without commits "
                    f"of the query {name!r}",
                    name,
                )

    def _lost(self, problem: str, name: str) -> TableError:
        return TableError(
            problem,
            expected=f"the table {self.table_id} with what the query committed up to batch {self.batch_id}: it sends "
            "its table only what changes",
            hint=f"put the table back as it was; or let the query start over: deactivate {name}, then activate it",
        )


def read_begun(checkpoint: TableFolder) -> dict[str, Begun]:
    """Return the checkpoint's memory of each query's table, by the query's name."""
    try:
        values = read_values(checkpoint.below(SINK), _NAME)
        return {name: Begun(*fields) for name, fields in values[0].items()} if values else {}
    except (OSError, ValueError, TypeError, pa.ArrowException) as error:
        raise _unusable(checkpoint, error) from error


def write_begun(checkpoint: TableFolder, begun: Mapping[str, Begun]) -> None:
    """Write the last commit to each query's table to the checkpoint."""
    try:
        write_value(checkpoint.below(SINK), _NAME, {name: each.fields() for name, each in begun.items()})
    except (OSError, pa.ArrowException) as error:
        raise _unusable(checkpoint, error) from error


def _unusable(checkpoint: TableFolder, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"what the checkpoint remembers of result tables cannot be kept in {checkpoint.location}/{SINK}: "
        f"{checkpoint.masked(error)}",
        expected=f"a folder that can be read and written beside the driver, with {_NAME} as the sink wrote it",
        hint="check that the disk has room and the folder may be written to; the restarted query repeats the batch",
    )
