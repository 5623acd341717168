"""The commit of a batch to one or many tables, once to each wherever a process dies between its steps."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from ...conf.errors import TableError, UpstreamError
from ...delta_format.deletion_vectors import VECTORS, copy_of, pack_vectors
from ...delta_format.latest_table import APPLIED_KEY, BUCKET, METADATA_KEY, CommitChanges
from ...storage.folder import TableFolder
from ..figures.summary import HISTORY_KEY, history_note
from ..merge.engines import Replacement
from ..merge.newest_rows import contest
from ..merge.outputs import OUTPUTS_KEY, files_named
from ..spec import steps
from ..spec.steps import CommitStep
from ..table.log_entry import (
    add_action,
    check_features,
    commit_stamp,
    marked_actions,
    put_entry,
    removed_action,
    vector_protocol,
)
from ..table.table import Snapshot
from ..table.tombstones import APP_ID, DELETIONS, tombstone_files
from .account import MergeResults, check_base, merge_again, summarise
from .batch_identity import HIGHEST, BatchIdentity, highest_number
from .last_commit import CommitLog, LastCommit, read_last_commits, write_last_commits

if TYPE_CHECKING:
    from ...delta_format.log import LogReplay
    from ..figures.summary import BatchTimes, CommitSummary, QueueBacklog
    from ..merge.outputs import Outputs
    from ..merge.task import TableWriter, TaskResult
    from ..spec.options import SinkTarget
    from ..table.files import StagedFile


# Others may commit at the same moment without touching what this commit replaces; each time it looks again.
_TRIES = 8


class TableState(CommitLog, Protocol):
    """A table and its log, as far as this process has followed it."""

    def refresh(self) -> None:
        """Follow the log to its latest version."""
        ...

    def transaction(self, application: str) -> int | None:
        """Return an application's last transaction version; None if it has none."""
        ...

    def snapshot(self) -> Snapshot:
        """Return the table's files."""
        ...

    def last_summary(self, writer: str, near: int | None) -> CommitSummary | None:
        """Return a writer's last summary; `near` is the version of a commit of its own that is remembered."""
        ...


class TableStart(NamedTuple):
    """The work of a batch on a table beside its rows."""

    writer: TableWriter
    begins: bool = False  # True if the batch replaces all rows
    actions: Sequence[dict[str, Any]] = ()  # those that create the table or change its columns


class TableCommit(NamedTuple):
    """The content of one commit."""

    start: TableStart
    upon: int  # the version that was checked
    merged: MergeResults
    replacements: Sequence[Replacement]
    summary: CommitSummary
    numbers: Mapping[str, int]  # transaction versions by application
    info: Mapping[str, Any]  # the rest of the commit's metadata

    @property
    def at_ms(self) -> int:
        return self.summary.committed_at_us // 1000


class CommitTable(ABC):
    """A table to which a writer commits its batches."""

    name: str  # that of the hosted query; empty for the table of a query of its own
    writer: str  # the writer's name in summaries and transactions
    incarnation = 0
    target: SinkTarget
    state: TableState
    outputs: Outputs | None = None
    times: BatchTimes | None = None
    backlog: QueueBacklog | None = None  # of the hosted query's queue

    @abstractmethod
    def start(self, last: LastCommit | None, results: Sequence[TaskResult] = ()) -> TableStart | None:
        """Return the state in which a batch meets the table; None if there is nothing to record.

        A table of others, or one that lost commits, is a TableError. The state is up to date, and `last` is the
        commit that the checkpoint remembers.
        """

    @abstractmethod
    def check(self, start: TableStart) -> None:
        """Refuse a table whose layout or columns are no longer those with which the tasks wrote."""

    @abstractmethod
    def numbers(self, start: TableStart) -> dict[str, int]:
        """Return further transaction versions that go with the commit."""

    @abstractmethod
    def put(self, change: TableCommit, made: list[str]) -> bool:
        """Commit, or return False if another writer took the version. `made` receives the files unless it succeeds."""

    @abstractmethod
    def overdue(self) -> int:
        """Return the number of versions for which the maintenance has been due; -1 if it is not."""

    @abstractmethod
    def maintain(self, clock_us: Callable[[], int]) -> None:
        """Maintain the table; an error is logged, and the maintenance is tried again."""


