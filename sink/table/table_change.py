"""One commit by our own log entry, with its files removed if it is not made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, final

from ...conf.clock import now_us
from .log_entry import add_action, check_features, put_entry, removed_action
from .table import remove_unnamed, replay_log

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from ...delta_format.log import LogReplay
    from ..spec.options import SinkTarget
    from .files import DataFiles, StagedFile

__all__ = ["TableChange"]


@final
class TableChange:
    """A change of the table and its commit, for use in a ``with`` statement.

    A process that dies leaves the table as it was, and files that ``upstream maintain`` removes. `changed` is
    False if rows only move to other files. `version` is the one that the commit makes. A table with features
    whose rules our entries do not follow is a TableError.
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
        """Replace some files by others, and return the number of rows in the new ones.

        Each file is written as the iterable yields it; None is a file without rows.
        """
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
        """Commit the change; return False if another writer has taken the version.

        A property that is None is removed; `numbers` are transaction versions by application.
        """
        actions = list(self._actions)
        if properties:
            configuration = {**self._log.metadata["configuration"], **properties}
            configuration = {name: value for name, value in configuration.items() if value is not None}
            actions.insert(0, {"metaData": {**self._log.metadata, "configuration": configuration}})
        actions += [{"txn": {"appId": name, "version": number}} for name, number in (numbers or {}).items()]
        info = {"operation": operation, **(commit_info or {})}
        self._committed = put_entry(self._target.folder, self.version, info, actions)
        return self._committed
