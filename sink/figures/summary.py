"""The summary that each commit records in the table's log: a queue's figures, a run's, the table's freshness."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...conf.column_names import quoted, quoted_text
from ...conf.locations import absolute_location
from ...core.feedback.ages import Ages, Staleness
from ...core.feedback.offsets import SourceCounts, journaled_at_us, offsets_in
from ...core.feedback.reports import QueueReport
from ...core.watermark.bounds import AFTER_ALL, BEFORE_ALL
from ...delta_format.latest_table import METADATA_KEY, NOTHING_YET, recorded_under
from ...delta_format.log import commit_info, commit_infos, entry_place
from ...storage.folder import TableFolder
from ..spec.maintenance_rules import MaintenanceResult

if TYPE_CHECKING:
    from deltalake import DeltaTable


@dataclasses.dataclass(frozen=True)
class QueueFigures:
    """One batch of a queue, all shards together."""

    clock_us: int  # the batch's plan, at which its rows are dequeued; epoch microseconds
    arrived: int
    applied: int
    superseded: int  # updates of this batch that a newer one of their key replaced
    older: int  # of the superseded, the late ones
    conflicts: int  # pairs with one key and time but different payloads
    shed: int  # rows dropped by random shedding
    # ages of the applied rows at `clock_us`; quantiles within 4.5 %; None if there are none
    staleness: Staleness | None
    outdated: int = 0  # of the superseded, those older than a row of their key that the queue had applied

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> QueueFigures:
        known = dict(value)
        if known["staleness"] is not None:
            known["staleness"] = Staleness(**known["staleness"])
        return cls(**known)


@dataclasses.dataclass(frozen=True)
class QueueBacklog:
    """A queue's figures in a batch, and the backlog after it."""

    did: QueueFigures
    pending: int  # rows that wait
    oldest_us: int | None  # since when the oldest of them waits


def look_at_queue(queues: Sequence[Sequence[QueueReport]], batch_id: int) -> QueueBacklog | None:
    """Return the state of a query's queues after a batch, by their reports; None if no queue had a part in it.

    A batch skips the shards that got neither rows nor a tick: for those, the last report counts. A queue without any
    report of this batch no longer counts: the query has lost it.
    """
    took_part = [part for part in ([each for each in queue if each.batch_id == batch_id] for queue in queues) if part]
    if not took_part:
        return None
    # Rows pass the queues in this order: they arrive at the first, and what the last delivers is what the sink gets.
    mine, first, last = [each for part in took_part for each in part], took_part[0], took_part[-1]
    reports = [each for queue in queues for each in queue]
    did = QueueFigures(
        clock_us=max(report.now_us for report in mine),
        arrived=sum(report.arrived for report in first),
        applied=sum(report.applied for report in last),
        superseded=sum(report.superseded for report in mine),
        older=sum(report.older for report in mine),
        conflicts=sum(report.conflicts for report in mine),
        shed=sum(report.shed for report in mine),
        staleness=Ages.together(report.ages for report in last).figures(),
        outdated=sum(report.outdated for report in mine),
    )
    oldest = [report.oldest_us for report in reports if report.waiting and report.oldest_us is not None]
    return QueueBacklog(did, sum(report.waiting for report in reports), min(oldest, default=None))


@dataclasses.dataclass(frozen=True)
class BatchTimes:
    """Moments of a batch, and the seconds of its slowest task. None is unknown."""

    planned_us: int | None  # when the first source looked for input
    chosen_us: int | None  # when all sources had chosen their input
    rows_s: float  # the slowest task waited for rows
    merge_s: float  # it merged rows into the table, and wrote files
    began_us: int  # when all tasks had ended, and the commit began

    @classmethod
    def of(cls, noted: bytes | None, tasks: Sequence[tuple[float, float]], began_us: int) -> BatchTimes:
        """Return the times of a batch from its journaled offsets and each task's seconds for rows and for the rest."""
        rows_s, merge_s = max(tasks, key=sum, default=(0.0, 0.0))
        planned = (
            []
            if noted is None
            else [
                each["now_us"]
                for each in offsets_in(noted)
                if isinstance(each, dict) and "progress" in each and "now_us" in each
            ]
        )
        chosen_us = None if noted is None else journaled_at_us(noted)
        return cls(min(planned, default=None), chosen_us, round(rows_s, 4), round(merge_s, 4), began_us)


_LOG_ENTRY = re.compile(r"(\d{20})\.json")
_LOOK_BACK = (1, 16, 256)
APP_PREFIX = "upstream-"
"""Begins the application of a writer's transactions."""


