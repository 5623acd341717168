"""One Delta commit for a batch, made once whatever happens between its steps.

Files are staged under names of their own and become visible by the commit alone, which also records (query id, batch id) and what
feeds have promised. So a process may die between any two steps: before step 6 nothing has happened but orphaned files, which
VACUUM removes; after it, the repeated batch is recognised in step 3.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ..conf.errors import CheckpointError, TableError
from .files import DataFiles, StagedFile
from .layout import BUCKET, Layout
from .merge import Pending, concat_pending, later_bound
from .options import SinkTarget
from .staleness import Arrivals
from .summary import METADATA_KEY, CommitSummary, last_summary
from .table import Snapshot, create_table, load_table, take_snapshot
from .task import TaskResult, merge_bucket

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["BatchCommit", "now_us", "read_query_id"]

_APP_PREFIX = "upstream-"
# Others may commit at the same moment without touching what this commit replaces; each time it looks again.
_TRIES = 8


def now_us() -> int:
    """The clock, in microseconds since the epoch."""
    return time.time_ns() // 1000


def read_query_id(checkpoint: str) -> str:
    """The id that Spark gave the query's checkpoint before its first batch.

    Raises
    ------
    CheckpointError
        It cannot be read from here.
    """
    place = f"{checkpoint}/metadata"
    try:
        if "://" in checkpoint:
            import pyarrow.fs as pa_fs

            filesystem, path = pa_fs.FileSystem.from_uri(place)
            with filesystem.open_input_stream(path) as stream:
                return str(json.loads(stream.read())["id"])
        with open(place, encoding="utf-8") as file:
            return str(json.load(file)["id"])
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise CheckpointError(
            f"the query's id cannot be read from {place}: {error}",
            expected="the metadata file that Spark writes when a query starts, readable beside the driver",
            hint="give checkpointLocation as an absolute path or address that the driver's machine can read",
        ) from error


class BatchCommit:
    """Commits the results of a batch's tasks.

    Parameters
    ----------
    target, layout, files
        The table.
    clock_us
        Says when the commit is made.
    """

    def __init__(
        self, target: SinkTarget, layout: Layout, files: DataFiles, clock_us: Callable[[], int] = now_us
    ) -> None:
        self._target = target
        self._layout = layout
        self._files = files
        self._clock_us = clock_us

    def commit(self, results: Sequence[TaskResult], batch_id: int) -> CommitSummary | None:
        """Make the batch visible.

        Returns
        -------
        CommitSummary or None
            None if there was nothing to record: the batch brought nothing, or is a repeat.

        Raises
        ------
        TableError
            Somebody else has changed what this batch replaces, or the store failed.
        CheckpointError
            The query's id cannot be read.
        """
        try:
            # 1. Who writes.
            query_id = read_query_id(self._target.checkpoint)
            # 2. The table, made if this is the first that is written to it.
            table = load_table(self._target)
            if table is None:
                if not any(result.rows or result.bounds for result in results):
                    return None  # nothing happened, and nothing is recorded: if the batch is repeated, that repeats nothing
                table = create_table(self._target, self._layout)
            return self._commit_to(table, results, batch_id, query_id)
        except BaseException:
            with contextlib.suppress(Exception):  # what failed matters more than what is left lying about
                self.discard(path for result in results for path in result.paths())
            raise

    def _commit_to(
        self, table: DeltaTable | None, results: Sequence[TaskResult], batch_id: int, query_id: str
    ) -> CommitSummary | None:
        app_id = _APP_PREFIX + query_id
        staged = [path for result in results for path in result.paths()]
        merged: _Merged | None = None
        for _ in range(_TRIES):
            if table is None:
                break
            # 3. A batch that is in the table already changes nothing.
            recorded = table.transaction_version(app_id)
            if recorded is not None and recorded >= batch_id:
                self.discard([*staged, *(merged.new_paths if merged else [])])
                return None
            # 4. What the tasks merged with must still be what the table holds.
            snapshot = take_snapshot(table)
            self._check_base(results, snapshot)
            # 5. Buckets that came in several tasks are merged once more.
            merged = merged or self._merge_strays(results)
            summary = self._summarise(results, merged, snapshot, last_summary(table, query_id), batch_id, query_id)
            if summary is None:
                return None
            # 6. All or nothing, and only on top of the very version that was checked.
            if self._transact(table, merged.staged, summary, app_id, batch_id):
                # 7. Files that the merge of step 5 made needless.
                self._files.remove(path for path in staged if path not in {file.path for file in merged.staged})
                return summary
            table = load_table(self._target)
        self.discard(merged.new_paths if merged else [])
        raise TableError(
            f"others kept committing to the table at {self._target.location}, or removed it, while batch {batch_id} was to be committed",
            expected="one query writing to the table at a time",
            hint="stop the other writer and restart this query; it repeats the batch",
        )

    def discard(self, paths: Iterable[str]) -> None:
        """Remove staged files, but none that the table holds: the attempt may have been committed although it seemed to fail."""
        table = load_table(self._target)
        held = set() if table is None else set(take_snapshot(table).rows)
        self._files.remove(path for path in paths if path not in held)

    def _check_base(self, results: Sequence[TaskResult], snapshot: Snapshot) -> None:
        for result in results:
            for bucket, seen in result.base.items():
                if snapshot.of_bucket(bucket) != seen:
                    raise TableError(
                        f"bucket {bucket} of the table at {self._target.location} was changed by another writer during this batch",
                        expected="one query writing to the table at a time; OPTIMIZE and the like between batches or while it is stopped",
                        hint="restart the query; it repeats the batch upon the table as it is now",
                    )

    def _merge_strays(self, results: Sequence[TaskResult]) -> _Merged:
        by_bucket: dict[int, list[StagedFile]] = {}
        base: dict[int, tuple[str, ...]] = {}
        for result in results:
            base.update(result.base)
            for file in result.staged:
                by_bucket.setdefault(file.bucket, []).append(file)
        final = [files[0] for files in by_bucket.values() if len(files) == 1]
        new: list[StagedFile] = []
        lost = 0
        strays = {bucket: files for bucket, files in by_bucket.items() if len(files) > 1}
        try:
            for bucket, files in strays.items():
                rows = concat_pending([self._fresh_rows(file) for file in files]).newest(self._layout)
                won, written = merge_bucket(self._files, self._layout, bucket, base[bucket], rows)
                assert written is not None, "rows that won alone win together"
                new.append(written)
                lost += sum(file.fresh for file in files) - int(won.sum())
        except BaseException:
            self._files.remove(file.path for file in new)
            raise
        return _Merged(
            [*final, *new],
            {bucket: base[bucket] for bucket in by_bucket},
            [file.path for file in new],
            lost,
            len(strays),
        )

    def _fresh_rows(self, file: StagedFile) -> Pending:
        reader = self._files.open([file.path])
        rows = reader.read(self._files.schema.names)
        reader.close()
        arrival = None if file.arrival_us is None else np.frombuffer(file.arrival_us, dtype=np.int64)
        return Pending(rows.slice(file.rows - file.fresh), arrival, None, np.ones(file.fresh, dtype=np.int64))

    def _summarise(
        self,
        results: Sequence[TaskResult],
        merged: _Merged,
        snapshot: Snapshot,
        last: CommitSummary | None,
        batch_id: int,
        query_id: str,
    ) -> CommitSummary | None:
        marks = dict(last.low_watermarks) if last else {}
        for result in results:
            for feed, bound in result.bounds.items():
                marks[feed] = later_bound(marks[feed], bound) if feed in marks else bound
        rows = sum(result.rows for result in results)
        if rows == 0 and ((last is not None and marks == last.low_watermarks) or not marks):
            return None
        updates = sum(result.updates for result in results)
        delivered = sum(result.delivered for result in results) - merged.lost
        committed_us = self._clock_us()
        open_marks = [bound for bound in marks.values() if bound is not None]
        return CommitSummary(
            batch_id=batch_id,
            query_id=query_id,
            committed_at_us=committed_us,
            rows=rows,
            updates=updates,
            delivered=delivered,
            superseded=updates - delivered,
            older=sum(result.older for result in results),
            keys=_keys_after(snapshot, merged),
            low_watermarks=dict(sorted(marks.items())),
            low_watermark=min(open_marks, default=None),
            staleness=Arrivals.together([result.arrivals for result in results]).staleness(committed_us),
            stray_buckets=merged.strays,
        )

    def _transact(
        self, table: DeltaTable, staged: Sequence[StagedFile], summary: CommitSummary, app_id: str, batch_id: int
    ) -> bool:
        """Whether the commit was made; False if somebody else has taken the version."""
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import AddAction

        written_ms = summary.committed_at_us // 1000
        adds: list[Any] = [
            AddAction(file.path, file.size, {BUCKET: str(file.bucket)}, written_ms, True, file.stats) for file in staged
        ]
        touched = [str(file.bucket) for file in staged]
        before = table.version()
        try:
            table.create_write_transaction(
                adds,
                "overwrite" if touched else "append",
                table.schema(),
                [BUCKET],
                [(BUCKET, "in", touched)] if touched else None,
                commit_properties=CommitProperties(
                    custom_metadata={METADATA_KEY: summary.to_json()},
                    # Retrying by itself, it would pass over what somebody else appended to these buckets.
                    max_commit_retries=0,
                    app_transactions=[Transaction(app_id, batch_id)],
                ),
            )
        except DeltaError as error:
            after = load_table(self._target)
            if after is not None and after.version() > before:
                return False
            raise TableError(
                f"batch {batch_id} cannot be committed to the table at {self._target.location}: {self._target.masked(error)}",
                hint="check that the folder may be written to and has room; the restarted query repeats the batch",
            ) from error
        return True


@dataclasses.dataclass(frozen=True)
class _Merged:
    """One staged file a bucket, with the files that it replaces; what the merge of strays wrote, and how many rows lost in it."""

    staged: Sequence[StagedFile]
    base: Mapping[int, tuple[str, ...]]
    new_paths: list[str]
    lost: int
    strays: int


def _keys_after(snapshot: Snapshot, merged: _Merged) -> int | None:
    gone = {path for paths in merged.base.values() for path in paths}
    kept = [rows for path, rows in snapshot.rows.items() if path not in gone]
    if any(rows is None for rows in kept):
        return None
    return sum(rows or 0 for rows in kept) + sum(file.rows for file in merged.staged)