class BatchCommit:
    """The commit of a batch's results to one table.

    Staged files become visible by the commit alone. It also records the writer's batch number, the tombstone
    list's number and the low-watermarks. If a process dies before the step `COMMITTED`, only orphaned files
    remain, which VACUUM removes (small tombstone files stay). If it dies after that step, the repeated batch is
    recognised before `NEW`.
    """

    def __init__(self, table: CommitTable, clock_us: Callable[[], int]) -> None:
        self._table = table
        self._clock_us = clock_us

    def commit(
        self, results: Sequence[TaskResult], batch_id: int, offsets: str | None, last: LastCommit | None
    ) -> tuple[CommitSummary | None, LastCommit | None]:
        """Make the batch visible; return its summary, and the commit for the checkpoint.

        The summary is None if the table has the batch, or there is nothing to record. `offsets` is a digest of the
        batch's offsets, `last` the commit that the checkpoint remembers. It is a TableError if others have changed the
        files that this batch replaces. Missing or unknown commits of this writer are one, too.
        """
        made: list[str] = []  # files to be removed at the end, unless the table names them then
        try:
            return self._commit(results, batch_id, offsets, last, made)
        except BaseException:
            with contextlib.suppress(Exception):  # what failed matters more than what is left lying about
                self.discard(results, made)
            raise

    def discard(self, results: Sequence[TaskResult], made: Iterable[str] = ()) -> None:
        """Remove an attempt's files, except the table's: the commit may have been made although it seemed to fail."""
        table, state = self._table, self._table.state
        state.refresh()
        kept = state.snapshot().named()
        for entry in state.entries(_TRIES):
            applied = CommitChanges.of_commit(entry)
            kept |= files_named(entry) | set(applied.deletions if applied is not None else ())
        if table.outputs is not None:
            for result in results:
                table.outputs.discard(result.side_rows, kept)
        table.target.folder.remove({*_paths(results), *made} - kept)

    def _commit(
        self,
        results: Sequence[TaskResult],
        batch_id: int,
        offsets: str | None,
        last: LastCommit | None,
        made: list[str],
    ) -> tuple[CommitSummary | None, LastCommit | None]:
        table, state = self._table, self._table.state
        merged = MergeResults.of(results)
        for _ in range(_TRIES):
            state.refresh()
            start = table.start(last, results)
            if start is None:
                return None, last
            steps.reached(CommitStep.LOOKED)
            writer = start.writer
            identity = BatchIdentity.of(writer.target, table.writer, batch_id, offsets, writer.layout.described())
            # A batch that is in the table already changes nothing.
            if identity.is_in(state.transaction):
                self.discard(results, made)
                return None, self._last(batch_id, state.version)
            steps.reached(CommitStep.NEW)
            table.check(start)
            # The rows that the tasks merged with must still be what the table holds.
            before = state.snapshot()
            base = Snapshot.empty() if start.begins else before
            check_base(writer, results, base)
            numbers = identity.transactions() | table.numbers(start)
            numbers[HIGHEST] = highest_number(state.transaction, results)
            steps.reached(CommitStep.CHECKED)
            # Buckets that came in several tasks, or lie in other files by now, are merged once more.
            merged = merge_again(writer, merged, base, made)
            steps.reached(CommitStep.MERGED_AGAIN)
            summary = summarise(
                identity,
                writer.target,
                results,
                merged,
                base,
                state.last_summary(table.writer, None if last is None else last.version),
                self._clock_us,
                anew=start.begins,
                backlog=table.backlog,
            )
            if summary is None:
                return None, last
            summary = dataclasses.replace(summary, times=table.times)
            replacements = [merge.replacement for merge in merged.merges]
            gone: list[StagedFile] = []
            if start.begins:
                replacements.append(Replacement(replaced=tuple(before.rows)))
                gone = [] if start.actions else list(_gone(writer, before, merged, made))
                summary = dataclasses.replace(summary, deleted=sum(file.rows for file in gone))
            # Which files the tombstones are in from now on. Without a time column none has to be kept.
            tombstones = base.tombstones.replaced(merged.tombstones if writer.layout.order else [])
            tombstones.write(writer.files, base.tombstones, made.append)
            steps.reached(CommitStep.LISTED)
            # All or nothing, and only on top of the very version that was checked.
            made += tombstones.held() | base.tombstones.held()
            # Files that the entry itself names are put on the disk with it; those that tasks wrote are there.
            beside = {file.path for file in [*merged.deletions, *gone]}
            writer.target.folder.sync(beside | tombstones.held())
            # The list's number in every commit, also when it stays or is 0: it is then found in the latest one, not
            # after all of them.
            numbers[APP_ID] = tombstones.number
            info: dict[str, Any] = {METADATA_KEY: summary.to_json(), HISTORY_KEY: history_note(summary)}
            if not start.actions or state.version < 0:  # else those who follow the table cannot go on
                info[APPLIED_KEY] = merged.applied(summary, gone).to_json()
            if files := writer.outputs.named(merged.side_rows):
                info[OUTPUTS_KEY] = files
            if start.begins:
                info["operationParameters"] = {"mode": "Overwrite", "partitionBy": "[]"}
            if not table.put(TableCommit(start, before.version, merged, replacements, summary, numbers, info), made):
                continue
            steps.reached(CommitStep.COMMITTED)
            # What is needed no more. Of the rows' earlier files readers of earlier versions make use.
            needed = beside | {file.path for file in merged.rows} | tombstones.held()
            writer.target.folder.remove({*_paths(results), *made} - needed)
            steps.reached(CommitStep.CLEARED)
            return summary, self._last(batch_id, before.version + 1)
        raise TableError(
            f"others kept committing to the table at {table.target.location} while batch {batch_id} was to be "
            "committed",
            expected="one query writing to the table at a time",
            hint="stop the other writer and restart this query; it repeats the batch",
        )

    def _last(self, batch_id: int, version: int) -> LastCommit:
        return LastCommit(self._table.state.table_id, version, batch_id, self._table.incarnation)


