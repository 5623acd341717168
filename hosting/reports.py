"""The host's report of each query, for other processes."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from ..conf.units import format_duration_us
from ..core.feedback.checkpoint_layout import forget_query_queues, query_queue_folder, stage_folder
from ..core.feedback.control import AUTO
from ..core.feedback.offsets import noted_batches
from ..core.feedback.reports import LeftOutFigures, QueueReport, ShardReport, faded, read_reports, write_value
from ..storage.folder import TableFolder

if TYPE_CHECKING:
    import polars as pl

    from ..sink.figures.summary import QueueBacklog
    from .output import BatchOutcome
    from .registry import Registry


_LOG = logging.getLogger("upstream.queries")
_FOLDER = "queries"
_NAME = "report.json"
_KEEP = 0.7
_DIGITS = 6


@dataclasses.dataclass(frozen=True)
class QueryReport:
    """The figures of a query since it began. In averages, the weight of older batches fades."""

    begun: bool = False  # evaluated at least once; until then, it waits for a first low-watermark
    complete_from: int | None = None  # event time in µs from which results are complete; None if unknown
    rows: int = 0  # rows and tombstones that its table took
    late: int = 0  # rows of its streams that came too late for it
    batch: int = -1  # last batch in which its table took rows; -1 for none
    committed_at_us: int | None = None  # time of that batch's commit
    staleness_s: float | None = None  # 99th percentile of the age of that batch's rows at its commit
    waiting_since_us: int | None = None  # oldest arrival behind results not yet emitted; None if none wait
    lacks_since_us: int | None = None  # oldest arrival of rows not yet given to it; None if it has all that were read
    cost_s: float | None = None  # average seconds that a batch takes to emit its results; None if never emitted
    likely: float = 1.0  # average share of batches with results, from 0 to 1

    @property
    def oldest_us(self) -> int | None:
        """The oldest arrival that its table lacks, as far as it has been read; None if it lacks none."""
        known = [each for each in (self.waiting_since_us, self.lacks_since_us) if each is not None]
        return min(known, default=None)

    def after(
        self,
        number: int,
        outcome: BatchOutcome,
        batch: int,
        committed: tuple[int, float | None] | None,
        cost_s: float | None,
        lacks_since_us: int | None = None,
    ) -> QueryReport:
        rows = outcome.rows.get(number, 0)
        report = dataclasses.replace(
            self,
            rows=self.rows + rows,
            late=self.late + outcome.late.get(number, 0),
            batch=batch if rows else self.batch,
            waiting_since_us=None if number in outcome.failed else outcome.waiting.get(number),
            lacks_since_us=lacks_since_us,
        )
        if cost_s is not None:
            report = dataclasses.replace(report, cost_s=faded(self.cost_s, cost_s))
        # While results wait, it is unknown if more came.
        if self.begun and self.waiting_since_us is None and (outcome.rows or outcome.waiting):
            had = bool(rows) or report.waiting_since_us is not None
            report = dataclasses.replace(report, likely=round(_KEEP * self.likely + (1 - _KEEP) * had, _DIGITS))
        if number in outcome.began:
            report = dataclasses.replace(report, begun=True, complete_from=outcome.began[number])
        if committed is not None:
            report = dataclasses.replace(report, committed_at_us=committed[0], staleness_s=committed[1])
        return report


def completeness(report: QueryReport | None) -> str:
    """Return the event time from which a query's results are complete, and how many late rows they lack."""
    if report is None:
        return ""
    since = None if report.complete_from is None else _time(report.complete_from)
    known = "" if since is None else "the beginning" if since.year == 1 else f"{since:%F %T} UTC"
    if not report.late:
        return known
    return f"{known or 'unknown'}, but for {'1 late row' if report.late == 1 else f'{report.late:,} late rows'}"


class HostTimes(NamedTuple):
    """The times of a batch on the driver, and the tasks that ran at once."""

    began_us: int = 0
    started_s: float = 0.0  # from then until the tables were looked at
    merged_s: float = 0.0  # until the tasks of both stages and of the merge ended
    committed_s: float = 0.0
    tasks: int = 1


NO_TIMES = HostTimes()


@dataclasses.dataclass(frozen=True)
class HostReport:
    """The report after a batch."""

    batch: int = -1  # -1 if there was none; batches without results are skipped
    queries: Mapping[int, QueryReport] = dataclasses.field(default_factory=dict[int, QueryReport])  # by incarnation
    batch_s: float = 0.0
    fixed_s: float = 0.0  # average seconds of a batch without emitting results; older batches fade
    times: HostTimes = NO_TIMES  # a tuple in JSON


