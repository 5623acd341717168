"""The tables of many queries, beside the driver: looked at before a batch, committed after it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from ...conf.clock import now_us
from ...conf.errors import UpstreamError
from ...storage.folder import TableFolder, folder_at
from ..spec import steps
from ..spec.steps import Step
from ..table.table import Snapshot
from .begun_tables import Begun, read_begun, write_begun
from .known_table import known_table
from .result_table import target_of
from .staging import SeenTable, staged_in
from .table_commit import TableCommit
from .upkeep import maintain_some

if TYPE_CHECKING:
    from ..figures.summary import CommitSummary
    from .result_table import ResultTable

__all__ = ["ResultTables", "Seen"]

T = TypeVar("T")

# Tables in an object store, or on a disk that is waited for.
_WAITING = 16


@dataclasses.dataclass(frozen=True)
class Seen:
    """What was seen of tables before a batch.

    Attributes
    ----------
    tables : mapping of str to SeenTable
        What :func:`~upstream.sink.results.staging.stage` needs of each, by the query's name.
    refused : mapping of str to UpstreamError
        Why a table cannot be written, of those that cannot: its query is to fail.
    """

    tables: Mapping[str, SeenTable]
    refused: Mapping[str, UpstreamError]


class ResultTables:
    """The tables of the queries that one streaming query hosts.

    Parameters
    ----------
    host
        The streaming query's id, as Spark gave it to its checkpoint.
    checkpoint
        The checkpoint's folder, in which is remembered what was committed.
    clock_us
        Says when a commit is made.
    threads
        How many commit at once [default: many where a commit waits for a store or a disk, else one].
    """

    def __init__(
        self,
        host: str,
        checkpoint: str | TableFolder,
        clock_us: Callable[[], int] = now_us,
        *,
        threads: int | None = None,
    ) -> None:
        self.host = host
        self._checkpoint = folder_at(checkpoint)
        self._clock_us = clock_us
        self._threads = threads
        self._begun: dict[str, Begun] | None = None

    def look(self, tables: Iterable[ResultTable]) -> Seen:
        """Return what tasks need of the tables for the next batch. It can be pickled.

        Parameters
        ----------
        tables
            All that the queries in force have.

        Raises
        ------
        CheckpointError
            The checkpoint cannot be read.
        TableError
            An object store fails: that is no reason against a table.
        """
        begun = self._remembered()

        def look_at(table: ResultTable) -> SeenTable | UpstreamError:
            commit, folder = self._commit_of(table), target_of(table).folder
            with folder.guarded():
                try:
                    start = commit.start(begun.get(table.name))
                except UpstreamError as error:
                    return folder.masked_error(error)
                return SeenTable(Snapshot.empty() if start.begins else commit.snapshot(), start.ids)

        found, failed = self._each(look_at, tables)
        if failed:
            raise _together(failed)
        refused = {name: each for name, each in found.items() if isinstance(each, UpstreamError)}
        return Seen({name: each for name, each in found.items() if isinstance(each, SeenTable)}, refused)

    def commit(
        self,
        tables: Iterable[ResultTable],
        results: Mapping[str, Sequence[bytes]],
        batch_id: int,
        offsets: str | None,
    ) -> dict[str, CommitSummary]:
        """Make a batch visible in all tables, in each of them once.

        Parameters
        ----------
        tables
            All that the queries in force have, with or without results: what is not there is made, and the first batch
            of another incarnation replaces all rows. Leave out those of queries that have failed.
        results
            What :func:`~upstream.sink.results.staging.stage` returned, by the query's name.
        batch_id
            The batch's number.
        offsets
            The digest of what the batch reads (:func:`upstream.sink.commit.batch_identity.read_offsets`).

        Returns
        -------
        dict of str to CommitSummary
            The commits that were made: none of a table that has the batch already, or had no rows in it.

        Raises
        ------
        UpstreamError
            Some tables could not be committed. All others are; a repeat of the batch commits what is missing.
        CheckpointError
            The checkpoint cannot be read or written.
        """
        begun = self._remembered()
        present = {table.name: table for table in tables}
        now = dict(begun)

        def commit_to(table: ResultTable) -> CommitSummary | None:
            staged = staged_in(results.get(table.name, ()))
            with target_of(table).folder.guarded():
                commit = self._commit_of(table)
                summary, last = commit.commit(staged, batch_id, offsets, begun.get(table.name))
            if last is not None:
                now[table.name] = last
            return summary

        # A table that is begun costs nothing in a batch in which nothing comes.
        due = [table for name, table in present.items() if results.get(name) or not _has_begun(table, begun.get(name))]
        made, failed = self._each(commit_to, due)
        now = {name: each for name, each in now.items() if name in present}
        if now != begun:
            write_begun(self._checkpoint, now)
            self._begun = now
        steps.reached(Step.REMEMBERED)
        changed = [present[name] for name, summary in made.items() if summary is not None]
        maintain_some([(table, known_table(target_of(table))) for table in changed], self._clock_us)
        steps.reached(Step.MAINTAINED)
        if failed:
            raise _together(failed)
        return {name: summary for name, summary in made.items() if summary is not None}

    def discard(self, tables: Iterable[ResultTable], results: Mapping[str, Sequence[bytes]]) -> None:
        """Remove what tasks have staged for a batch that is not committed. What cannot be removed stays.

        Parameters
        ----------
        tables, results
            As of :meth:`commit`.
        """

        def discard_of(table: ResultTable) -> None:
            self._commit_of(table).discard(staged_in(results[table.name]))

        self._each(discard_of, [table for table in tables if results.get(table.name)])

    def _commit_of(self, table: ResultTable) -> TableCommit:
        return TableCommit(table, known_table(target_of(table)), self.host, self._clock_us)

    def _remembered(self) -> dict[str, Begun]:
        if self._begun is None:
            self._begun = read_begun(self._checkpoint)
        return self._begun

    def _each(
        self, work: Callable[[ResultTable], T], tables: Iterable[ResultTable]
    ) -> tuple[dict[str, T], dict[str, UpstreamError]]:
        """Do the work for each table, and return what came of it by name; and the errors."""
        chosen = list(tables)
        threads = self._threads or _threads_for(chosen)
        done: dict[str, T] = {}
        failed: dict[str, UpstreamError] = {}

        def one(table: ResultTable) -> None:
            try:
                done[table.name] = work(table)
            except UpstreamError as error:
                failed[table.name] = error

        if threads == 1 or len(chosen) < 2:
            for table in chosen:
                one(table)
        else:
            with ThreadPoolExecutor(threads) as pool:
                for _ in pool.map(one, chosen):
                    pass
        return done, failed


def _has_begun(table: ResultTable, begun: Begun | None) -> bool:
    return begun is not None and begun.query_id == table.query_id


def _threads_for(tables: Sequence[ResultTable]) -> int:
    """Return how many threads commit: many where a commit waits for a store or a disk, else one."""
    waits = any(not (target := target_of(table)).is_local or target.is_durable for table in tables)
    return _WAITING if waits else 1


def _together(failed: Mapping[str, UpstreamError]) -> UpstreamError:
    """Return one error for those of several tables."""
    (name, first), *others = sorted(failed.items())
    if not others:
        return first
    return type(first)(
        f"{len(failed)} tables could not be committed: {', '.join(sorted(failed))}; that of {name}: {first.problem}",
        expected=first.expected,
        hint=first.hint,
    )