def put_change(change: TableCommit, log: LogReplay, made: list[str]) -> list[dict[str, Any]] | None:
    """Commit, and return the entry's actions; return None if another writer has taken the version.

    `log` is at the version for which the replacements were computed. `made` receives the paths of the vectors'
    files, unless the commit succeeds.
    """
    target, written_ms, version = change.start.writer.target, change.at_ms, log.version + 1
    folder, replacements = target.folder, change.replacements
    if version > 0:
        check_features(log, target.location)
    marks = [mark for each in replacements for mark in each.marks]
    actions = list(change.start.actions)
    vectors: str | None = None
    try:
        if marks:
            vectors, content, descriptors = pack_vectors([(mark.vector, mark.cardinality) for mark in marks], VECTORS)
            for path in (copy_of(vectors), vectors):
                made.append(path)
                change.start.writer.files.write(path, content)
            folder.sync([copy_of(vectors), vectors])
            steps.reached(CommitStep.MARKED)
            actions += vector_protocol(log)
            for mark, vector in zip(marks, descriptors, strict=True):
                actions += marked_actions(log.files[mark.path], vector, mark.rows, written_ms)
        actions += [removed_action(log.files[path], written_ms) for each in replacements for path in each.replaced]
        actions += [add_action(each.rows, written_ms) for each in replacements if each.rows is not None]
        actions += [{"txn": {"appId": name, "version": number}} for name, number in change.numbers.items()]
        info = {
            "operation": "WRITE",
            "operationParameters": {"mode": "Append", "partitionBy": f'["{BUCKET}"]'},
            **change.info,
            **commit_stamp(log, folder),
        }
        if not put_entry(folder, version, info, actions):
            return None
    except OSError as error:
        raise TableError(
            f"version {version} cannot be committed to the table at {target.location}: {target.masked(error)}",
            hint="check that the folder is writable and has room; the restarted query repeats the batch",
        ) from error
    if vectors is not None:
        made.remove(vectors)
        made.remove(copy_of(vectors))
    return actions


def _gone(writer: TableWriter, before: Snapshot, merged: MergeResults, made: list[str]) -> Iterator[StagedFile]:
    """Stage, for followers, the keys that disappear when the batch replaces the table."""
    if writer.layout.history.count is None:
        return
    new = {merge.bucket: merge.rows for merge in merged.merges}
    files = tombstone_files(writer.target, writer.layout, writer.files.schema).in_folder(DELETIONS)
    for bucket in before.files:
        held, came = before.of_bucket(bucket), new.get(bucket)
        rows = writer.files.read_rows(held.rows, held.vectors, writer.layout.deciding)
        fresh = writer.files.read_rows([] if came is None else [came.path], columns=writer.layout.deciding)
        left = rows.filter(contest(rows, fresh, writer.layout).stays(rows.num_rows))
        if left.num_rows:
            file = files.stage(left, bucket, left.num_rows)
            made.append(file.path)
            yield file