class Reports:
    """The reports of all queries, in one file below the checkpoint.

    A batch that runs again counts once. A report that cannot be written only causes a warning and never ends the job.
    """

    def __init__(self, checkpoint: TableFolder) -> None:
        self._folder = checkpoint.below(_FOLDER)
        self._checkpoint = checkpoint
        self._forgotten: frozenset[int] | None = None  # the queries in force at the last removal of others' folders
        self._known: HostReport | None = None
        self._last: tuple[bytes, HostReport] | None = None
        self._left_out = LeftOutFigures("the report of the queries", self._folder, _LOG)

    def read(self) -> Mapping[int, QueryReport]:
        """Return the report of each query, by incarnation."""
        return self.host().queries

    def host(self) -> HostReport:
        """Return the report from the disk."""
        try:
            text = self._folder.read(_NAME)
        except FileNotFoundError:
            return HostReport()
        if self._last is None or self._last[0] != text:
            values = json.loads(text)
            values["queries"] = {int(number): QueryReport(**each) for number, each in values["queries"].items()}
            values["times"] = HostTimes(*values["times"])
            self._last = text, HostReport(**values)
        return self._last[1]

    def take(
        self,
        batch: int,
        outcome: BatchOutcome,
        queries: Collection[int],
        committed: Mapping[int, tuple[int, float | None]],
        times: HostTimes = NO_TIMES,
        costs: Mapping[int, float] | None = None,
        lagging: Mapping[int, int] | None = None,
    ) -> None:
        """Add a batch, and forget all queries, and the queues, but those of `queries`, the incarnations in force.

        `committed` has the time in µs of each table's commit and its rows' age. `costs` has the seconds that the batch
        took for the results of each query. `lagging` has the oldest arrival of the rows that some queries lack.
        """
        known = self._known if self._known is not None else self.host()
        if batch <= known.batch:
            return
        if self._forgotten != frozenset(queries):
            self._forgotten = frozenset(queries)
            self._left_out.attempt(lambda: forget_query_queues(self._checkpoint, queries))
        costs, seconds = {} if costs is None else costs, times.committed_s
        lagging = {} if lagging is None else lagging
        busy = bool(outcome.rows or outcome.began or outcome.waiting or outcome.late or lagging)
        if not busy and set(known.queries) == set(queries) and not _waits(known):
            return
        now = {
            number: known.queries.get(number, QueryReport()).after(
                number, outcome, batch, committed.get(number), costs.get(number), lagging.get(number)
            )
            for number in queries
        }
        fixed_s = max(seconds - sum(costs.values()), 0.0)
        known = HostReport(batch, now, round(seconds, _DIGITS), faded(known.fixed_s or None, fixed_s), times)
        self._known = known
        # A failure loses nothing: the tables have the batch, and the next report has its figures.
        self._left_out.attempt(lambda: write_value(self._folder, _NAME, dataclasses.asdict(known)))


def _waits(report: HostReport) -> bool:
    return any(each.oldest_us is not None for each in report.queries.values())


class ViewBacklog(NamedTuple):
    """The queue of a view as its last batch left it."""

    policy: str
    asked: str  # the budget in force as it was given
    rows: int | None  # the budget in rows; None for no limit
    backlog: QueueBacklog | None  # None before the first batch

    @property
    def budget(self) -> str:
        """The budget in words."""
        found = "" if self.rows is None or self.asked == str(self.rows) else f", {self.rows:,} rows"
        return f"{self.asked}{found}"

    def to_json(self, now_us: int) -> dict[str, Any]:
        """Return the figures; ages are in seconds."""
        found, since = self.backlog, None if self.backlog is None else self.backlog.oldest_us
        return {
            "policy": self.policy,
            "budget": self.asked,
            "rows": self.rows,
            "waiting": 0 if found is None else found.pending,
            "superseded": 0 if found is None else found.did.superseded,
            "oldest": None if since is None else max(now_us - since, 0) / 1e6,
        }

    def text(self, now_us: int) -> str:
        """Return the figures in words."""
        found = self.to_json(now_us)
        age = "" if found["oldest"] is None else f", the oldest for {format_duration_us(found['oldest'] * 1e6)}"
        counts = f"{found['waiting']:,} rows wait{age}; {found['superseded']:,} superseded in the last batch"
        return f"queue {self.policy}, budget {self.budget}: {counts}"


def view_backlogs(checkpoint: TableFolder, registry: Registry) -> dict[int, ViewBacklog]:
    """Return the queue of each view that runs and has one, by incarnation."""
    queued = [each for each in registry.active.values() if each.queue]
    if not queued:
        return {}
    from ..sink.figures.summary import look_at_queue
    from .messages import command_of_batch

    last = max(noted_batches(checkpoint, "offsets"), default=None)
    ticks = {} if last is None else command_of_batch(checkpoint.location, last).queues
    found: dict[int, ViewBacklog] = {}
    for each in queued:
        place = TableFolder(query_queue_folder(checkpoint.location, each.id), checkpoint.storage)
        reports = read_reports(place, QueueReport)
        tick = ticks.get(each.id, {})
        asked, rows = tick.get("asked", each.queue.get("budget", AUTO)), tick.get("budget")
        backlog = look_at_queue([reports], max((report.batch_id for report in reports), default=-1))
        found[each.id] = ViewBacklog(each.queue["queue"], asked, rows, backlog)
    return found


