"""A process's knowledge of a result table: its log, followed entry by entry, without delta-rs."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from ...conf.errors import TableError
from ...delta_format.column_mapping import field_ids, ids_of, is_mapped, last_id, needs_mapping
from ...delta_format.latest_table import BUCKET
from ...delta_format.log import LogReplay, entry_place, infos_to
from ..figures.summary import CommitSummary, summary_of
from ..table.table import Snapshot, entry_fingerprint
from ..table.tombstones import TombstoneList

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...delta_format.column_mapping import Ids
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
    def version(self) -> int:
        return self.log.version

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
        if self.version < 0:
            return Snapshot.empty()
        if self._snapshot is None or self._snapshot.version != self.log.version:
            self._snapshot = _snapshot(self.log)
        return self._snapshot

    def ids(self, schema: Any) -> Ids | None:
        """Return the column mapping ids of a schema's columns, present or new; None if they need none."""
        if self.version >= 0 and is_mapped(configuration := self.log.metadata["configuration"]):
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

    def transaction(self, application: str) -> int | None:
        return self.log.transactions.get(application)

    def last_summary(self, writer: str, near: int | None = None) -> CommitSummary | None:
        """Return a writer's last summary, if it is among the last few commits."""
        del near
        version, summary = self._last
        if version < 0 or version > self.version:
            found = (summary_of(entry) for entry in self.entries(_LOOK_BACK))
            summary = next((each for each in found if each is not None and each.query_id == writer), None)
            self._last = self.version, summary
        return summary

    def entries(self, count: int) -> list[dict[str, Any]]:
        return infos_to(self._target.folder, self.version, count)

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
