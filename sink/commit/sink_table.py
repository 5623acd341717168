"""The table of a query of its own, or of a batch, as delta-rs loads it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...conf.errors import TableError
from ...conf.units import StalenessTarget, now_us
from ...core.feedback.control import NO_LIMIT, SAMPLE, SINK, ControlRecord, newest_record, taken_in
from ...core.feedback.offsets import offsets_in
from ...core.feedback.reports import RowSample, read_reports, sample_folder, write_report
from ...delta_format.latest_table import BUCKET
from ...delta_format.log import commit_infos
from ..figures.summary import APP_PREFIX, BatchTimes, last_summary
from ..maintenance.runner import commit_hooks, maintain
from ..table.log_entry import may_put_entries
from ..table.table import Snapshot, create_table, load_table, replay_log, take_snapshot, transaction_version
from .batch_identity import RowNumberOffset, offsets_digest, read_offsets
from .commit import BatchCommitter, CommitTable, TableCommit, TableStart, put_change
from .last_commit import ITS_TABLE, writer_id

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from ..figures.summary import CommitSummary
    from ..merge.task import TableWriter, TaskResult
    from ..spec.options import SinkTarget
    from .last_commit import LastCommit


_CHECKPOINT_EVERY = 100
_LOOKED_AT = 10  # batches after a control that may still write its sample


class LoadedTable:
    """A table that delta-rs has loaded; see :class:`~upstream.sink.commit.commit.TableState`."""

    def __init__(self, writer: TableWriter) -> None:
        self._writer = writer
        self.table: DeltaTable | None = None

    @property
    def version(self) -> int:
        return -1 if self.table is None else self.table.version()

    @property
    def table_id(self) -> str:
        return "" if self.table is None else str(self.table.metadata().id)

    def refresh(self) -> None:
        self.table = load_table(self._writer.target)

    def transaction(self, application: str) -> int | None:
        return None if self.table is None else transaction_version(self._writer.target, self.table, application)

    def snapshot(self) -> Snapshot:
        if self.table is None:
            return Snapshot.empty()
        return take_snapshot(self.table, self._writer.files, self._writer.target)

    def entries(self, count: int) -> list[dict[str, Any]]:
        return [] if self.table is None else commit_infos(self.table, count)

    def last_summary(self, writer: str, near: int | None) -> CommitSummary | None:
        return None if self.table is None else last_summary(self.table, writer, near=near)


class SinkTable(CommitTable):
    """The table of a query of its own, or of a batch. `due` if its maintenance was requested."""

    name = ITS_TABLE

    def __init__(self, writer: TableWriter, *, due: bool = False) -> None:
        self._due = due
        self.writer = writer_id(writer.target)
        self.target = writer.target
        self.outputs = writer.outputs
        self.state = self._state = LoadedTable(writer)
        self._start = TableStart(writer)
        self._created = False

    def start(self, last: LastCommit | None, results: Sequence[TaskResult] = ()) -> TableStart | None:
        """Return the batch's start; an absent table is made, unless nothing happened: then a repeat repeats nothing."""
        state = self._state
        if last is not None:
            last.check(state, self.target.location, state.transaction(APP_PREFIX + self.writer), self.writer)
        if state.table is None:
            if not any(result.rows or result.bounds for result in results):
                return None
            if self._created:
                raise TableError(
                    f"the table at {self.target.location} was removed during a commit",
                    expected="one query writing to the table at a time",
                    hint="restart this query; it repeats the batch",
                )
            state.table = create_table(self.target, self._start.writer.layout)
        self._created = True
        return self._start

    def check(self, start: TableStart) -> None:
        """Refuse a table of another layout: another history leaves the files as they are."""
        start.writer.layout.check_recorded(self._loaded, self.target.location)

    def numbers(self, start: TableStart) -> dict[str, int]:
        del start
        return RowNumberOffset.of(self.target, self.writer, self._state.transaction).transactions()

    def put(self, change: TableCommit, made: list[str]) -> bool:
        table = self._loaded
        # What is loaded is shared by all that this process writes to the table, and may have moved on.
        if table.version() != change.upon:
            return False
        merges = change.merged.merges
        if any(merge.replacement.parts_of(merge.held.rows) for merge in merges) or self._puts_entry(table):
            if put_change(change, replay_log(self.target, table), made) is None:
                return False
            self._checkpoint(table)
        elif not self._replace_buckets(table, change):
            return False
        return True

    def overdue(self) -> int:
        return 0

    def maintain(self, clock_us: Callable[[], int]) -> None:
        maintain(self.target, self._loaded, clock_us, due=self._due)
        self._due = False

    def maintain_unchanged(self, clock_us: Callable[[], int]) -> None:
        """Do the requested maintenance after a batch that changed nothing."""
        if self._due and self._state.table is not None:
            self.maintain(clock_us)

    @property
    def _loaded(self) -> DeltaTable:
        assert self._state.table is not None, "there is a table from its start on"
        return self._state.table

    def _puts_entry(self, table: DeltaTable) -> bool:
        """Return True if commits of whole buckets write their log entry here, in a third of the time of delta-rs."""
        if not self.target.is_local:
            return False
        if not self.target.is_durable:
            if not may_put_entries(self.target, table):
                return False
            try:
                replay_log(self.target, table)
            except TableError:  # a log in a form that is not followed here
                return False
        return True

    def _checkpoint(self, table: DeltaTable) -> None:
        """Write a checkpoint of the log after a commit, if one is due and maintenance, which makes them, is off."""
        from deltalake.exceptions import DeltaError

        if (table.version() + 1) % _CHECKPOINT_EVERY == 0 and self.target.options.maintenance == "off":
            # The commit is made whether this works or not; the log is only read more slowly without.
            with contextlib.suppress(DeltaError):
                table.update_incremental()
                table.create_checkpoint()

    def _replace_buckets(self, table: DeltaTable, change: TableCommit) -> bool:
        """Commit by delta-rs, and return True; return False if another writer has taken the version."""
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import AddAction

        adds: list[Any] = [
            AddAction(file.path, file.size, {BUCKET: str(file.bucket)}, change.at_ms, True, file.stats)
            for file in change.merged.rows
        ]
        touched = [str(merge.bucket) for merge in change.merged.merges if merge.replaced]
        try:
            table.create_write_transaction(
                adds,
                "overwrite" if touched else "append",
                table.schema(),
                [BUCKET],
                [(BUCKET, "in", touched)] if touched else None,
                commit_properties=CommitProperties(
                    custom_metadata=dict(change.info),
                    # Retrying by itself, it would pass over what another program appended to these buckets.
                    max_commit_retries=0,
                    app_transactions=[Transaction(name, number) for name, number in change.numbers.items()],
                ),
                post_commithook_properties=commit_hooks(on=self.target.options.maintenance == "off"),
            )
        except (DeltaError, OSError) as error:
            after = load_table(self.target)
            if after is not None and after.version() > change.upon:
                return False
            raise TableError(
                f"batch {change.summary.batch_id} cannot be committed to the table at {self.target.location}: "
                f"{self.target.masked(error)}",
                hint="check that the folder is writable and has room; the restarted query repeats the batch",
            ) from error
        return True