def _paths(results: Iterable[TaskResult]) -> set[str]:
    return {file.path for result in results for file in result.staged}


_T = TypeVar("_T")
Tables = Mapping[str, tuple[CommitTable, Sequence["TaskResult"]]]
"""By name, each with the results of the batch's tasks."""

_BUDGET_S = 1.0


class BatchCommitter:
    """The commits of a writer's batches, one for each table, and the checkpoint's memory of them.

    Without a checkpoint, as for a batch of no query, nothing is remembered.
    """

    def __init__(self, checkpoint: TableFolder | None, clock_us: Callable[[], int]) -> None:
        self._checkpoint = checkpoint
        self._clock_us = clock_us
        self._last: Mapping[str, LastCommit] | None = None

    def last(self) -> Mapping[str, LastCommit]:
        """Return the last commit to each table that the checkpoint remembers, by name."""
        if self._last is None:
            self._last = {} if self._checkpoint is None else read_last_commits(self._checkpoint)
        return self._last

    def commit(
        self, tables: Tables, batch_id: int, offsets: str | None, *, names: Iterable[str] = (), threads: int = 1
    ) -> dict[str, CommitSummary]:
        """Make a batch visible in its tables, once in each; return the summaries of the commits made.

        `offsets` is a digest of the batch's offsets, and `names` are those of further tables that are in use. If
        some tables fail, the others are committed, and a repeat of the batch commits the rest.
        """
        before = self.last()
        in_use = {*tables, *names}
        now = {name: last for name, last in before.items() if name in in_use}

        def commit_to(name: str) -> CommitSummary | None:
            table, results = tables[name]
            with table.target.folder.guarded():
                summary, last = BatchCommit(table, self._clock_us).commit(results, batch_id, offsets, before.get(name))
            if last is not None:
                now[name] = last
            return summary

        made, failed = for_each(commit_to, tables, threads)
        if now != before and self._checkpoint is not None:
            write_last_commits(self._checkpoint, now)
            self._last = now
        steps.reached(CommitStep.REMEMBERED)
        summaries = {name: summary for name, summary in made.items() if summary is not None}
        maintain_some([tables[name][0] for name in summaries], self._clock_us)
        steps.reached(CommitStep.MAINTAINED)
        if failed:
            raise together(failed)
        return summaries

    def discard(self, tables: Tables, threads: int = 1) -> None:
        """Remove the staged files of a batch that is not committed; files that cannot be removed stay."""

        def discard_of(name: str) -> None:
            table, results = tables[name]
            BatchCommit(table, self._clock_us).discard(results)

        for_each(discard_of, tables, threads)


def maintain_some(
    tables: Iterable[CommitTable], clock_us: Callable[[], int], seconds: Callable[[], float] = time.monotonic
) -> list[str]:
    """Maintain due tables, the most overdue first, while time allows; return their names. Never raise."""
    due = [(overdue, table) for table in tables if (overdue := table.overdue()) >= 0]
    late = seconds() + _BUDGET_S
    done: list[str] = []
    for _, table in sorted(due, key=lambda each: -each[0]):
        if done and seconds() > late:
            break
        table.maintain(clock_us)
        done.append(table.name)
    return done


def for_each(
    work: Callable[[str], _T], names: Iterable[str], threads: int
) -> tuple[dict[str, _T], dict[str, UpstreamError]]:
    """Do the work for each name; return the results and the errors by name."""
    chosen = list(names)
    done: dict[str, _T] = {}
    failed: dict[str, UpstreamError] = {}

    def one(name: str) -> None:
        try:
            done[name] = work(name)
        except UpstreamError as error:
            failed[name] = error

    if threads == 1 or len(chosen) < 2:
        for name in chosen:
            one(name)
    else:
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(one, chosen):
                pass
    return done, failed


def together(failed: Mapping[str, UpstreamError]) -> UpstreamError:
    """Return one error for those of several tables."""
    (name, first), *others = sorted(failed.items())
    if not others:
        return first
    return type(first)(
        f"{len(failed)} tables could not be committed: {', '.join(sorted(failed))}; that of {name}: {first.problem}",
        expected=first.expected,
        hint=first.hint,
    )
