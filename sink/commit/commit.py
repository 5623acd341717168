"""One Delta commit for a batch, made once wherever a process dies between its steps."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...conf.errors import TableError
from ...conf.units import now_us
from ...delta_format.latest_table import BUCKET, DELIVERED_KEY, METADATA_KEY, CommitChanges
from ...delta_format.log import commit_infos
from ..figures.summary import HISTORY_KEY, CommitSummary, history_note, last_summary
from ..maintenance.runner import commit_hooks, maintain
from ..merge.bucket import BucketMerger
from ..merge.outputs import OUTPUTS_KEY, Outputs, files_named
from ..merge.task import TaskResult
from ..spec import steps
from ..spec.layout import Layout
from ..spec.options import SinkTarget
from ..spec.steps import CommitStep
from ..table.files import DataFiles
from ..table.log_entry import may_put_entries
from ..table.table import create_table, load_table, replay_log, take_snapshot
from ..table.tombstones import APP_ID
from .account import MergeResults, summarise
from .arrival_order import RowNumberOffset
from .batch_identity import BatchIdentity
from .entry_commit import EntryCommit
from .last_commit import LastCommit, last_remembered, writer_id
from .merged_base import MergedBase

if TYPE_CHECKING:
    from deltalake import DeltaTable


# Others may commit at the same moment without touching what this commit replaces; each time it looks again.
_TRIES = 8


class BatchCommit:
    """The commit of a batch's results.

    Staged files become visible by the commit alone. It also records the writer's batch number, the tombstone
    list's number and the low-watermarks. If a process dies before the step `COMMITTED`, only orphaned files
    remain, which VACUUM removes (small tombstone files stay). If it dies after that step, the repeated batch is
    recognised before `NEW`.
    """

    def __init__(
        self,
        target: SinkTarget,
        layout: Layout,
        files: DataFiles,
        merger: BucketMerger,
        clock_us: Callable[[], int] = now_us,
    ) -> None:
        self._outputs = Outputs(target, layout, layout.arrow_schema())
        self._base = MergedBase(target, layout, merger, self._outputs)
        self._target = target
        self._layout = layout
        self._files = files
        self._clock_us = clock_us

    def commit(self, results: Sequence[TaskResult], batch_id: int) -> CommitSummary | None:
        """Make the batch visible; return None if it was empty or is a repeat.

        It is a TableError if others have changed the files that this batch replaces, or if the table lacks commits of
        this query or has unknown ones.
        """
        made: list[
            str
        ] = []  # files to be removed at the end, unless the table names them then: written here, or replaced
        try:
            query_id = writer_id(self._target)
            last = last_remembered(self._target)
            table = load_table(self._target)
            if table is None and last is None:
                if not any(result.rows or result.bounds for result in results):
                    # Nothing happened, and nothing is recorded: if the batch is repeated, that repeats nothing.
                    return None
                table = create_table(self._target, self._layout)
            steps.reached(CommitStep.LOOKED)
            summary = self._commit_to(table, last, results, batch_id, query_id, made)
        except BaseException:
            with contextlib.suppress(Exception):  # what failed matters more than what is left lying about
                self.discard(results, made)
            raise
        if summary is not None and table is not None:
            maintain(self._target, table, self._clock_us)  # after the commit, so that no row waits for it
        steps.reached(CommitStep.MAINTAINED)
        return summary

    def _commit_to(
        self,
        table: DeltaTable | None,
        last: LastCommit | None,
        results: Sequence[TaskResult],
        batch_id: int,
        query_id: str,
        made: list[str],
    ) -> CommitSummary | None:
        identity = BatchIdentity.of(self._target, query_id, batch_id, self._layout.described())
        merged = MergeResults.of(results)
        for _ in range(_TRIES):
            recorded = identity.recorded(table)
            if last is not None:
                last.check(table, self._target.location, recorded, query_id)
            if table is None:
                break
            # A batch that is in the table already changes nothing.
            if identity.repeats(table, recorded):
                self.discard(results, made)
                self._remember(table, table.version(), batch_id)
                return None
            steps.reached(CommitStep.NEW)
            self._layout.check_recorded(table, self._target.location)  # another keep leaves the files as they are
            # The rows that the tasks merged with must still be what the table holds.
            snapshot = take_snapshot(table, self._files, self._target)
            self._base.check(results, snapshot)
            numbering = RowNumberOffset.of(self._target, query_id, table, snapshot, self._files)
            numbered = numbering.transactions(self._target, table, snapshot, self._files, results)
            steps.reached(CommitStep.CHECKED)
            # Buckets that came in several tasks, or lie in other files by now, are merged once more.
            merged = self._base.merge_again(merged, snapshot, made)
            steps.reached(CommitStep.MERGED_AGAIN)
            before = last_summary(table, query_id, near=None if last is None else last.version)
            summary = summarise(identity, results, merged, snapshot, before, self._clock_us)
            if summary is None:
                return None
            # Which files the tombstones are in from now on. Without a time column none has to be kept.
            buried = merged.tombstones if self._layout.order else []
            deletions = snapshot.tombstones.replaced(buried)
            deletions.write(self._files, snapshot.tombstones, made.append)
            steps.reached(CommitStep.LISTED)
            # All or nothing, and only on top of the very version that was checked.
            made += deletions.held() | snapshot.tombstones.held()
            # Files that the entry itself names are put on the disk with it; those that tasks wrote are there.
            self._target.folder.sync({file.path for file in merged.deletions} | deletions.held())
            # The list's number in every commit, also when it stays or is 0: it is then found in the latest one, not
            # after all of them.
            numbers = {APP_ID: deletions.number} | numbered | identity.transactions()
            commit_info: dict[str, Any] = {METADATA_KEY: summary.to_json(), HISTORY_KEY: history_note(summary)}
            commit_info[DELIVERED_KEY] = merged.delivered(summary).to_json()
            if files := self._outputs.named(merged.side_rows):
                commit_info[OUTPUTS_KEY] = files
            # What is loaded is shared by all that this process writes to the table, and may have moved on.
            same = table.version() == snapshot.version
            if same and self._transact(table, _Commit(merged, summary, numbers, commit_info), made):
                steps.reached(CommitStep.COMMITTED)
                # What is needed no more. Of the rows' earlier files readers of earlier versions make use.
                needed = {file.path for file in [*merged.rows, *merged.deletions]} | deletions.held()
                staged = [file.path for result in results for file in result.staged]
                self._files.remove({*staged, *made} - needed)
                steps.reached(CommitStep.CLEARED)
                self._remember(table, snapshot.version + 1, batch_id)
                return summary
            table = load_table(self._target)
        raise TableError(
            f"others kept committing to the table at {self._target.location}, or removed it, while batch {batch_id} "
            "was to be committed",
            expected="one query writing to the table at a time",
            hint="stop the other writer and restart this query; it repeats the batch",
        )

    def _remember(self, table: DeltaTable, version: int, batch_id: int) -> None:
        if self._target.application is None:
            LastCommit(str(table.metadata().id), version, batch_id).remember(self._target.checkpoint_folder)
        steps.reached(CommitStep.REMEMBERED)

    def discard(self, results: Iterable[TaskResult], made: Iterable[str] = ()) -> None:
        """Remove the files that an attempt wrote or replaced, except those that the table holds.

        The commit may have been made although it seemed to fail.
        """
        staged = [file.path for result in results for file in result.staged]
        table = load_table(self._target)
        held: set[str] = set()
        if table is not None:
            snapshot = take_snapshot(table, self._files, self._target)
            held = snapshot.named() | _named_beside(table)
        for result in results:
            self._outputs.discard(result.side_rows, held)
        self._files.remove({*staged, *made} - held)

    def _transact(self, table: DeltaTable, commit: _Commit, made: list[str]) -> bool:
        """Commit, and return True; return False if another writer has taken the version."""
        from deltalake.exceptions import DeltaError

        merges = commit.merged.merges
        if any(merge.replacement.parts_of(merge.held.rows) for merge in merges) or self._puts_entry(table):
            entry = EntryCommit(self._target, self._files, commit.at_ms)
            log, replacements = replay_log(self._target, table), [merge.replacement for merge in merges]
            if entry.commit(log, replacements, commit.numbers, commit.commit_info, made) is None:
                return False
            entry.checkpoint(table)
            return True
        before = table.version()
        try:
            self._replace_buckets(table, commit)
        except (DeltaError, OSError) as error:
            after = load_table(self._target)
            if after is not None and after.version() > before:
                return False
            raise TableError(
                f"batch {commit.summary.batch_id} cannot be committed to the table at {self._target.location}: "
                f"{self._target.masked(error)}",
                hint="check that the folder may be written to and has room; the restarted query repeats the batch",
            ) from error
        return True

    def _puts_entry(self, table: DeltaTable) -> bool:
        """Return True if a commit that replaces whole buckets writes its log entry here, without delta-rs.

        That takes a third of the time that delta-rs needs, and waits for the disk.
        """
        if not self._target.is_local:
            return False
        if not self._target.is_durable:
            if not may_put_entries(self._target, table):
                return False
            try:
                replay_log(self._target, table)
            except TableError:  # a log in a form that is not followed here
                return False
        return True

    def _replace_buckets(self, table: DeltaTable, commit: _Commit) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import AddAction

        adds: list[Any] = [
            AddAction(file.path, file.size, {BUCKET: str(file.bucket)}, commit.at_ms, True, file.stats)
            for file in commit.merged.rows
        ]
        touched = [str(merge.bucket) for merge in commit.merged.merges if merge.replaced]
        table.create_write_transaction(
            adds,
            "overwrite" if touched else "append",
            table.schema(),
            [BUCKET],
            [(BUCKET, "in", touched)] if touched else None,
            commit_properties=CommitProperties(
                custom_metadata=dict(commit.commit_info),
                # Retrying by itself, it would pass over what another program appended to these buckets.
                max_commit_retries=0,
                app_transactions=[Transaction(name, number) for name, number in commit.numbers.items()],
            ),
            post_commithook_properties=commit_hooks(on=self._target.options.maintenance == "off"),
        )


@dataclasses.dataclass(frozen=True)
class _Commit:
    """The content of one commit."""

    merged: MergeResults
    summary: CommitSummary
    numbers: Mapping[str, int]  # transaction versions by application
    commit_info: Mapping[str, Any]  # the rest of the commit's metadata

    @property
    def at_ms(self) -> int:
        return self.summary.committed_at_us // 1000


def _named_beside(table: DeltaTable) -> set[str]:
    """Return the files of deletions and of side rows that the last commits name, this one's included."""
    entries = commit_infos(table, _TRIES)
    delivered = [CommitChanges.of_commit(entry) for entry in entries]
    named = set[str]().union(*map(files_named, entries))
    return named | {path for each in delivered if each is not None for path in each.deletions}
