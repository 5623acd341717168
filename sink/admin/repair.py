"""``upstream repair``: repair the findings of ``upstream check``, one bucket in memory at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from ...conf.errors import TableError
from ...conf.progress import tracked
from ...conf.units import now_us
from ...core.rows.buckets import bucket_of
from ...core.rows.columns import columns_at
from ...delta_format.deletion_vectors import VECTORS
from ...storage.folder import is_inside
from ..merge.batch_rows import as_pending
from ..merge.newest_rows import newest_rows
from ..table.contents import TableContents, Unreadable, commit_command, is_own, rows_recorded
from ..table.table import TableChange
from ..table.tombstones import APP_ID, FOLDER
from .check import BucketState, look_at, look_at_log, newer

if TYPE_CHECKING:
    from ..table.files import StagedFile


_HOUR_US = 3_600_000_000
_WEEK_US = 168 * _HOUR_US


@dataclasses.dataclass(frozen=True)
class Repairs:
    """The result of a repair, or of a dry run."""

    location: str
    version: int  # after the repair
    done: tuple[str, ...]  # a sentence each; empty if there was nothing to mend
    left: tuple[str, ...]  # faults that cannot be mended
    rows_before: int = 0  # with the known row counts of unreadable files
    rows_after: int = 0
    version_before: int = 0  # the version to go back to


def repair_table(
    path: str,
    *,
    storage: Mapping[str, str] | None = None,
    dry_run: bool = False,
    orphans: bool = False,
    retention_us: int = _WEEK_US,
    force: bool = False,
) -> Repairs:
    """Repair a table; see :meth:`~upstream.LatestTable.repair`.

    One commit replaces the faulty buckets by the newest readable row of each key, from whichever bucket holds it. If a
    file cannot be read, but nothing proves that it is damaged, the repair changes nothing.
    """
    with TableContents.opened(path, storage) as contents:
        return _repair(contents, dry_run=dry_run, orphans=orphans, retention_us=retention_us, force=force)


def _repair(contents: TableContents, *, dry_run: bool, orphans: bool, retention_us: int, force: bool) -> Repairs:
    before = contents.snapshot.version
    log = look_at_log(contents)
    states = [look_at(contents, bucket)[0] for bucket in tracked(contents.buckets, "buckets")]
    _check_proven(contents, states)
    wrong = {state.bucket for state in states if not state.is_right}
    touched = sorted(wrong.union(*(state.misplaced for state in states)))
    unburied = [state for state in states if state.unburied is not None]
    done = [*_plan(states), *(_forgotten(state) for state in unburied)]
    recorded = rows_recorded(contents.table)
    if not done and recorded is not None and recorded.rows != sum(state.rows for state in states):
        done.append(
            f"a count of {sum(state.rows for state in states):,} rows is recorded in place of {recorded.rows:,}"
        )
    checkpoint = any(mends for _, mends in log.problems)
    if checkpoint:
        done.append("a checkpoint of the log is written")
    if not (dry_run or force):
        _check_rows_that_go(contents, states)
    rows = sum(state.rows for state in states)
    if done and dry_run:
        rows = _kept(states, touched) + sum(_newest(contents, bucket, states).num_rows for bucket in touched)
    elif done:
        rows = _commit(contents, states, touched, [state.bucket for state in unburied], done)
    if checkpoint and not dry_run:
        # Of a version of its own: where there is a checkpoint, none is rewritten.
        contents.table.update_incremental()
        contents.table.create_checkpoint()
    if orphans:
        found = _orphans(contents, now_us() - retention_us)
        done += [f"the file {each} is removed: no version within the retention needs it" for each in found]
        if not dry_run:
            contents.files.remove(found)
    left = tuple(text for text, mends in log.problems if not mends)
    rows_before = sum(state.rows + (state.lost or 0) for state in states)
    return Repairs(contents.target.location, contents.table.version(), tuple(done), left, rows_before, rows, before)


def _check_proven(contents: TableContents, states: Sequence[BucketState]) -> None:
    """Refuse to repair a table that could not be read: it may be in order."""
    found = [file for state in states for file in (*state.unreadable, state.unburied) if file is not None]
    unproven = [file for file in found if not file.proven]
    if unproven:
        raise _unread(contents, unproven[0], len(unproven) - 1)


def _unread(contents: TableContents, file: Unreadable, more: int = 0) -> TableError:
    others = f" (and {more} more)" if more else ""
    hint = (
        "check permissions, limits of open files, and the store, and rerun. If the file is damaged, restore it from a "
        "copy, or move it away: then `upstream repair --force` removes it from the table"
        if is_inside(file.path)
        else "restore the file there, or fill a table of its own from the input"
    )
    return TableError(
        f"the file {file.path}{others} of the table at {contents.target.location} cannot be read, and nothing shows "
        f"that it is damaged: {file.reason}",
        expected="a file that can be read; or one that is missing, or of which the size or the footer is wrong, on a "
        "second look",
        hint=hint + ". Nothing has changed",
    )


def _check_rows_that_go(contents: TableContents, states: Sequence[BucketState]) -> None:
    going: list[str] = []
    if damaged := [file for state in states for file in state.unreadable]:
        lost = [state.lost for state in states if state.unreadable]
        rows = "an unknown number of rows" if None in lost else f"{sum(each or 0 for each in lost):,} rows"
        going.append(
            f"{rows} in {len(damaged)} files that are gone or damaged (such as {damaged[0].path}: {damaged[0].reason})"
        )
    if overruled := sum(state.overruled for state in states):
        going.append(f"{overruled:,} rows that are older than a deletion of their key")
    if going:
        raise TableError(
            f"the repair of the table at {contents.target.location} would take out rows that are not duplicates: "
            f"{'; '.join(going)}",
            expected="--force (force=True), which permits that",
            hint="restore missing files from a copy if there is one. Look at `upstream repair --dry-run`, then repair "
            "with --force. Nothing has changed",
        )


def _plan(states: Sequence[BucketState]) -> list[str]:
    done: list[str] = []
    for state in states:
        where = f"bucket {state.bucket}"
        done += [
            f"{where}: the data file {file.path} is taken out of the table: {file.reason}" for file in state.unreadable
        ]
        if state.unreadable:
            lost = "an unknown number of" if state.lost is None else f"{state.lost:,}"
            done.append(
                f"{where}: {lost} rows are lost with it; write them again, for example with upstream.write_batch"
            )
        if state.duplicates:
            done.append(
                f"{where}: of keys with more rows than the table keeps the newest stay; {state.duplicates:,} rows go"
            )
        if state.misplaced:
            done.append(f"{where}: {sum(state.misplaced.values()):,} rows are moved to their buckets")
        if state.overruled:
            done.append(f"{where}: {state.overruled:,} rows that are older than a deletion of their key go")
    return done


def _forgotten(state: BucketState) -> str:
    assert state.unburied is not None
    return (
        f"bucket {state.bucket}: the deletions in {state.unburied.path} are forgotten ({state.unburied.reason}): "
        "older rows that come late bring deleted keys back"
    )


def _commit(
    contents: TableContents,
    states: Sequence[BucketState],
    touched: Sequence[int],
    unburied: Sequence[int],
    done: Sequence[str],
) -> int:
    """Commit the repair; return the table's number of rows afterwards."""
    rows = _kept(states, touched)
    with TableChange(contents.target, contents.table, contents.files) as change:
        for bucket in touched:
            rows += change.replace(contents.snapshot.of_bucket(bucket).rows, [_written_anew(contents, bucket, states)])
        held = contents.snapshot.tombstones
        deletions = held.without(unburied)
        deletions.write(contents.files, held, change.wrote)
        _check_count(contents, states, rows)
        numbers = {APP_ID: deletions.number}
        commit_command(contents, change, "WRITE", done, rows, numbers=numbers, meanwhile="during the repair")
    return rows


