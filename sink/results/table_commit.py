"""The commit of one batch to one query's table, in one entry of the log."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...conf.errors import SchemaError, TableError
from ...delta_format.latest_table import BUCKET, DELIVERED_KEY, METADATA_KEY
from ..commit.account import MergeResults, summarise
from ..commit.batch_identity import FINGERPRINT_PREFIX, BatchIdentity, Fingerprint, NumberedWrite
from ..commit.entry_commit import EntryCommit
from ..commit.merged_base import MergedBase
from ..figures.summary import APP_PREFIX, HISTORY_KEY, history_note
from ..merge.engines import Replacement
from ..merge.newest_rows import contest
from ..spec import steps
from ..spec.layout import check_demands
from ..spec.maintenance_rules import retention_properties
from ..spec.steps import CommitStep
from ..table.contents import check_free
from ..table.log_entry import check_features
from ..table.mapped_table import first_actions, replacing_actions
from ..table.table import Snapshot
from ..table.tombstones import DELETIONS, tombstone_files
from .known_table import Begun, KnownTable
from .result_table import layout_of, table_writer, target_of

if TYPE_CHECKING:
    from ...delta_format.column_mapping import Ids
    from ..figures.summary import CommitSummary
    from ..spec.layout import Layout
    from ..table.files import StagedFile
    from .result_table import ResultTable, StagedFiles, TableWriter


INCARNATION_PREFIX = "upstream.incarnation-"
"""Begins the application of the transaction that holds which incarnation of a query the table is of."""

TAKEN_OVER = 1 << 62
"""The incarnation of a query whose table another job has taken over."""


class Start(NamedTuple):
    """The work of a batch on a table beside its rows."""

    begins: bool  # True for the first batch of an incarnation, which creates the table or replaces all rows
    ids: Ids | None  # column mapping ids; None if the columns need none
    actions: list[dict[str, Any]]  # those that create the table or change its columns


def start_of(table: ResultTable, known: KnownTable, writer: str, begun: Begun | None) -> Start:
    """Return the state in which a batch meets the table; refuse a table of others, or one that lost commits.

    `known` is up to date, and `begun` is the commit that the checkpoint remembers.
    """
    layout = layout_of(table)
    recorded = known.log.transactions.get(INCARNATION_PREFIX + writer)
    if known.exists and recorded in (None, TAKEN_OVER):
        _check_may_be_taken(table, known, begun)
        recorded = begun = None
    if recorded is not None and recorded > table.query_id:
        raise TableError(
            f"the table at {table.location} holds the query {table.name!r} as it was started by change {recorded}, and "
            f"the batch is of change {table.query_id}, which is earlier",
            expected="the checkpoint as the job left it",
            hint="put the checkpoint back as it was; or register the query again",
        )
    if begun is not None and begun.query_id == table.query_id:
        here = known.log.transactions.get(APP_PREFIX + writer) if recorded == table.query_id else None
        begun.check(known, table.location, here, writer, table.name)
    ids = known.ids(layout.plain_schema())
    if not known.exists:
        return Start(True, ids, _first_actions(table, layout, ids))
    log = known.log
    check_features(log, table.location)
    if recorded == table.query_id:
        known.check_once(layout, table.location)
        return Start(False, ids, [])
    check_demands(json.loads(log.metadata["schemaString"])["fields"], log.metadata["configuration"], table.location)
    try:
        layout.check_metadata(log.metadata, table.location)
    except (SchemaError, TableError):  # the query is another one now
        return Start(True, ids, replacing_actions(log, layout.plain_schema(), ids, layout.properties()))
    return Start(True, ids, [])


def _first_actions(table: ResultTable, layout: Layout, ids: Ids | None) -> list[dict[str, Any]]:
    target = target_of(table)
    check_free(target.folder)
    configuration = layout.properties() | retention_properties(target.options.maintenance_rules({}))
    refusal = target.folder.puts_refused()
    if refusal is not None:
        raise refusal
    return first_actions(target, layout.plain_schema(), ids, [BUCKET], configuration)


def _check_may_be_taken(table: ResultTable, known: KnownTable, begun: Begun | None) -> None:
    of_query = any(name.startswith(INCARNATION_PREFIX) for name in known.log.transactions)
    if table.overwrite and of_query and (begun is None or begun.table_id == known.table_id):
        return
    made = "a query of another checkpoint" if of_query else "another program"
    take = "let this job take it over by us.queries(…, overwrite=True), which replaces its rows"
    raise TableError(
        f"there is a table at {table.location} already, and the query {table.name!r} of this job has not made it, but "
        f"{made}",
        expected="no table, or the one that this job has made for the query",
        hint=f"give the queries another folder; or {take if of_query else 'delete the table, if nobody needs it'}",
    )


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
        self, staged: Sequence[StagedFiles], batch_id: int, offsets: str | None, begun: Begun | None
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

    def discard(self, staged: Iterable[StagedFiles], made: Iterable[str] = ()) -> None:
        """Remove the files that an attempt wrote or replaced, except those that the table holds."""
        self._known.refresh()
        self._remove({*_paths(staged), *made} - self._named())

    def _commit(
        self, staged: Sequence[StagedFiles], batch_id: int, offsets: str | None, begun: Begun | None, made: list[str]
    ) -> tuple[CommitSummary | None, Begun | None]:
        known = self._known
        for _ in range(_TRIES):
            start = self.start(begun)
            writer = table_writer(self._table, start.ids)
            identity = self._identity(writer, batch_id, offsets)
            steps.reached(CommitStep.LOOKED)
            if self._repeats(identity):
                self.discard(staged, made)
                return None, Begun(self._table.query_id, known.table_id, known.log.version, batch_id)
            steps.reached(CommitStep.NEW)
            results = [each.result for each in staged]
            self._check_ids(staged, start)
            before = known.snapshot()
            base = Snapshot.empty() if start.begins else before
            checked = MergedBase(writer.target, writer.layout, writer.merger, writer.outputs)
            checked.check(results, base)
            steps.reached(CommitStep.CHECKED)
            merged = checked.merge_again(MergeResults.of(results), base, made)
            steps.reached(CommitStep.MERGED_AGAIN)
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
            steps.reached(CommitStep.LISTED)
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
            steps.reached(CommitStep.COMMITTED)
            needed = {file.path for file in [*merged.rows, *merged.deletions, *gone]}
            self._remove({*_paths(staged), *made} - needed)
            steps.reached(CommitStep.CLEARED)
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

    def _check_ids(self, staged: Sequence[StagedFiles], start: Start) -> None:
        """Refuse files that were staged with other column mapping ids than the table has now."""
        if any(each.ids != start.ids for each in staged):
            raise TableError(
                f"the columns of the table at {self._table.location} were changed by another writer during this batch",
                expected="the job of its query writing to it, and nobody else",
                hint="restart the job; it repeats the batch upon the table as it is now",
            )

    def _delivered(self, merged: MergeResults, summary: CommitSummary, gone: Sequence[StagedFile]) -> Mapping[str, Any]:
        delivered = merged.delivered(summary)
        deletions = {**delivered.deletions, **{file.path: file.rows for file in gone}}
        return dataclasses.replace(delivered, deletions=deletions).to_json()

    def _gone(
        self, writer: TableWriter, before: Snapshot, merged: MergeResults, made: list[str]
    ) -> Iterator[StagedFile]:
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


def _paths(staged: Iterable[StagedFiles]) -> set[str]:
    return {file.path for each in staged for file in each.result.staged}
