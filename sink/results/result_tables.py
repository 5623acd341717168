"""The tables of all hosted queries, beside the driver: start before a batch, commit after it, deletion at the end."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ...conf.errors import SchemaError, TableError, UpstreamError
from ...conf.units import now_us
from ...delta_format.latest_table import BUCKET
from ...storage.folder import TableFolder, folder_at
from ..commit.commit import BatchCommitter, CommitTable, TableCommit, TableStart, for_each, put_change, together
from ..figures.summary import APP_PREFIX, recorded_bound
from ..maintenance.runner import maintain
from ..merge.task import Arrivals, TaskResult
from ..spec.layout import check_demands
from ..spec.maintenance_rules import MaintenanceRules, retention_properties
from ..table.contents import LOG, LOG_FILE, check_free, every_file, files_in_log, is_own
from ..table.log_entry import check_features
from ..table.mapped_table import first_actions, replacing_actions
from ..table.table import Snapshot
from .known_table import KnownTable, known_table
from .result_table import SeenTable, layout_of, staged_in, target_at, target_of, writer_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...delta_format.column_mapping import Ids
    from ...storage.folder import TableFolder
    from ..commit.commit import Tables
    from ..commit.last_commit import LastCommit
    from ..figures.summary import CommitSummary, QueueBacklog
    from ..spec.layout import Layout
    from .result_table import ResultTable, StagedFiles


_LOG = logging.getLogger("upstream.maintenance")
_QUERIES = logging.getLogger("upstream.queries")

INCARNATION_PREFIX = "upstream.incarnation-"
"""Begins the application of the transaction that holds which incarnation of a query the table is of."""

TAKEN_OVER = 1 << 62
"""The incarnation of a query whose table another job has taken over."""


def start_of(table: ResultTable, known: KnownTable, writer: str, last: LastCommit | None) -> TableStart:
    """Return the state in which a batch meets an up-to-date table; refuse a foreign one, or one that lost `last`."""
    layout = layout_of(table)
    recorded = known.log.transactions.get(INCARNATION_PREFIX + writer)
    if known.version >= 0 and recorded in (None, TAKEN_OVER):
        _check_may_be_taken(table, known, last)
        recorded = last = None
    if recorded is not None and recorded > table.query_id:
        raise TableError(
            f"the table at {table.location} holds the query {table.name!r} as started by change {recorded}, and "
            f"the batch is of change {table.query_id}, which is earlier",
            expected="the checkpoint as the job left it",
            hint="restore the checkpoint, or register the query again",
        )
    if last is not None and last.incarnation == table.query_id:
        here = known.log.transactions.get(APP_PREFIX + writer) if recorded == table.query_id else None
        last.check(known, table.location, here, writer, table.name)
    ids = known.ids(layout.plain_schema())
    table_writer = writer_of(table, ids)
    if known.version < 0:
        return TableStart(table_writer, True, _first_actions(table, layout, ids))
    log = known.log
    check_features(log, table.location)
    if recorded == table.query_id:
        known.check_once(layout, table.location)
        return TableStart(table_writer)
    check_demands(log.metadata, table.location)
    try:
        layout.check_metadata(log.metadata, table.location)
    except (SchemaError, TableError):  # the query is another one now
        return TableStart(table_writer, True, replacing_actions(log, layout.plain_schema(), ids, table.properties()))
    return TableStart(table_writer, True)


def _first_actions(table: ResultTable, layout: Layout, ids: Ids | None) -> list[dict[str, Any]]:
    target = target_of(table)
    check_free(target.folder)
    configuration = table.properties() | retention_properties(target.options.maintenance_rules({}))
    refusal = target.folder.puts_refused()
    if refusal is not None:
        raise refusal
    return first_actions(target, layout.plain_schema(), ids, [BUCKET], configuration)


def _check_may_be_taken(table: ResultTable, known: KnownTable, last: LastCommit | None) -> None:
    of_query = any(name.startswith(INCARNATION_PREFIX) for name in known.log.transactions)
    if table.overwrite and of_query and (last is None or last.table_id == known.table_id):
        return
    made = "a query of another checkpoint" if of_query else "another program"
    take = "let this job take it over by us.queries(…, overwrite=True), which replaces its rows"
    raise TableError(
        f"there is a table at {table.location} already, and the query {table.name!r} of this job has not made it, but "
        f"{made}",
        expected="no table, or the one that this job has made for the query",
        hint=f"give the queries another folder; or {take if of_query else 'delete the table'}",
    )


class QueryTable(CommitTable):
    """The table of a hosted query.

    An incarnation's first batch creates the table or replaces all rows, even if it has no rows. The table's
    incarnation is the version of a transaction, beside those that number the batches. So wherever a process
    dies, a repeat completes the commit. `host` is the streaming query's id.
    """

    def __init__(self, table: ResultTable, host: str, staged: Iterable[StagedFiles] = ()) -> None:
        self.name = table.name
        self.writer = f"{host}/{table.name}"
        self.incarnation = table.query_id
        self.target = target_of(table)
        self.state = self._known = known_table(self.target)
        self._table = table
        self._ids = [each.ids for each in staged]

    def start(self, last: LastCommit | None, results: Sequence[TaskResult] = ()) -> TableStart:
        del results  # without rows, too, the first batch replaces all rows
        return start_of(self._table, self._known, self.writer, last)

    def check(self, start: TableStart) -> None:
        """Refuse files that were staged with other column mapping ids than the table has now."""
        if any(each != start.writer.layout.ids for each in self._ids):
            raise TableError(
                f"the columns of the table at {self.target.location} were changed by another writer during this batch",
                expected="no other writer than the query's job",
                hint="restart the job; it repeats the batch on the present table",
            )

    def numbers(self, start: TableStart) -> dict[str, int]:
        numbers = {INCARNATION_PREFIX + self.writer: self.incarnation}
        if start.begins:  # the job of another checkpoint notices by this that the table is its own no longer
            others = {name for name in self._known.log.transactions if name.startswith(INCARNATION_PREFIX)}
            numbers |= dict.fromkeys(others - numbers.keys(), TAKEN_OVER)
        return numbers

    def put(self, change: TableCommit, made: list[str]) -> bool:
        actions = put_change(change, self._known.log, made)
        if actions is not None:
            self._known.advance(actions, change.summary)
        return actions is not None

    def overdue(self) -> int:
        return versions_overdue(self.target.location, self._known.version, self._known.maintained)

    def maintain(self, clock_us: Callable[[], int]) -> None:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        target = self.target
        self._known.maintained = self._known.version
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


def versions_overdue(location: str, version: int, maintained: int) -> int:
    """Return for how many versions maintenance has been due, -1 if it is not: tables have turns by location."""
    every = MaintenanceRules.every
    turn = zlib.crc32(location.encode()) % every
    last = (version + turn) // every * every - turn
    return version - last if last > max(maintained, 0) else -1


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
        self._committer = BatchCommitter(folder_at(checkpoint), clock_us)
        self._threads = threads

    def look(self, tables: Iterable[ResultTable]) -> Seen:
        """Return, in a form to pickle, the state of tables for the next batch's tasks. A failing store raises."""
        last = self._committer.last()
        chosen = {table.name: table for table in tables}

        def look_at(name: str) -> SeenTable | UpstreamError:
            folder = target_of(chosen[name]).folder
            with folder.guarded():
                try:
                    table = QueryTable(chosen[name], self.host)
                    table.state.refresh()
                    start = table.start(last.get(name))
                except UpstreamError as error:
                    return folder.masked_error(error)
                snapshot = Snapshot.empty() if start.begins else table.state.snapshot()
                return SeenTable(snapshot, start.writer.layout.ids)

        found, failed = for_each(look_at, chosen, self._threads_for(chosen.values()))
        if failed:
            raise together(failed)
        refused = {name: each for name, each in found.items() if isinstance(each, UpstreamError)}
        return Seen({name: each for name, each in found.items() if isinstance(each, SeenTable)}, refused)

    def commit(
        self,
        tables: Iterable[ResultTable],
        results: Mapping[str, Sequence[bytes]],
        batch_id: int,
        offsets: str | None,
        bounds: Mapping[str, Mapping[str, int]] | None = None,
        held: Collection[str] = (),
        backlogs: Mapping[str, QueueBacklog | None] = MappingProxyType({}),
    ) -> dict[str, CommitSummary]:
        """Make a batch visible in all tables, once in each; return the summaries of the commits made.

        Pass the tables of all active queries, with or without `results`. An absent table is created, and the first
        batch of another incarnation replaces all rows. Leave out those of failed queries. If some tables fail, the
        others are committed, and a repeat of the batch commits the rest. `bounds` has the low-watermarks of streams in
        microseconds, and `backlogs` what waits in queues, by the query's name. A table in `held` is not begun.
        """
        last = self._committer.last()
        present = {table.name: table for table in tables}
        # A table that is begun costs nothing in a batch in which nothing comes.
        due = [
            table
            for name, table in present.items()
            if results.get(name)
            or (name not in held and (name not in last or last[name].incarnation != table.query_id))
        ]
        staged = self._staged(due, results, bounds or {})
        for name, (table, _) in staged.items():
            table.backlog = backlogs.get(name)
        return self._committer.commit(staged, batch_id, offsets, names=present, threads=self._threads_for(due))

    def discard(self, tables: Iterable[ResultTable], results: Mapping[str, Sequence[bytes]]) -> None:
        """Remove the staged files of a batch that is not committed; files that cannot be removed stay."""
        due = [table for table in tables if results.get(table.name)]
        self._committer.discard(self._staged(due, results), self._threads_for(due))

    def _staged(
        self,
        tables: Iterable[ResultTable],
        results: Mapping[str, Sequence[bytes]],
        bounds: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
    ) -> Tables:
        found: Tables = {}
        for table in tables:
            staged = staged_in(results.get(table.name, ()))
            marks = {stream: recorded_bound(bound) for stream, bound in bounds.get(table.name, {}).items()}
            heard = [TaskResult((), 0, 0, Arrivals.of(None), marks)] if marks else []
            found[table.name] = QueryTable(table, self.host, staged), [*(each.result for each in staged), *heard]
        return found

    def _threads_for(self, tables: Iterable[ResultTable]) -> int:
        """Return the number of threads that commit: many if a commit waits for a store or a disk, else one."""
        if self._threads is not None:
            return self._threads
        waits = any(not (target := target_of(table)).is_local or target.is_durable for table in tables)
        return _WAITING if waits else 1