def _kept(states: Sequence[BucketState], touched: Sequence[int]) -> int:
    return sum(state.rows for state in states if state.bucket not in touched)


def _check_count(contents: TableContents, states: Sequence[BucketState], rows: int) -> None:
    """Refuse a result with fewer rows than the first look explains."""
    if contents.layout.history.count not in (None, 1):
        return  # of several rows of a key those of one time count once
    least = sum(state.rows - state.duplicates - state.overruled - sum(state.misplaced.values()) for state in states)
    if rows < least:
        raise TableError(
            f"the repair of the table at {contents.target.location} would leave {rows:,} rows, and at least {least:,} "
            "are right",
            expected="the same rows whenever the table is read",
            hint="stop the queries that write to the table, and rerun. Nothing has changed",
        )


def _written_anew(contents: TableContents, bucket: int, states: Sequence[BucketState]) -> StagedFile | None:
    """Stage one file with the newest rows that belong to the bucket; return None if there are none."""
    newest = _newest(contents, bucket, states)
    return None if newest.num_rows == 0 else contents.files.stage(newest, bucket, 0)


def _newest(contents: TableContents, bucket: int, states: Sequence[BucketState]) -> pa.Table:
    """Return the newest row of each key that belongs to the bucket, from whichever bucket it is in."""
    layout, none = contents.layout, contents.files.schema.empty_table()
    forgotten = any(state.bucket == bucket and state.unburied is not None for state in states)
    try:
        with_rows = [state for state in states if state.bucket == bucket or bucket in state.misplaced]
        rows = pa.concat_tables([none, *(_belonging(contents, state, bucket) for state in with_rows)])
        buried = none.select(layout.deciding) if forgotten else contents.buried(bucket)
    except Unreadable as found:  # it could be read at the first look
        raise _unread(contents, found) from found
    newest = newest_rows(as_pending(rows), layout).rows
    return newest.filter(pa.array(newer(buried, newest.select(layout.deciding), layout, or_equal=True)))


