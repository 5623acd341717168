"""The host's report of each query, for other processes."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from ..core.feedback.reports import LeftOutFigures, write_value
from ..storage.folder import TableFolder

if TYPE_CHECKING:
    import polars as pl

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
    late: int = 0  # rows of its streams below their low-watermark
    batch: int = -1  # last batch in which its table took rows; -1 for none
    committed_at_us: int | None = None  # time of that batch's commit
    staleness_s: float | None = None  # 99th percentile of the age of that batch's rows at its commit
    waiting_since_us: int | None = None  # oldest arrival behind results not yet emitted; None if none wait
    cost_s: float | None = None  # average seconds that a batch takes to emit its results; None if never emitted
    likely: float = 1.0  # average share of batches with results, from 0 to 1

    def after(
        self,
        number: int,
        outcome: BatchOutcome,
        batch: int,
        committed: tuple[int, float | None] | None,
        cost_s: float | None,
    ) -> QueryReport:
        rows = outcome.rows.get(number, 0)
        report = dataclasses.replace(
            self,
            rows=self.rows + rows,
            late=self.late + outcome.late.get(number, 0),
            batch=batch if rows else self.batch,
            waiting_since_us=None if number in outcome.failed else outcome.waiting.get(number),
        )
        if cost_s is not None:
            report = dataclasses.replace(report, cost_s=_estimate(self.cost_s, cost_s))
        # While results wait, it is unknown if more came.
        if self.begun and self.waiting_since_us is None and (outcome.rows or outcome.waiting):
            had = bool(rows) or report.waiting_since_us is not None
            report = dataclasses.replace(report, likely=_faded(self.likely, float(had)))
        if number in outcome.began:
            report = dataclasses.replace(report, begun=True, complete_from=outcome.began[number])
        if committed is not None:
            report = dataclasses.replace(report, committed_at_us=committed[0], staleness_s=committed[1])
        return report


@dataclasses.dataclass(frozen=True)
class HostReport:
    """The report after a batch."""

    batch: int = -1  # -1 if there was none; batches without results are skipped
    queries: Mapping[int, QueryReport] = dataclasses.field(default_factory=dict[int, QueryReport])  # by incarnation
    batch_s: float = 0.0
    fixed_s: float = 0.0  # average seconds of a batch without emitting results; older batches fade


class Reports:
    """The reports of all queries, in one file below the checkpoint.

    A batch that runs again counts once. A report that cannot be written only causes a warning and never ends the job.
    """

    def __init__(self, checkpoint: TableFolder) -> None:
        self._folder = checkpoint.below(_FOLDER)
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
            self._last = text, HostReport(**values)
        return self._last[1]

    def take(
        self,
        batch: int,
        outcome: BatchOutcome,
        queries: Collection[int],
        committed: Mapping[int, tuple[int, float | None]],
        seconds: float = 0.0,
        costs: Mapping[int, float] | None = None,
    ) -> None:
        """Add a batch, and forget all queries but `queries`, the incarnations in force.

        `committed` has the time in µs of each table's commit and its rows' age. `costs` has the seconds that the batch
        took for the results of each query.
        """
        known = self._known if self._known is not None else self.host()
        if batch <= known.batch:
            return
        costs = {} if costs is None else costs
        busy = bool(outcome.rows or outcome.began or outcome.waiting or outcome.late)
        if not busy and set(known.queries) == set(queries) and not _waits(known):
            return
        now = {
            number: known.queries.get(number, QueryReport()).after(
                number, outcome, batch, committed.get(number), costs.get(number)
            )
            for number in queries
        }
        fixed_s = max(seconds - sum(costs.values()), 0.0)
        known = HostReport(batch, now, round(seconds, _DIGITS), _estimate(known.fixed_s or None, fixed_s))
        self._known = known
        # A failure loses nothing: the tables have the batch, and the next report has its figures.
        self._left_out.attempt(lambda: write_value(self._folder, _NAME, dataclasses.asdict(known)))


def _estimate(before: float | None, now: float) -> float:
    """Return a fading average of seconds; restart it if it is off by more than a factor of two.

    The first batch of a process takes many times as long as the next ones, and must not count for long.
    """
    if before is None or not before / 2 <= now <= before * 2:
        return round(now, _DIGITS)
    return _faded(before, now)


def _faded(before: float, now: float) -> float:
    return round(_KEEP * before + (1 - _KEEP) * now, _DIGITS)


def _waits(report: HostReport) -> bool:
    return any(each.waiting_since_us is not None for each in report.queries.values())


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def listed(registry: Registry, reports: Mapping[int, QueryReport], now_us: int) -> pl.DataFrame:
    """Return a row for each query, in order of registration.

    `reports` are by incarnation, so a query that has restarted since its report has none.
    """
    import polars as pl

    rows = list[tuple[object, ...]]()
    for each in registry.queries.values():
        report = reports.get(each.id)
        complete_from = None if report is None else _time(report.complete_from)
        staleness = None if report is None else report.staleness_s
        since = None if report is None or not each.active else report.waiting_since_us
        waiting = None if since is None else max(now_us - since, 0) / 1e6
        rows.append((each.name, each.text, each.weight, each.active, each.reason, complete_from, staleness, waiting))
    columns = {"name": pl.String, "text": pl.String, "weight": pl.Float64, "active": pl.Boolean, "reason": pl.String}
    more = {"complete_from": pl.Datetime("us", "UTC"), "staleness": pl.Float64, "waiting": pl.Float64}
    return pl.DataFrame(rows, {**columns, **more}, orient="row")


def _time(time_us: int | None) -> datetime | None:
    """Return a time; `datetime.min` for the beginning of a stream."""
    try:
        return None if time_us is None else _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return datetime.min.replace(tzinfo=timezone.utc)
