"""``/metrics`` and ``/healthz``: the commits of all tables as metrics for Prometheus, and a verdict for probes."""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..conf.errors import OptionError, UpstreamError
from ..conf.units import format_duration_us, now_us, parse_duration_us
from ..core.feedback.ages import Ages, Staleness
from ..core.feedback.checkpoint_layout import operator_folder
from ..core.feedback.offsets import noted_batches
from ..core.feedback.reports import REPORTS, read_reports
from ..delta_format.latest_table import NOTHING_YET
from ..delta_format.log import entry_place
from ..hosting.host_lease import writer_lease
from ..sink.figures.dead_letters import dead_letter_figures, letter_folders
from ..sink.figures.freshness import HANGS_US, Freshness, JournaledBatch, freshness
from ..sink.figures.summary import CommitSummary, complete_up_to_us
from ..sink.figures.waits import has_ended
from ..storage.folder import TableFolder
from .exposition import Kind, Labels, MetricFamily, accepted

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from .bench import Bench
    from .watch import Watch, WatchedTable

MOST_PARTITIONS = 200
OTHER = "other"
"""The label of all input partitions beyond those that have one of their own."""

_TREND_US = 300_000_000
# The most commits of that time that a trend is computed from, and the least.
_MOST_POINTS, _LEAST_POINTS = 32, 3
# In seconds of lag a second: the end of a smaller change is not worth a prediction.
_SLOPE = 0.01
# What lies beside a table is read again at a new version, or after this.
_READ_AGAIN_US = 30_000_000
_READING_S = 0.4

Samples = Iterable[tuple[Labels, "float | Ages | None"]]


class PartitionLag(NamedTuple):
    """How far the low-watermark of an input partition is behind, in seconds."""

    partition: str
    lag: float  # behind the clock
    behind: float  # behind the most advanced partition
    slope: float | None = None  # how much the lag grows in a second; None if commits are too few
    catch_up: float | None = None  # the time until the lag is 0 at that pace; None unless it shrinks