_GOING = f"{LOG}/_upstream_dropped"


def refuse_foreign(location: str, name: str, host: str | None, options: Sequence[tuple[str, str]] = ()) -> None:
    """Refuse a location with anything but the query's own table. Without a `host`, the query has never run."""
    folder = target_at(location, options).folder
    with folder.guarded():
        _looked_at(location, name, host, options)


def delete_table(location: str, name: str, host: str, dropped: int, options: Sequence[tuple[str, str]] = ()) -> bool:
    """Delete the table of a query that change `dropped` has dropped; return True if there was one.

    A table of a later query of the same name stays. A mark in the log's folder makes the deletion repeatable:
    after it, the log need not be whole to prove whose table it was. Files that the log does not name stay, with
    a warning.
    """
    folder = target_at(location, options).folder
    with folder.guarded():
        incarnation = _looked_at(location, name, host, options)
        if incarnation is None:
            _remove_empty(folder)  # a query that fails in its first batch leaves such
        if incarnation is None or incarnation > dropped:
            return False
        folder.write(_GOING, json.dumps(_mark(host, name, incarnation)).encode())
        folder.sync([_GOING])
        left, others = _delete(folder)
    if left is not None:
        raise TableError(
            f"the table at {location} of the query {name!r}, which was dropped, cannot be deleted: {left} is left",
            expected="a folder in which the job may delete files",
            hint="put the permission right and restart the job, or delete the folder yourself",
        )
    if others is not None:
        _QUERIES.warning(
            "the folder %s of the query %s, which was dropped, stays: it has a file that no query wrote, %s",
            location,
            name,
            others,
        )
    return True


