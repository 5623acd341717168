"""A commit that marks rows as dead or removes single files: its deletion vectors, then its log entry."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...conf.errors import TableError
from ...delta_format.deletion_vectors import VECTORS, copy_of, pack_vectors
from ...delta_format.latest_table import BUCKET
from ..merge.engines import Replacement
from ..spec import steps
from ..spec.steps import CommitStep
from ..table.files import DataFiles
from ..table.log_entry import (
    add_action,
    check_features,
    marked_actions,
    put_entry,
    removed_action,
    vector_protocol,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from ...delta_format.log import LogReplay
    from ..spec.options import SinkTarget


Action = dict[str, Any]

_CHECKPOINT_EVERY = 100


class EntryCommit:
    """The writer of one log entry, made at `written_ms`, in milliseconds since the epoch."""

    def __init__(self, target: SinkTarget, files: DataFiles, written_ms: int) -> None:
        self._target = target
        self._files = files
        self._written_ms = written_ms

    def commit(
        self,
        log: LogReplay,
        replacements: Sequence[Replacement],
        numbers: Mapping[str, int],
        commit_info: Mapping[str, Any],
        made: list[str],
        first: Sequence[Action] = (),
    ) -> list[Action] | None:
        """Commit, and return the entry's actions; return None if another writer has taken the version.

        `log` is at the version for which the replacements were computed. `made` receives the paths of the vectors'
        files, unless the commit succeeds. `first` are actions that come first, such as those that create the table.
        """
        version = log.version + 1
        if version > 0:
            check_features(log, self._target.location)
        marks = [mark for each in replacements for mark in each.marks]
        actions: list[Action] = list(first)
        vectors: str | None = None
        try:
            if marks:
                vectors, content, descriptors = pack_vectors(
                    [(mark.vector, mark.cardinality) for mark in marks], VECTORS
                )
                for path in (copy_of(vectors), vectors):
                    made.append(path)
                    self._files.write(path, content)
                self._target.folder.sync([copy_of(vectors), vectors])
                steps.reached(CommitStep.MARKED)
                actions += vector_protocol(log)
                for mark, vector in zip(marks, descriptors, strict=True):
                    actions += marked_actions(log.files[mark.path], vector, mark.rows, self._written_ms)
            actions += [
                removed_action(log.files[path], self._written_ms) for each in replacements for path in each.replaced
            ]
            actions += [add_action(each.rows, self._written_ms) for each in replacements if each.rows is not None]
            actions += [{"txn": {"appId": name, "version": number}} for name, number in numbers.items()]
            info = {
                "operation": "WRITE",
                "operationParameters": {"mode": "Append", "partitionBy": f'["{BUCKET}"]'},
                **commit_info,
            }
            if not put_entry(self._target.folder, version, info, actions):
                return None
        except OSError as error:
            raise TableError(
                f"version {version} cannot be committed to the table at {self._target.location}: "
                f"{self._target.masked(error)}",
                hint="check that the folder may be written to and has room; the restarted query repeats the batch",
            ) from error
        if vectors is not None:
            made.remove(vectors)
            made.remove(copy_of(vectors))
        return actions

    def checkpoint(self, table: DeltaTable) -> None:
        """Write a checkpoint of the log after a commit, if one is due and maintenance is off."""
        from deltalake.exceptions import DeltaError

        version = table.version() + 1
        if (
            version % _CHECKPOINT_EVERY == 0 and self._target.options.maintenance == "off"
        ):  # else maintenance makes them
            # The commit is made whether this works or not; the log is only read more slowly without.
            with contextlib.suppress(DeltaError):
                table.update_incremental()
                table.create_checkpoint()