def partition_lags(commits: Sequence[CommitSummary], now_us: int) -> list[PartitionLag]:
    """Return live partitions' lags, the largest first; those beyond :data:`MOST_PARTITIONS` share an entry."""
    if not commits:
        return []
    last = commits[-1]
    bounds = {name: bound for name in last.low_watermarks if (bound := _bound_us(last, name)) is not None}
    ahead = max(bounds.values(), default=0)
    named = sorted((name for name in bounds if name != OTHER), key=lambda name: (bounds[name], name))
    recent = [each for each in commits if each.query_id == last.query_id and each.committed_at_us > now_us - _TREND_US]
    points = recent[:: -max(len(recent) // _MOST_POINTS, 1)]
    found: list[PartitionLag] = []
    for name in named[:MOST_PARTITIONS]:
        lag, slope = (now_us - bounds[name]) / 1e6, _slope(points, name)
        catch_up = max(lag, 0.0) / -slope if slope is not None and slope <= -_SLOPE else None
        found.append(PartitionLag(name, lag, (ahead - bounds[name]) / 1e6, slope, catch_up))
    rest = [bounds[name] for name in bounds.keys() - {each.partition for each in found}]
    if rest:
        found.append(PartitionLag(OTHER, (now_us - min(rest)) / 1e6, (ahead - min(rest)) / 1e6))
    return found


def _bound_us(summary: CommitSummary, partition: str) -> int | None:
    return complete_up_to_us(summary.low_watermarks.get(partition))


def _slope(points: Iterable[CommitSummary], partition: str) -> float | None:
    """Return the slope of the line that fits the lags at some commits best."""
    pairs = [(each.committed_at_us, bound) for each in points if (bound := _bound_us(each, partition)) is not None]
    if len(pairs) < _LEAST_POINTS:
        return None
    times = np.array(pairs, dtype=np.int64)
    at, bound = ((times - times[0]) / 1e6).T
    spread = at - at.mean()
    width = float(spread @ spread)
    return float(spread @ (at - bound)) / width if width else None


class CommitTotals:
    """The sums over a table's commits since a time. As all counters, they start at 0 with their process."""

    def __init__(self, since_us: int) -> None:
        self._since_us = since_us
        self._version: int | None = None
        self.counts: Counter[str] = Counter()
        self.ages = Ages()

    def add(self, table: WatchedTable) -> None:
        """Add the commits that are new since the last call."""
        known = self._version
        # At first, and after another table took its place, the latest commits are enough: older ones do not count.
        found = table.commits if known is None or table.version < known else table.between(known)
        fresh = [each for _, each in found if each.committed_at_us >= self._since_us]
        self._version = max((version for version, _ in found), default=known)
        for each in fresh:
            self.counts["commits"] += 1
            for name in _SUMMED:
                self.counts[name] += getattr(each, name)
            self.counts["target_missed"] += each.target_met is False
            self.counts["maintenance_failures"] += each.maintained is not None and each.maintained.failed is not None
            if each.queue is not None:
                self.counts["queue_shed"] += each.queue.shed
                self.counts["queue_outdated"] += each.queue.outdated
        self.ages = Ages.together([self.ages, *(each.ages for each in fresh if each.ages is not None)])


_SUMMED = ("rows", "updates", "applied", "superseded", "deleted", "conflicts")


@dataclasses.dataclass(frozen=True)
class NearbyFigures:
    """The figures on storage beside a table's commits: in its checkpoint, its leases, and its dead-letter table."""

    writer: bool | None = None  # whether a query holds a lease; None if not read yet
    checkpoint: TableFolder | None = None  # None if it is not found
    error: str | None = None  # the reason if the table cannot be read
    dead_letters: int | None = None
    steps: Mapping[str, float] = dataclasses.field(default_factory=dict[str, float])  # seconds of the last batch
    # the bytes that each operator wrote in its last batch, and the rows in its state
    operators: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict[str, tuple[int, int]])

    @classmethod
    def read(cls, table: WatchedTable, now_us: int) -> NearbyFigures:
        """Return the figures as they are now. A failure is one of them."""
        folder = table.folder
        try:
            place = table.checkpoint
            checkpoint = None if place is None else TableFolder(place, table.storage)
            if not folder.has(entry_place(table.version)):
                return cls(error="its log lacks the last commit")
            lease = writer_lease(folder, place)
            return cls(
                writer=lease is not None and not lease.has_ended(now_us),
                checkpoint=checkpoint,
                dead_letters=dead_letter_figures(letter_folders(folder.location, place, folder.storage)).rows,
                steps={} if checkpoint is None or table.last is None else batch_steps(checkpoint, table.last),
                operators={} if checkpoint is None else dict(_operators(checkpoint)),
            )
        except (UpstreamError, OSError, ValueError) as failure:
            return cls(error=folder.masked(failure))


def batch_steps(checkpoint: TableFolder, summary: CommitSummary) -> dict[str, float]:
    """Return the seconds of a batch's steps, as far as Spark's journal has them.

    To *plan* includes the wait for rows. To *run* ends with the commit to the table, and to *finish* with Spark's note.
    """
    planned, done = noted_batches(checkpoint, "offsets"), noted_batches(checkpoint, "commits")
    begun_us = planned.get(summary.batch_id)
    before_us, after_us = done.get(summary.batch_id - 1), done.get(summary.batch_id)
    committed_us = summary.committed_at_us
    spans = {"plan": (before_us, begun_us), "run": (begun_us, committed_us), "finish": (committed_us, after_us)}
    return {
        name: max(until - since, 0) / 1e6
        for name, (since, until) in spans.items()
        if since is not None and until is not None
    }


def _operators(checkpoint: TableFolder) -> Iterator[tuple[str, tuple[int, int]]]:
    for kind, report in REPORTS.items():
        number = 0
        folder = operator_folder(checkpoint.location, kind, number)
        while reports := read_reports(TableFolder(folder, checkpoint.storage), report):
            yield f"{kind} {number}", (sum(each.state_bytes for each in reports), sum(each.kept for each in reports))
            number += 1
            folder = operator_folder(checkpoint.location, kind, number)


@dataclasses.dataclass(frozen=True)
class TableFigures:
    """A table at one moment: its commits, their sums, and the figures beside it."""

    name: str
    commits: Sequence[CommitSummary]  # one at least
    now_us: int
    fresh: Freshness
    totals: CommitTotals | None = None
    nearby: NearbyFigures = NearbyFigures()

    @property
    def last(self) -> CommitSummary:
        return self.commits[-1]

    @functools.cached_property
    def lags(self) -> list[PartitionLag]:
        return partition_lags(self.commits, self.now_us)

    def problems(self, max_age_us: int | None = None) -> list[str]:
        """Return the reasons why the table is not fresh, one sentence each.

        Without a `max_age_us`, ten minutes without a commit are a problem only if no query writes, because input can be
        silent. A batch that takes as long without a commit is one in any case.
        """
        if self.nearby.error is not None:
            return [f"the table cannot be read: {self.nearby.error}"]
        found: list[str] = []
        limit_us, silent = HANGS_US, has_ended(self.last) or self.nearby.writer
        if max_age_us is not None:
            limit_us, silent = max_age_us, False
        fresh = self.fresh
        if fresh.target_met is False:
            found.append(": ".join(each for each in (f"the target {fresh.target} is missed", fresh.batch_text) if each))
        elif (fresh.batch_us or 0) > limit_us and fresh.unanswered is not None:
            found.append(fresh.unanswered.delay_text(self.now_us))
        if fresh.since_commit_us > limit_us and not silent:
            writes = "" if self.nearby.writer else ", and no query writes the table"
            ages = f"{format_duration_us(fresh.since_commit_us)} ago, more than {format_duration_us(limit_us)}"
            found.append(f"the last commit was {ages}{writes}")
        return found


_UNREAD = (-1, 0, NearbyFigures())


class MetricsCollector:
    """The metrics of a watch's tables. Sums begin at `since_us`; without it, their families are left out."""

    def __init__(self, watch: Watch, since_us: int | None) -> None:
        self._watch = watch
        self._since_us = since_us
        self._totals: dict[str, CommitTotals] = {}
        self._nearby: dict[str, tuple[int, int, NearbyFigures]] = {}
        self._lock = threading.Lock()

    def tables(self, now_us: int) -> list[TableFigures]:
        """Return the figures of each written table. With thousands, some figures wait for the next reading."""
        with self._lock:
            tables = [each for each in self._watch.tables() if each.last is not None]
            until_s = time.monotonic() + _READING_S
            for table in sorted(tables, key=lambda each: self._nearby.get(each.name, _UNREAD)[1]):
                version, read_us, _ = self._nearby.get(table.name, _UNREAD)
                if version == table.version and now_us - read_us < _READ_AGAIN_US:
                    continue
                self._nearby[table.name] = table.version, now_us, NearbyFigures.read(table, now_us)
                if time.monotonic() > until_s:
                    break
            journals: dict[str, JournaledBatch | None] = {}
            return [self._figures(each, now_us, journals) for each in tables]

    def families(self, now_us: int) -> list[MetricFamily]:
        """Return the metrics of all tables; families without a figure are left out."""
        tables = self.tables(now_us)
        found = (
            MetricFamily(f"upstream_{name}", kind, words, [
                ({"table": each.name, **labels}, value)
                for each in tables
                for labels, value in samples(each)
                if value is not None
            ])
            for name, kind, words, samples in _FAMILIES
        )  # fmt: skip
        return [each for each in found if each.samples]

    def _figures(self, table: WatchedTable, now_us: int, journals: dict[str, JournaledBatch | None]) -> TableFigures:
        totals: CommitTotals | None = None
        if self._since_us is not None:
            totals = self._totals.setdefault(table.name, CommitTotals(self._since_us))
            totals.add(table)
        commits = [each for _, each in table.commits]
        nearby = self._nearby.get(table.name, _UNREAD)[2]
        place = nearby.checkpoint
        if place is not None and place.location not in journals:  # a job may write a thousand tables
            journals[place.location] = JournaledBatch.read(place)
        journal = None if place is None else journals[place.location]
        fresh = freshness(commits, journal, now_us, is_written=nearby.writer is not False)
        assert fresh is not None, "it has a commit"
        return TableFigures(table.name, commits, now_us, fresh, totals, nearby)


def _value(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = None if value is None else getattr(value, name)
    return value


def _last(path: str) -> Callable[[TableFigures], Samples]:
    """Return the reader of a figure of the last commit, by its path through the parts of the summary."""
    return lambda each: [({}, _value(each.last, path))]


def _sum(name: str) -> Callable[[TableFigures], Samples]:
    return lambda each: [] if each.totals is None else [({}, each.totals.counts[name])]


def _bit(value: bool | None) -> int | None:
    return None if value is None else int(value)


def _up(each: TableFigures) -> Samples:
    known = each.nearby.writer is not None or each.nearby.error is not None
    return [({}, int(each.nearby.error is None))] if known else []


def _committed(each: TableFigures) -> Samples:
    return [({}, each.last.committed_at_us / 1e6)]


def _oldest(each: TableFigures) -> Samples:
    # It waits on until the next commit.
    return [] if each.last.oldest is None else [({}, each.last.oldest + each.fresh.since_commit_us / 1e6)]


def _staleness(found: Callable[[TableFigures], Staleness | None]) -> Callable[[TableFigures], Samples]:
    return lambda each: [({"figure": name}, _value(found(each), name)) for name in ("mean", "p50", "p99", "max")]


def _unanswered(each: TableFigures) -> Samples:
    batch_us = each.fresh.batch_us
    return [({}, 0.0 if batch_us is None else batch_us / 1e6)] if each.nearby.checkpoint is not None else []


def _complete(each: TableFigures) -> Samples:
    at_us = complete_up_to_us(each.last.low_watermark)
    return [({}, None if at_us is None else at_us / 1e6)]


def _lag(name: str) -> Callable[[TableFigures], Samples]:
    return lambda each: [({"input_partition": lag.partition}, getattr(lag, name)) for lag in each.lags]


def _states(each: TableFigures) -> Samples:
    found = Counter(
        "ended" if bound is None else "without_low_watermark" if bound == NOTHING_YET else "live"
        for bound in each.last.low_watermarks.values()
    )
    return [({"state": state}, found[state]) for state in ("live", "ended", "without_low_watermark")]


_FAMILIES: Sequence[tuple[str, Kind, str, Callable[[TableFigures], Samples]]] = (
    ("up", "gauge", "1 if the table can be read", _up),
    ("writer_up", "gauge", "1 if a query holds the lease of the table or of its job",
     lambda each: [({}, _bit(each.nearby.writer))]),
    ("last_commit_timestamp_seconds", "gauge", "Time of the last commit", _committed),
    ("commits", "counter", "Commits", _sum("commits")),
    ("rows", "counter", "Rows that commits received", _sum("rows")),
    ("updates", "counter", "Updates that these rows represent", _sum("updates")),
    ("applied", "counter", "Keys whose row a commit changed or removed", _sum("applied")),
    ("superseded", "counter", "Updates that changed nothing, because a newer one of their key was there",
     _sum("superseded")),
    ("deleted", "counter", "Keys that left the table", _sum("deleted")),
    ("conflicts", "counter", "Pairs of rows of equal key and time with different content", _sum("conflicts")),
    ("queue_shed", "counter", "Rows that the queue dropped at random", _sum("queue_shed")),
    ("queue_outdated", "counter", "Rows older than one of their key that the queue had emitted",
     _sum("queue_outdated")),
    ("target_missed", "counter", "Commits that missed the target", _sum("target_missed")),
    ("maintenance_failures", "counter", "Failures of maintenance", _sum("maintenance_failures")),
    ("staleness_seconds", "histogram", "Age of the applied rows at their commit",
     lambda each: [] if each.totals is None else [({}, each.totals.ages)]),
    ("last_staleness_seconds", "gauge", "Age of the rows that the last commit applied",
     _staleness(lambda each: each.last.staleness)),
    ("staleness_now_seconds", "gauge", "The same now: it grows with the age of rows that are read, and not committed",
     _staleness(lambda each: each.fresh.now)),
    ("uncommitted_batch_seconds", "gauge", "Time since the plan of a batch without a commit; 0 if there is none",
     _unanswered),
    ("received", "counter", "Rows that the sources have received since the checkpoint began",
     _last("sources.received")),
    ("late", "counter", "Rows below their partition's low-watermark since the checkpoint began", _last("sources.late")),
    ("late_idle", "counter", "Rows that are late only by the rule for silent partitions", _last("sources.late_idle")),
    ("suspects", "gauge", "Rows far ahead of all others, which no other row confirms", _last("sources.suspects")),
    ("dead_letters", "counter", "Rows in the dead-letter table", lambda each: [({}, each.nearby.dead_letters)]),
    ("keys", "gauge", "Rows of the table", _last("keys")),
    ("pending_keys", "gauge", "Keys that wait in the queue", _last("pending")),
    ("oldest_pending_seconds", "gauge", "Age of the oldest update that waits in the queue", _oldest),
    ("target_met", "gauge", "1 unless the last commit, or a batch without a commit, misses the target",
     lambda each: [({}, _bit(each.fresh.target_met))]),
    ("needed_rows_per_second", "gauge", "Processing rate that would meet the missed target",
     _last("needed_rows_per_s")),
    ("complete_up_to_timestamp_seconds", "gauge", "Event time up to which the table is complete", _complete),
    ("low_watermark_lag_seconds", "gauge", "Time from an input partition's low-watermark to the clock", _lag("lag")),
    ("low_watermark_behind_seconds", "gauge", "Time from it to the most advanced partition's", _lag("behind")),
    ("low_watermark_lag_slope", "gauge", "Seconds of lag gained in a second, over the last five minutes",
     _lag("slope")),
    ("low_watermark_catch_up_seconds", "gauge", "Time until the lag is 0 at that pace; absent unless it shrinks",
     _lag("catch_up")),
    ("input_partitions", "gauge", "Input partitions", _states),
    ("batch_seconds", "gauge", "Time of the last batch by step",
     lambda each: [({"step": name}, value) for name, value in each.nearby.steps.items()]),
    ("state_written_bytes", "gauge", "State that an operator wrote in its last batch",
     lambda each: [({"operator": name}, size) for name, (size, _) in each.nearby.operators.items()]),
    ("state_rows", "gauge", "Rows in the state of an operator",
     lambda each: [({"operator": name}, rows) for name, (_, rows) in each.nearby.operators.items()]),
)  # fmt: skip


def routes(bench: Bench) -> list[Route]:
    """Return the routes of metrics and health."""
    from starlette.responses import JSONResponse
    from starlette.responses import Response as PlainResponse

    collector = MetricsCollector(bench.watch, now_us())

    def metrics(request: Request) -> Response:
        media, write = accepted(request.headers.get("accept", ""))
        return PlainResponse(write(collector.families(now_us())), media_type=media)

    def health(request: Request) -> Response:
        given, wanted = request.query_params.get("max_age"), request.query_params.get("table")
        try:
            max_age_us = None if given is None else parse_duration_us(given)
        except ValueError as error:
            raise OptionError(f"max_age: {error}", expected="a duration, such as '90 s'") from None
        known = {bench.watch.table(wanted).name} if wanted is not None else None
        tables = [each for each in collector.tables(now_us()) if known is None or each.name in known]
        found = {each.name: each.problems(max_age_us) for each in tables}
        failing = not found or any(found.values())
        # Without a table that a query has written, nothing is fresh.
        return JSONResponse({"healthy": not failing, "problems": found}, 503 if failing else 200)

    return [bench.endpoint("/metrics", metrics), bench.endpoint("/healthz", health)]
