"""The removal of files and log entries that no retained version references."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ...conf.progress import tracked
from ...delta_format.deletion_vectors import COPIES, VECTORS, DeletionVector, copy_of
from ...delta_format.latest_table import CommitChanges
from ...delta_format.log import LiveFiles, LogReplay, entry_place
from ...storage.folder import FolderEntry, TableFolder, is_inside
from ..spec.maintenance_rules import LogFiles, MaintenanceResult, MaintenanceRules
from ..table.contents import is_own
from ..table.tombstones import DELETIONS, TombstoneList
from ..table.tombstones import FOLDER as TOMBSTONES

if TYPE_CHECKING:
    from deltalake import DeltaTable


_ENTRIES = "_delta_log/"
# So many entries are read and removed from one look at the time to the next.
_CHUNK = 32
# A file that no version names may be of a batch that is still under way, whatever the retention.
_UNNAMED_US = 86_400_000_000


@dataclasses.dataclass
class Restores:
    """A process's memory of a table's RESTOREs, to read their entries only once."""

    looked_to: int = -1  # entries up to this version have been asked
    version: int = -1  # of the last one


class Removal:
    """The removal of old files and log entries from one table, at its latest version.

    The log's oldest entries name the files that became obsolete first. A file is removed before the entry that
    names it, so the work may end anywhere. It ends when `late` returns True; `dry` only counts.
    """

    def __init__(
        self,
        folder: TableFolder,
        table: DeltaTable,
        rules: MaintenanceRules,
        restores: Restores,
        clock_us: Callable[[], int],
        late: Callable[[], bool],
        *,
        dry: bool,
    ) -> None:
        self._folder = folder
        self._table = table
        self._rules = rules
        self._restores = restores
        self._clock_us = clock_us
        self._late = late
        self._dry = dry

    def run(self, log: LogFiles, base: int, done: MaintenanceResult, *, whole: bool) -> None:
        """Remove the files that only versions before the base need, as far as the time allows; record it in `done`.

        Everything from the checkpoint of version `base` on stays. With `whole`, look for orphans in all of the
        table's folders, not only in the one whose turn it is.
        """
        from deltalake import DeltaTable

        if not self._look_for_restores(base):
            done.left = True
            return
        if self._restores.version > base:
            done.held = (
                f"version {self._restores.version} is a RESTORE, so files that older entries call removed may be in "
                "use again"
            )
            done.oldest = min(log.entries)
            return
        at_base = DeltaTable(self._folder.location, base, storage_options=dict(self._folder.storage) or None)
        kept = set(LiveFiles.of(at_base).paths) | set(LiveFiles.of(self._table).paths)
        for version in (base, self._table.version()):
            kept |= vector_files(self._folder, self._table, version)
        doomed = log.before(base)
        for start in tracked(range(0, len(doomed), _CHUNK), "parts of the log"):
            if self._late():
                done.left = True
                return
            self._clear_versions(doomed[start : start + _CHUNK], log, kept, done)
        self._clear_replaced_by(base, kept, done)
        edge = min(log.entries[base], self._clock_us() - self._rules.retention_us) - _UNNAMED_US
        partitions = sorted(each.name for each in self._folder.listing() if each.is_folder and "=" in each.name)
        units = ["", *partitions]
        chosen = units if whole else [units[self._table.version() // self._rules.every % len(units)]]
        for unit in tracked(chosen, "folders"):
            if self._late():
                done.left = True
                return
            self._clear_orphans(unit, edge, kept, done)

    def _clear_versions(self, versions: list[int], log: LogFiles, kept: set[str], done: MaintenanceResult) -> None:
        there = [version for version in versions if version in log.entries]
        contents = self._folder.each(self._entry, there)
        gone = {path: size for content in contents for path, size in _out_of_use(content).items() if path not in kept}
        done.files += self._remove(gone, done)
        done.entries += len(there)
        if not self._dry:
            # Not before what they name is gone, and in their order: the log stays without a gap if this ends here.
            for version in versions:
                self._folder.remove(f"{_ENTRIES}{name}" for name in log.names[version])

    def _clear_replaced_by(self, base: int, kept: set[str], done: MaintenanceResult) -> None:
        """Remove the files that the base itself made obsolete: an idle table has no later entry for them."""
        content = self._entry(base)
        gone = {path: size for path, size in _out_of_use(content, for_followers=False).items() if path not in kept}
        gone = {path: size for path, size in gone.items() if self._folder.has(path)}
        done.files += self._remove(gone, done)

    def _clear_orphans(self, unit: str, edge_us: int, kept: set[str], done: MaintenanceResult) -> None:
        """Remove our own files in a folder of the table that are older than all retained versions and in none."""
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
        gone = {path: size for path, size in listed.items() if path not in kept and is_own(path)}
        done.orphans += self._remove(gone, done)

    def _look_for_restores(self, base: int) -> bool:
        """Look for RESTOREs in the entries after the base; return False if time ran out."""
        known, last = self._restores, self._table.version()
        for start in range(max(base, known.looked_to) + 1, last + 1, _CHUNK):
            if self._late():
                return False
            versions = range(start, min(start + _CHUNK, last + 1))
            for version, content in zip(versions, self._folder.each(self._entry, versions), strict=True):
                if b'"operation":"RESTORE"' in content:
                    known.version = version
            known.looked_to = versions[-1]
        return True

    def _remove(self, gone: dict[str, int], done: MaintenanceResult) -> int:
        done.bytes += sum(gone.values())
        if not self._dry:
            self._folder.remove(gone)
        return len(gone)

    def _entry(self, version: int) -> bytes:
        try:
            return self._folder.read(entry_place(version))
        except FileNotFoundError:
            return b""


def vector_files(folder: TableFolder, table: DeltaTable, version: int) -> set[str]:
    """Return the deletion vector files of a table's version, and their copies."""
    if "deletionVectors" not in (table.protocol().writer_features or ()):
        return set()
    log = LogReplay(folder)
    log.follow(version)
    paths = {vector.path for vector in log.vectors().values() if vector.path is not None}
    return paths | set(map(copy_of, paths))


def _out_of_use(content: bytes, *, for_followers: bool = True) -> dict[str, int]:
    """Return the files that one entry removed from the table, with their sizes, or 0 if the entry has none.

    With `for_followers`, also return the files that the entry named for followers alone.
    """
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
        elif for_followers and (info := action.get("commitInfo")) and (applied := CommitChanges.of_commit(info)):
            removed |= dict.fromkeys(applied.deletions, 0)
    # One that was taken out and added by the same entry is still the table's, with other rows deleted. One of another
    # folder is not ours.
    return {path: size for path, size in removed.items() if path not in added and is_inside(path)}


def _old_files(folder: str, listed: Iterable[FolderEntry], edge_us: int, endings: tuple[str, ...]) -> dict[str, int]:
    prefix = f"{folder}/" if folder else ""
    return {
        prefix + each.name: each.size
        for each in listed
        if not each.is_folder and each.modified_us < edge_us and each.name.endswith(endings)
    }