def _looked_at(location: str, name: str, host: str | None, options: Sequence[tuple[str, str]]) -> int | None:
    """Return the incarnation of the query that owns the table; None if there is none."""
    target = target_at(location, options)
    with contextlib.suppress(FileNotFoundError, ValueError, KeyError):
        going = json.loads(target.folder.read(_GOING))
        if going == _mark(str(host), name, going["incarnation"]):
            return int(going["incarnation"])
    if next(every_file(target.folder), None) is None:
        return None
    known = KnownTable(target)
    known.refresh()
    written = known.transaction(f"{INCARNATION_PREFIX}{host}/{name}")
    if written in (None, TAKEN_OVER):
        raise TableError(
            f"what is at {location} is not a table that the query {name!r} of this job has written",
            expected="the query's own table, or nothing",
            hint="drop the query without its table; look at the folder, and delete it yourself",
        )
    return written


def _mark(host: str, name: str, incarnation: int) -> dict[str, str | int]:
    return {"host": host, "name": name, "incarnation": incarnation}


def _delete(folder: TableFolder) -> tuple[str | None, str | None]:
    """Delete the table's files, those of the log after those that it names, and the mark last.

    Return a file that cannot be deleted, and a file that is not the table's; None if there is none.
    """
    named = files_in_log(folder)
    data = [path for path in every_file(folder) if path in named or (is_own(path) and not path.startswith(LOG))]
    folder.remove(data)
    if (left := _one_left(folder, data)) is not None:
        return left, None
    log = [path for path in every_file(folder, LOG) if LOG_FILE.fullmatch(path) or is_own(path)]
    folder.remove([path for path in log if path != _GOING])
    if (left := _one_left(folder, [path for path in log if path != _GOING])) is not None:
        return left, None
    folder.remove([_GOING])
    _remove_empty(folder)
    return _one_left(folder, [_GOING]), next(every_file(folder), None)


def _remove_empty(folder: TableFolder) -> None:
    if folder.is_local:
        for place, _, _ in os.walk(folder.location, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(place)  # refused unless it is empty


def _one_left(folder: TableFolder, removed: list[str]) -> str | None:
    gone = set(removed)
    return next((path for path in every_file(folder) if path in gone), None)
