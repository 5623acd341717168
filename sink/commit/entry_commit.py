"""A commit that marks rows as dead, or takes single files away: its vectors, then its entry in the table's log."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...conf.errors import TableError
from ...delta_format.deletion_vectors import VECTORS, copy_of, pack_vectors
from ...delta_format.latest_table import BUCKET
from ..merge.held_rows import Replacement
from ..spec import steps
from ..spec.steps import Step
from ..table.files import DataFiles
from ..table.log_entry import (
    add_action,
    check_features,
    marked_actions,
    put_entry,
    removed_action,
    vector_protocol,
)
from ..table.table import replay_log

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from ..spec.options import SinkTarget

__all__ = ["EntryCommit"]

_CHECKPOINT_EVERY = 100


class EntryCommit:
    """Writes one entry of the log.

    Parameters
    ----------
    target, files
        The table and its data files.
    written_ms
        When the commit is made, in milliseconds since the epoch.
    """

    def __init__(self, target: SinkTarget, files: DataFiles, written_ms: int) -> None:
        self._target = target
        self._files = files
        self._written_ms = written_ms

    def commit(
        self,
        table: DeltaTable,
        replacements: Sequence[Replacement],
        numbers: Mapping[str, int],
        commit_info: Mapping[str, Any],
        made: list[str],
    ) -> bool:
        """Commit, and return True; return False if another writer has taken the version.

        Parameters
        ----------
        table
            The table at the version for which the replacements were computed.
        replacements
            The changes of the buckets.
        numbers
            The versions of transactions, by their application.
        commit_info
            The commit's record of itself.
        made
            Receives the path of the file of vectors, unless the table has it afterwards.

        Raises
        ------
        TableError
            The entry cannot be written, or the table has a feature by whose rules none is written here.
        """
        before = table.version()
        log = replay_log(self._target, table)
        check_features(log, self._target.location)
        marks = [mark for each in replacements for mark in each.marks]
        actions: list[dict[str, Any]] = []
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
                steps.reached(Step.MARKED)
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
            if not put_entry(self._target.folder, before + 1, info, actions):
                return False
        except OSError as error:
            raise TableError(
                f"version {before + 1} cannot be committed to the table at {self._target.location}: "
                f"{self._target.masked(error)}",
                hint="check that the folder may be written to and has room; the restarted query repeats the batch",
            ) from error
        if vectors is not None:
            made.remove(vectors)
            made.remove(copy_of(vectors))
        self._checkpoint(table, before + 1)
        return True

    def _checkpoint(self, table: DeltaTable, version: int) -> None:
        from deltalake.exceptions import DeltaError

        if (
            version % _CHECKPOINT_EVERY == 0 and self._target.options.maintenance == "off"
        ):  # else maintenance makes them
            # The commit is made whether this works or not; the log is only read more slowly without.
            with contextlib.suppress(DeltaError):
                table.update_incremental()
                table.create_checkpoint()