@dataclasses.dataclass(frozen=True)
class PartsReport(ShardReport):
    """The cost and the state of each part of queries in a shard of a stage, by evaluation.

    An evaluation has the figures of the last batch in which it stepped. A batch that runs again may report other
    seconds.
    """

    prefix: ClassVar[str] = "parts-"

    batch: int
    began_us: int
    spent_s: float  # the whole time of the shard in the batch
    evaluations: Mapping[str, tuple[int, Sequence[Sequence[Any]]]]  # the batch, and the values of `PartCost`

    def parts(self) -> Iterator[tuple[int, PartCost]]:
        """Yield the last batch and the cost of each part."""
        for batch, parts in self.evaluations.values():
            for each in parts:
                yield batch, PartCost(*each)


class PartCost(NamedTuple):
    """The cost and the state of a part, in a shard or in all of them."""

    key: str  # its ``part_key``
    queries: Sequence[int]  # the incarnations that read it
    spent_s: float  # seconds of tasks in the last batch that it had work
    average_s: float  # of such batches; older ones fade
    rows: int  # its changes in that batch
    bytes: int
    beside: Sequence[str] = ()  # the keys of the parts that have its slices, or keep rows for it

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key, *self.beside)

    def plus(self, other: PartCost) -> PartCost:
        return self._replace(
            spent_s=self.spent_s + other.spent_s,
            average_s=self.average_s + other.average_s,
            rows=self.rows + other.rows,
            bytes=self.bytes + other.bytes,
        )


def part_reports(checkpoint: TableFolder) -> list[list[PartsReport]]:
    """Return the reports of the shards of each stage."""
    folders = (TableFolder(stage_folder(checkpoint.location, each), checkpoint.storage) for each in range(2))
    return [read_reports(each, PartsReport) for each in folders]


def part_costs(reports: Iterable[Iterable[PartsReport]], batch: int | None = None) -> dict[str, PartCost]:
    """Return the cost of each part in all shards, by its key; with `batch`, only of parts with work in that batch."""
    found: dict[str, PartCost] = {}
    for stage in reports:
        for report in stage:
            for at, each in report.parts():
                if batch is None or (at == batch and each.spent_s):
                    found[each.key] = found[each.key].plus(each) if each.key in found else each
    return found


def whole_cost(key: str, costs: Mapping[str, PartCost]) -> PartCost | None:
    """Return the cost of a part and of those beside it; None if no batch has evaluated it."""
    cost = costs.get(key)
    for each in [] if cost is None else cost.beside:
        cost = cost.plus(costs[each]._replace(rows=0)) if cost is not None and each in costs else cost
    return cost


@dataclasses.dataclass
class QueryCost:
    """The sums of a figure over the parts of a query."""

    share: float = 0.0  # each part divided by its number of readers
    whole: float = 0.0  # undivided
    alone: float = 0.0  # of the parts that no other query reads: what dropping the query would free

    def add(self, value: float, readers: int) -> None:
        self.share += value / readers
        self.whole += value
        self.alone += value if readers == 1 else 0


def query_costs(reports: Iterable[Iterable[PartsReport]]) -> dict[int, tuple[QueryCost, QueryCost]]:
    """Return the seconds of tasks in a batch with work, and the bytes of state, of each query by incarnation."""
    found: dict[int, tuple[QueryCost, QueryCost]] = {}
    for stage in reports:
        for report in stage:
            for _, each in report.parts():
                for query in each.queries:
                    seconds, size = found.setdefault(query, (QueryCost(), QueryCost()))
                    seconds.add(each.average_s, len(each.queries))
                    size.add(each.bytes, len(each.queries))
    return found


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def listed(registry: Registry, reports: Mapping[int, QueryReport], now_us: int) -> pl.DataFrame:
    """Return a row for each query, as registered. `reports` are by incarnation: a restarted query has none."""
    import polars as pl

    rows = list[tuple[object, ...]]()
    for each in registry.queries.values():
        report = reports.get(each.id)
        late = 0 if report is None else report.late
        complete_from = None if report is None or late else _time(report.complete_from)
        staleness = None if report is None else report.staleness_s
        committed_at = None if report is None else _time(report.committed_at_us)
        since = None if report is None or not each.active else report.oldest_us
        waiting = None if since is None else max(now_us - since, 0) / 1e6
        ages = complete_from, late, staleness, committed_at, waiting
        rows.append((each.name, each.text, each.weight, each.active, each.reason, *ages))
    columns = {"name": pl.String, "text": pl.String, "weight": pl.Float64, "active": pl.Boolean, "reason": pl.String}
    at = pl.Datetime("us", "UTC")
    more = {"complete_from": at, "late": pl.Int64, "staleness": pl.Float64, "committed_at": at, "waiting": pl.Float64}
    return pl.DataFrame(rows, {**columns, **more}, orient="row")


def _time(time_us: int | None) -> datetime | None:
    """Return a time; `datetime.min` for the beginning of a stream."""
    try:
        return None if time_us is None else _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return datetime.min.replace(tzinfo=timezone.utc)