class SinkCommit:
    """The commit of batches to the table of a query of its own, or of a batch."""

    def __init__(self, writer: TableWriter, clock_us: Callable[[], int] = now_us) -> None:
        self._writer = writer
        self._clock_us = clock_us

    def commit(self, results: Sequence[TaskResult], batch_id: int) -> CommitSummary | None:
        """Make the batch visible; return None if it was empty or is a repeat. Errors as of :class:`BatchCommit`."""
        began_us = self._clock_us()
        target = self._writer.target
        if target.application is not None:
            return self._commit(SinkTable(self._writer), results, batch_id, target.offsets)
        noted = read_offsets(target.checkpoint_folder, batch_id)
        record = _record(noted)
        settings: Mapping[str, Any] = {} if record is None else record[SINK]
        if record is not None and SAMPLE in settings:
            self._sample(results, batch_id, record)
        due = "maintenance" in settings
        if due:
            before = _record(read_offsets(target.checkpoint_folder, batch_id - 1))
            due = settings["maintenance"] > (0 if before is None else before[SINK].get("maintenance", 0))
        table = SinkTable(dataclasses.replace(self._writer, target=_controlled(target, settings, due=due)), due=due)
        table.times = BatchTimes.of(noted, [(each.rows_s, each.merge_s) for each in results], began_us)
        return self._commit(table, results, batch_id, offsets_digest(noted))

    def _sample(self, results: Sequence[TaskResult], batch_id: int, record: ControlRecord) -> None:
        """Write the sample that a control requested, from the first batch with rows after it.

        A repeat of the batch may find its rows in the table already, so the first attempt's sample stays.
        """
        asked = record[SINK][SAMPLE]
        taken = taken_in(record["taken"], asked)
        merges = sorted((merge for result in results for merge in result.merges), key=lambda merge: merge.bucket)
        fresh = [merge for merge in merges if merge.rows is not None and merge.rows.fresh]
        if not fresh or taken is None or batch_id > taken[0] + _LOOKED_AT:
            return
        place = sample_folder(self._writer.target.checkpoint_folder, SINK)
        if any(each.version >= asked for each in read_reports(place, RowSample)):
            return
        count, parts = RowSample.share(0, 1), list[pa.Table]()
        for merge in fresh:
            parts.append(self._writer.merger.came_with(merge).rows.slice(0, count))
            if sum(each.num_rows for each in parts) >= count:
                break
        write_report(place, RowSample.of(0, asked, batch_id, pa.concat_tables(parts), count))

    def _commit(
        self, table: SinkTable, results: Sequence[TaskResult], batch_id: int, offsets: str | None
    ) -> CommitSummary | None:
        summary = self._committer().commit({ITS_TABLE: (table, results)}, batch_id, offsets).get(ITS_TABLE)
        if summary is None:
            table.maintain_unchanged(self._clock_us)
        return summary

    def discard(self, results: Sequence[TaskResult]) -> None:
        """Remove what an attempt staged."""
        self._committer().discard({ITS_TABLE: (SinkTable(self._writer), results)})

    def _committer(self) -> BatchCommitter:
        target = self._writer.target
        return BatchCommitter(target.checkpoint_folder if target.application is None else None, self._clock_us)


def _record(noted: bytes | None) -> ControlRecord | None:
    """Return the record of the controls in the journaled offsets of a batch."""
    return None if noted is None or b'"control"' not in noted else newest_record(offsets_in(noted))


def _controlled(target: SinkTarget, settings: Mapping[str, Any], *, due: bool) -> SinkTarget:
    """Return a query's target with the settings that a batch has."""
    options = target.options
    if "target" in settings:
        text = settings["target"]
        options = dataclasses.replace(options, target=None if text == NO_LIMIT else StalenessTarget.parse(text))
    return dataclasses.replace(target, options=dataclasses.replace(options, maintenance="auto") if due else options)
