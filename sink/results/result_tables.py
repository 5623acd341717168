"""The result tables of all hosted queries, beside the driver: start before a batch, commit after it."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from ...conf.errors import UpstreamError
from ...conf.units import now_us
from ...storage.folder import TableFolder, folder_at
from ..maintenance.runner import maintain
from ..spec import steps
from ..spec.maintenance_rules import MaintenanceRules
from ..spec.steps import CommitStep
from ..table.table import Snapshot
from .known_table import Begun, known_table, read_begun, write_begun
from .result_table import SeenTable, staged_in, target_of
from .table_commit import TableCommit

if TYPE_CHECKING:
    from ..figures.summary import CommitSummary
    from .known_table import KnownTable
    from .result_table import ResultTable


_LOG = logging.getLogger("upstream.maintenance")

_BUDGET_S = 1.0


def versions_overdue(location: str, version: int, maintained: int) -> int:
    """Return the number of versions for which a table's maintenance has been due; -1 if it is not.

    The location gives each table its own turn: tables that begin in one batch would otherwise all be due in
    one.
    """
    every = MaintenanceRules.every
    turn = zlib.crc32(location.encode()) % every
    last = (version + turn) // every * every - turn
    return version - last if last > max(maintained, 0) else -1


def maintain_some(
    tables: Sequence[tuple[ResultTable, KnownTable]],
    clock_us: Callable[[], int] = now_us,
    seconds: Callable[[], float] = time.monotonic,
) -> list[str]:
    """Maintain the tables that are due, the most overdue first, as far as the time allows; return their names.

    It never raises: the batch is committed, and failed steps are tried again.
    """
    due = [
        (overdue, table, known)
        for table, known in tables
        if (overdue := versions_overdue(table.location, known.log.version, known.maintained)) >= 0
    ]
    late = seconds() + _BUDGET_S
    done: list[str] = []
    for _, table, known in sorted(due, key=lambda each: -each[0]):
        if done and seconds() > late:
            break
        _maintain(table, clock_us)
        known.maintained = known.log.version
        done.append(table.name)
    return done


def _maintain(table: ResultTable, clock_us: Callable[[], int]) -> None:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    target = target_of(table)
    try:
        loaded = DeltaTable(target.location, storage_options=dict(target.storage) or None)
    except (DeltaError, OSError, ValueError) as error:
        _LOG.warning("the table at %s cannot be maintained: %s", target.location, target.masked(error))
        return
    if target.options.maintenance == "off":
        with contextlib.suppress(DeltaError):  # the log is only read more slowly without
            loaded.create_checkpoint()
        return
    maintain(target, loaded, clock_us, due=True)


T = TypeVar("T")

# Tables in an object store, or on a disk that is waited for.
_WAITING = 16


@dataclasses.dataclass(frozen=True)
class Seen:
    """The state of result tables before a batch."""

    tables: Mapping[str, SeenTable]  # by the query's name
    refused: Mapping[str, UpstreamError]  # errors of the tables that cannot be written; their queries are to fail


class ResultTables:
    """The result tables of the queries that one streaming query hosts.

    `host` is the streaming query's id. `threads` commit at once; by default many if commits wait for a store or
    a disk.
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
        """Return the state of the tables that tasks need for the next batch. It can be pickled.

        A failing object store raises: that is no reason to refuse a table.
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
        """Make a batch visible in all tables, once in each; return the summaries of the commits made.

        Pass the tables of all active queries, with or without `results`: an absent table is created, and the first
        batch of another incarnation replaces all rows. Leave out those of failed queries. If some tables fail, the
        others are committed, and a repeat of the batch commits the rest.
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
        steps.reached(CommitStep.REMEMBERED)
        changed = [present[name] for name, summary in made.items() if summary is not None]
        maintain_some([(table, known_table(target_of(table))) for table in changed], self._clock_us)
        steps.reached(CommitStep.MAINTAINED)
        if failed:
            raise _together(failed)
        return {name: summary for name, summary in made.items() if summary is not None}

    def discard(self, tables: Iterable[ResultTable], results: Mapping[str, Sequence[bytes]]) -> None:
        """Remove the staged files of a batch that is not committed; files that cannot be removed stay."""

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
        """Do the work for each table; return the results and the errors by the query's name."""
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
    """Return the number of threads that commit: many if a commit waits for a store or a disk, else one."""
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
