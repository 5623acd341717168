"""The commit of one batch to one query's table, in one entry of the log."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...conf.errors import TableError
from ...delta_format.latest_table import DELIVERED_KEY, METADATA_KEY
from ..commit.account import Merged, summarise
from ..commit.batch_identity import FINGERPRINT_PREFIX, BatchIdentity, Fingerprint, NumberedWrite
from ..commit.entry_commit import EntryCommit
from ..commit.merged_base import MergedBase
from ..figures.freshness import HISTORY_KEY, history_note
from ..merge.contest import contest
from ..merge.held_rows import Replacement
from ..spec import steps
from ..spec.steps import Step
from ..table.table import Snapshot
from ..table.tombstones import DELETIONS, tombstone_files
from .begun_tables import Begun
from .known_table import KnownTable
from .result_table import table_writer, target_of
from .table_start import INCARNATION_PREFIX, TAKEN_OVER, start_of

if TYPE_CHECKING:
    from ..figures.summary import CommitSummary
    from ..table.files import StagedFile
    from .result_table import ResultTable, TableWriter
    from .staging import Staged
    from .table_start import Start

__all__ = ["TableCommit"]

# Others may commit at the same moment; each time it looks again.
_TRIES = 8


class TableCommit:
    """The commit of a batch to one table.

    An incarnation's first batch creates the table or replaces all rows, even if it has no rows. The table's
    incarnation is the version of a transaction, beside those that number the batches. So wherever a process
    dies, a repeat completes the commit. `host` is the streaming query's id.
    """

    def __init__(self, table: ResultTable, known: KnownTable, host: str, clock_us: Callable[[], int]) -> None:
        self._table = table
        self._known = known
        self._writer = f"{host}/{table.name}"
        self._clock_us = clock_us

    def start(self, begun: Begun | None) -> Start:
        """Return the table's state for a batch, as it is now; see :func:`~.table_start.start_of`."""
        self._known.refresh()
        return start_of(self._table, self._known, self._writer, begun)

    def snapshot(self) -> Snapshot:
        return self._known.snapshot()

    def commit(
        self, staged: Sequence[Staged], batch_id: int, offsets: str | None, begun: Begun | None
    ) -> tuple[CommitSummary | None, Begun | None]:
        """Make the batch visible; return its summary, and the commit that the checkpoint is to remember.

        The summary is None if the table has the batch, or there is nothing to record. `offsets` is a digest of the
        batch's offsets, `begun` the commit that the checkpoint remembers.
        """
        made: list[str] = []
        try:
            return self._commit(staged, batch_id, offsets, begun, made)
        except BaseException:
            with contextlib.suppress(Exception):  # what failed matters more than what is left lying about
                self.discard(staged, made)
            raise

    def discard(self, staged: Iterable[Staged], made: Iterable[str] = ()) -> None:
        """Remove the files that an attempt wrote or replaced, except those that the table holds."""
        self._known.refresh()
        self._remove({*_paths(staged), *made} - self._named())

    def _commit(
        self, staged: Sequence[Staged], batch_id: int, offsets: str | None, begun: Begun | None, made: list[str]
    ) -> tuple[CommitSummary | None, Begun | None]:
        known = self._known
        for _ in range(_TRIES):
            start = self.start(begun)
            writer = table_writer(self._table, start.ids)
            identity = self._identity(writer, batch_id, offsets)
            steps.reached(Step.LOOKED)
            if self._repeats(identity):
                self.discard(staged, made)
                return None, Begun(self._table.query_id, known.table_id, known.log.version, batch_id)
            steps.reached(Step.NEW)
            results = [each.result for each in staged]
            self._check_ids(staged, start)
            before = known.snapshot()
            base = Snapshot.empty() if start.begins else before
            checked = MergedBase(writer.target, writer.layout, writer.merger, writer.outputs)
            checked.check(results, base)
            steps.reached(Step.CHECKED)
            merged = checked.merge_again(Merged.of(results), base, made)
            steps.reached(Step.MERGED_AGAIN)
            last = known.last_summary(self._writer)
            summary = summarise(identity, results, merged, base, last, self._clock_us, even_empty=start.begins)
            if summary is None:
                return None, begun
            replacements = [merge.replacement for merge in merged.merges]
            gone: list[StagedFile] = []
            if start.begins:
                replacements.append(Replacement(replaced=tuple(before.rows)))
                gone = [] if start.actions else list(self._gone(writer, before, merged, made))
                summary = dataclasses.replace(summary, deleted=sum(file.rows for file in gone))
            steps.reached(Step.LISTED)
            writer.target.folder.sync({file.path for file in [*merged.deletions, *gone]})
            info: dict[str, Any] = {METADATA_KEY: summary.to_json(), HISTORY_KEY: history_note(summary)}
            if not start.actions or not known.exists:  # else those who follow the table cannot go on
                info[DELIVERED_KEY] = self._delivered(merged, summary, gone)
            if start.begins:
                info["operationParameters"] = {"mode": "Overwrite", "partitionBy": "[]"}
            entry = EntryCommit(writer.target, writer.files, summary.committed_at_us // 1000)
            actions = entry.commit(known.log, replacements, self._numbers(identity, start), info, made, start.actions)
            if actions is None:
                continue
            known.advance(actions, summary)
            steps.reached(Step.COMMITTED)
            needed = {file.path for file in [*merged.rows, *merged.deletions, *gone]}
            self._remove({*_paths(staged), *made} - needed)
            steps.reached(Step.CLEARED)
            return summary, Begun(self._table.query_id, known.table_id, known.log.version, batch_id)
        raise TableError(
            f"others kept committing to the table at {self._table.location} while batch {batch_id} was to be committed",
            expected="the job of its query writing to it, and nobody else",
            hint="stop the other writer and restart this job; it repeats the batch",
        )

    def _identity(self, writer: TableWriter, batch_id: int, offsets: str | None) -> BatchIdentity:
        fingerprint = Fingerprint.of(batch_id, offsets, writer.layout.described())
        return BatchIdentity(writer.target, self._writer, batch_id, fingerprint)

    def _repeats(self, identity: BatchIdentity) -> bool:
        transactions = self._known.log.transactions

        def fingerprint_of(writer: str) -> Fingerprint | None:
            number = transactions.get(FINGERPRINT_PREFIX + writer)
            return None if number is None else Fingerprint.of_number(number)

        write = NumberedWrite(
            self._table.location,
            identity.writer,
            identity.number,
            identity.fingerprint,
            of_query=True,
            one_of_several=False,
            every_row=self._table.keep == "all",
        )
        return write.repeats(transactions.get(write.application), fingerprint_of)

    def _numbers(self, identity: BatchIdentity, start: Start) -> dict[str, int]:
        numbers = {**identity.transactions(), INCARNATION_PREFIX + self._writer: self._table.query_id}
        if start.begins:  # the job of another checkpoint notices by this that the table is its own no longer
            others = {name for name in self._known.log.transactions if name.startswith(INCARNATION_PREFIX)}
            numbers |= dict.fromkeys(others - numbers.keys(), TAKEN_OVER)
        return numbers

    def _check_ids(self, staged: Sequence[Staged], start: Start) -> None:
        """Refuse files that were staged with other column mapping ids than the table has now."""
        if any(each.ids != start.ids for each in staged):
            raise TableError(
                f"the columns of the table at {self._table.location} were changed by another writer during this batch",
                expected="the job of its query writing to it, and nobody else",
                hint="restart the job; it repeats the batch upon the table as it is now",
            )

    def _delivered(self, merged: Merged, summary: CommitSummary, gone: Sequence[StagedFile]) -> Mapping[str, Any]:
        delivered = merged.delivered(summary)
        deletions = {**delivered.deletions, **{file.path: file.rows for file in gone}}
        return dataclasses.replace(delivered, deletions=deletions).to_json()

    def _gone(self, writer: TableWriter, before: Snapshot, merged: Merged, made: list[str]) -> Iterator[StagedFile]:
        """Stage, for followers, the keys that disappear when the batch replaces the table."""
        if writer.layout.keep.count is None:
            return
        new = {merge.bucket: merge.rows for merge in merged.merges}
        files = tombstone_files(writer.target, writer.layout, writer.files.schema).in_folder(DELETIONS)
        for bucket in before.files:
            held, came = before.of_bucket(bucket), new.get(bucket)
            rows = writer.files.read_rows(held.rows, held.vectors, writer.layout.deciding)
            stays = [] if came is None else [came.path]
            fresh = writer.files.read_rows(stays, columns=writer.layout.deciding)
            left = rows.filter(contest(rows, fresh, writer.layout).stays(rows.num_rows))
            if left.num_rows:
                file = files.stage(left, bucket, left.num_rows)
                made.append(file.path)
                yield file

    def _named(self) -> set[str]:
        """Return the files that the table has, and those that its last commits name for followers."""
        return self._known.snapshot().named() | self._known.named_beside(_TRIES)

    def _remove(self, paths: Iterable[str]) -> None:
        target_of(self._table).folder.remove(paths)


def _paths(staged: Iterable[Staged]) -> set[str]:
    return {file.path for each in staged for file in each.result.staged}