def _belonging(contents: TableContents, source: BucketState, bucket: int) -> pa.Table:
    """Return the readable rows in the bucket `source` that belong to `bucket`."""
    layout, parts = contents.layout, [contents.files.schema.empty_table()]
    damaged = {file.path for file in source.unreadable}  # said and counted before
    for path in contents.snapshot.of_bucket(source.bucket).rows:
        if path not in damaged:
            rows = contents.rows(path)
            mine = bucket_of(columns_at(rows, layout.key), layout.buckets) == bucket if layout.key else None
            parts.append(rows if mine is None else rows.filter(pa.array(mine)))
    return pa.concat_tables(parts)


def _orphans(contents: TableContents, before_us: int) -> list[str]:
    """Return the paths, relative to the table, of orphaned files last changed before a moment.

    VACUUM finds the data files: of those, files that the log names or a batch left. It passes over tombstone files.
    """
    hours = max(-(-(now_us() - before_us) // _HOUR_US), 0)
    named, every = (
        contents.table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=full)
        for full in (False, True)
    )
    found = {*named, *filter(is_own, every)}
    held = contents.snapshot.named()
    # Which vectors a version within the retention needs is known to maintenance, not to VACUUM.
    found = {each for each in found if not each.startswith(f"{VECTORS}/")}
    return sorted({*found, *_old_deletions(contents, FOLDER, before_us)} - held)


def _old_deletions(contents: TableContents, folder: str, before_us: int) -> list[str]:
    found: list[str] = []
    for each in contents.target.folder.listing(folder):
        if each.is_folder:
            found += _old_deletions(contents, f"{folder}{each.name}/", before_us)
        elif each.modified_us < before_us and is_own(folder + each.name):
            found.append(folder + each.name)
    return found