@dataclasses.dataclass(frozen=True)
class CommitSummary:
    """The account of one commit.

    Attributes
    ----------
    batch_id : int
        Spark's number of the micro-batch.
    query_id : str
        The id of the query's checkpoint.
    committed_at_us : int
        Microseconds since the epoch.
    rows : int
        Rows received, without punctuation.
    updates : int
        Updates that these rows represent, including rows that the source coalesced.
    applied : int
        Keys whose row in the table changed or left.
    superseded : int
        Updates that changed nothing in the table: `updates` - `applied`. The batch or the table had a newer row or a
        deletion, or an update deleted an absent key.
    older : int
        Keys whose newest row of the batch was older than the table's row, or its deletion. A key in several tasks
        (`stray_buckets`) counts once, unless a task has more than 65,536 such keys. With a history of several rows per
        key, rows count, as in `applied`.
    keys : int or None
        Rows in the table after the commit; None if a foreign file has no row count.
    low_watermarks : mapping of str to int, float, str or None
        The time before which each feed is complete, as the time column has it: ISO text or a number. None once the feed
        has ended, and :data:`~upstream.delta_format.latest_table.NOTHING_YET` while it has too few rows.
    low_watermark : int, float, str or None
        The least of the feeds that have not ended. None if there is no such feed, or one has too few rows.
    staleness : Staleness or None
        Ages in seconds of the applied rows; None if rows have no time of arrival.
    stray_buckets : int
        Buckets that came in several tasks, and were merged again: the query should repartition by bucket.
    deleted : int
        The `applied` keys whose row left the table.
    absent : int
        Deleted keys of which the table had no row.
    ages : Ages or None
        The distribution behind `staleness`, which can be summed over commits; None as there.
    area : (float, float) or None
        The staleness that this commit ended, summed over the time of the applied keys, in key square seconds: a lower
        and an upper bound.
    queue : QueueFigures or None
        The figures of the query's queue for this batch; None if it has none. An update that it superseded counts in
        `superseded` once its key is applied.
    pending : int or None
        Keys that wait in the queue after this batch; with the policy ``append``, rows.
    oldest : float or None
        The age in seconds, at the commit, of the oldest waiting update; None without one.
    target : str or None
        The bound of staleness, if the query has one.
    target_met : bool or None
        Whether the batch met it; a bound for ``max`` includes the oldest waiting update. None if nothing was applied.
    needed_rows_per_s : float or None
        The rows per second that would meet a missed target; None if it is unknown, or no rate would.
    needed_budget : int or None
        The same in rows per batch, at the present pace of batches.
    conflicts : int
        Pairs of rows with the same key and time, but different content, in this batch or between batch and table. The
        later arrival stays.
    late : int or None
        Rows with a time below the committed low-watermark of their feed; None without an output for them.
    no_text : int or None
        Rows with text that is not UTF-8, written to the dead-letter table and not among the `updates`; None without an
        output for them.
    sources : SourceCounts or None
        The counts of the query's sources from the beginning of its checkpoint to this batch; None if they do not read
        all rows.
    maintained : Maintained or None
        The work of maintenance after this process's previous commit; None if it was not due.
    times : BatchTimes or None
        Where the batch spent its time; None for a batch of hosted queries.
    """

    batch_id: int
    query_id: str
    committed_at_us: int
    rows: int
    updates: int
    applied: int
    superseded: int
    older: int
    keys: int | None
    low_watermarks: Mapping[str, Any]
    low_watermark: Any
    staleness: Staleness | None
    stray_buckets: int = 0
    deleted: int = 0
    absent: int = 0
    ages: Ages | None = None
    area: tuple[float, float] | None = None
    queue: QueueFigures | None = None
    pending: int | None = None
    oldest: float | None = None
    target: str | None = None
    target_met: bool | None = None
    needed_rows_per_s: float | None = None
    needed_budget: int | None = None
    conflicts: int = 0
    late: int | None = None
    no_text: int | None = None
    sources: SourceCounts | None = None
    maintained: MaintenanceResult | None = None
    times: BatchTimes | None = dataclasses.field(default=None, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value, the inverse of :meth:`from_json`."""
        value = {**vars(self), "low_watermarks": dict(self.low_watermarks)}
        # Part by part, since a batch may have a thousand commits, and `asdict` copies each value of each of them.
        parts = {"queue": self.queue, "sources": self.sources, "maintained": self.maintained, "times": self.times}
        for name, part in parts.items():
            value[name] = None if part is None else dataclasses.asdict(part)
        value["staleness"] = None if self.staleness is None else {**vars(self.staleness)}
        value["ages"] = None if self.ages is None else self.ages.to_json()
        # Most queries have no queue, and many no target: what is not there takes no room in the log.
        return {name: each for name, each in value.items() if each is not None or name not in _MAY_BE_ABSENT}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CommitSummary:
        """Return the summary that :meth:`to_json` described."""
        parts = {name: part(value[name]) for name, part in _PARTS.items() if value.get(name) is not None}
        return cls(**{**value, **parts})


_PARTS: dict[str, Callable[[Any], Any]] = {
    "staleness": lambda value: Staleness(**value),
    "ages": Ages.from_json,
    "area": tuple,
    "queue": QueueFigures.from_json,
    "sources": lambda value: SourceCounts(**value),
    "maintained": lambda value: MaintenanceResult(**value),
    "times": lambda value: BatchTimes(**value),
}
_MAY_BE_ABSENT = frozenset(
    field.name for field in dataclasses.fields(CommitSummary) if field.default is not dataclasses.MISSING
)


def last_summary(
    table: DeltaTable, query_id: str, batch_id: int | None = None, near: int | None = None
) -> CommitSummary | None:
    """Return the most recent summary of a query, or of one of its batches; see :func:`last_commit`."""
    found = last_commit(table, query_id, batch_id, near)
    return None if found is None else found[0]


def last_commit(
    table: DeltaTable, query_id: str, batch_id: int | None = None, near: int | None = None
) -> tuple[CommitSummary, Mapping[str, Any]] | None:
    """Return the last summary, with metadata, of a query or of its `batch`; look near the version `near` first."""
    newer = None if near is None else table.version() - near + 1
    limits = sorted({*_LOOK_BACK} if newer is None or newer < 1 else {*_LOOK_BACK, newer})
    for limit in (*limits, None):
        history = commit_infos(table, limit)
        for entry in history:
            summary = summary_of(entry)
            if summary is None or summary.query_id != query_id:
                continue
            if batch_id in (None, summary.batch_id):
                return summary, entry
            if summary.batch_id < batch_id:
                return None  # its number grows
        if limit is None or len(history) < limit:
            break
        if limit == _LOOK_BACK[-1] and table.transaction_version(f"{APP_PREFIX}{query_id}") is None:
            break  # it has never committed: there is nothing to be found
    return None


def summaries_after(table: DeltaTable, query_id: str, batch_id: int) -> list[CommitSummary]:
    """Return the summaries of a query's batches after one, oldest first, as far back as the log goes."""
    for limit in (*_LOOK_BACK, None):
        history = commit_infos(table, limit)
        mine = [each for each in map(summary_of, history) if each is not None and each.query_id == query_id]
        if limit is None or len(history) < limit or any(each.batch_id <= batch_id for each in mine):
            return [each for each in reversed(mine) if each.batch_id > batch_id]
    raise AssertionError("unreachable: the last look has no limit")


def read_summaries(
    path: str, after_version: int = -1, storage_options: Mapping[str, str] | None = None
) -> list[tuple[int, CommitSummary]]:
    """Return the summaries of commits after a version, at one failed look-up if none; see ``LatestTable.history``."""
    folder = TableFolder(absolute_location(path), storage_options or {})

    def summary(version: int) -> CommitSummary | None:
        with contextlib.suppress(FileNotFoundError):
            info = commit_info(folder, version)
            return None if info is None else summary_of(info)
        return None

    with folder.guarded():
        versions = _versions_after(folder, after_version)
        found = zip(versions, folder.each(summary, versions), strict=True)
        return [(version, each) for version, each in found if each is not None]


def _versions_after(folder: TableFolder, version: int) -> list[int]:
    following: list[int] = []
    while folder.is_local and folder.has(entry_place(version + 1 + len(following))):
        following.append(version + 1 + len(following))
    if following or (folder.is_local and version >= 0 and folder.has(entry_place(version))):
        return following
    # The log may have been trimmed beyond that version; in a store, to list is one request.
    found = (_LOG_ENTRY.fullmatch(name) for name in folder.names("_delta_log"))
    return sorted(number for match in found if match and (number := int(match.group(1))) > version)


def summary_of(commit_info: Mapping[str, Any]) -> CommitSummary | None:
    """Return the summary in a commit's metadata; None if it has none."""
    recorded = recorded_under(METADATA_KEY, commit_info)
    return CommitSummary.from_json(recorded) if recorded is not None and "batch_id" in recorded else None


@dataclasses.dataclass(frozen=True)
class RunFigures:
    """The figures of one query's commits, added up. Times are in seconds."""

    commits: int
    updates: int
    applied: int
    superseded: int
    seconds: float  # from the first arrival among the first commit's rows to the last commit
    # application staleness of all applied rows; quantiles within 4.5 %; None without arrivals
    staleness: Staleness | None
    # bounds on a key's average staleness over time; None without arrivals or row counts
    over_time: tuple[float, float] | None
    pending: int | None  # keys that wait after the last commit; None without a queue
    oldest: float | None  # age of the oldest update that waits then
    target_met: float | None  # share of the commits with a verdict that met their target


def run_staleness(
    path: str, after_version: int = -1, storage_options: Mapping[str, str] | None = None
) -> RunFigures | None:
    """Return the figures of the query that last wrote to a table; see :meth:`~upstream.LatestTable.staleness`."""
    return run_figures([summary for _, summary in read_summaries(path, after_version, storage_options)])


def run_figures(summaries: Sequence[CommitSummary]) -> RunFigures | None:
    """Return the figures of some commits, oldest first; only those of the last query count. None without commits."""
    if not summaries:
        return None
    last = summaries[-1]
    mine = [each for each in summaries if each.query_id == last.query_id]
    ages = Ages.together(each.ages for each in mine if each.ages is not None)
    begun_us = mine[0].committed_at_us - (0 if mine[0].ages is None else mine[0].ages.max_s * 1e6)
    seconds = max(last.committed_at_us - begun_us, 0) / 1e6
    verdicts = [each.target_met for each in mine if each.target_met is not None]
    return RunFigures(
        commits=len(mine),
        updates=sum(each.updates for each in mine),
        applied=sum(each.applied for each in mine),
        superseded=sum(each.superseded for each in mine),
        seconds=seconds,
        staleness=ages.figures(),
        over_time=_over_time(mine, seconds) if ages.count else None,
        pending=last.pending,
        oldest=last.oldest,
        target_met=sum(verdicts) / len(verdicts) if verdicts else None,
    )


def _over_time(summaries: Sequence[CommitSummary], seconds: float) -> tuple[float, float] | None:
    last = summaries[-1]
    if not last.keys or seconds <= 0:
        return None
    areas = [each.area for each in summaries if each.area is not None]
    waiting, oldest = last.pending or 0, last.oldest or 0.0
    least, most = sum(area[0] for area in areas), sum(area[1] for area in areas) + waiting * oldest**2 / 2
    # A key that waits may be one that the table does not have yet.
    return least / ((last.keys + waiting) * seconds), most / (last.keys * seconds)


HISTORY_KEY = "userMetadata"
"""Where Delta has a commit's words for people: Spark's ``DESCRIBE HISTORY`` shows them, and nothing else of a commit's
metadata.
"""


def complete_up_to_us(low_watermark: Any) -> int | None:
    """Return a recorded low-watermark in epoch microseconds; None if there is none or the time column has numbers."""
    if not isinstance(low_watermark, str) or low_watermark == NOTHING_YET:
        return None
    return int(np.datetime64(low_watermark.removesuffix("Z"), "us").astype(np.int64))


def recorded_bound(bound: int) -> str | None:
    """Return a bound in epoch microseconds as commits record it."""
    if bound == AFTER_ALL:
        return None
    return NOTHING_YET if bound == BEFORE_ALL else f"{np.datetime64(bound, 'us')}Z"


def history_note(summary: CommitSummary) -> str:
    """Return the note on a commit for ``DESCRIBE HISTORY``, as JSON."""
    note: dict[str, Any] = {
        "committed_at": f"{np.datetime64(summary.committed_at_us, 'us')}Z",
        "complete_up_to": summary.low_watermark,
        "keys": summary.keys,
    }
    if summary.staleness is not None:
        note["staleness_p99_s"] = summary.staleness.p99
    if summary.pending is not None:
        note |= {"pending": summary.pending, "oldest_s": summary.oldest}
    return json.dumps(note)


def freshness_view(metrics: str, table: str) -> str:
    """Return Spark SQL for one row: the table's freshness at the moment of the query. Both locations are absolute."""
    last = f"FROM delta.{quoted(metrics)} WHERE table = {quoted_text(table)} ORDER BY committed_at DESC LIMIT 1"
    return (
        "SELECT committed_at, complete_up_to, low_watermark, keys, pending, oldest_s, staleness_p50_s, "
        "staleness_p99_s, "
        "timestampdiff(MICROSECOND, committed_at, current_timestamp()) / 1e6 AS since_commit_s, "
        f"timestampdiff(MICROSECOND, complete_up_to, current_timestamp()) / 1e6 AS behind_s {last}"
    )
