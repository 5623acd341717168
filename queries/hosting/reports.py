"""What the host reports of each query, for those who look at it from outside."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from ...core.feedback.left_out_figures import LeftOutFigures
from ...core.feedback.report_files import write_value
from ...storage.folder import TableFolder

if TYPE_CHECKING:
    from .outcome import Outcome

__all__ = ["HostReport", "QueryReport", "Reports"]

_LOG = logging.getLogger("upstream.queries")
_FOLDER = "queries"
_NAME = "report.json"
_KEEP = 0.7
_DIGITS = 6


@dataclasses.dataclass(frozen=True)
class QueryReport:
    """What has become of a query since it began.

    Attributes
    ----------
    begun : bool
        Whether it has been evaluated yet. It waits for the first low-watermark of its streams.
    whole_from : int or None
        The time in µs from which its results lack nothing; None if it has not begun, or that is never certain.
    rows : int
        Rows and tombstones that its table took.
    late : int
        Rows of its streams that came below their low-watermark.
    batch : int
        The last batch in which its table took rows; -1 for none.
    committed_at_us : int or None
        When that batch was committed, in microseconds since the epoch.
    staleness_s : float or None
        How old its rows were then: the 99th percentile, in seconds.
    waiting_since_us : int or None
        When the oldest row came behind results that the last batch did not put out; None if none wait.
    cost_s : float or None
        The seconds that its results take in a batch that puts them out; older batches fade. None if there was none.
    likely : float
        How often it has results in a batch, from 0 to 1; older batches fade.
    """

    begun: bool = False
    whole_from: int | None = None
    rows: int = 0
    late: int = 0
    batch: int = -1
    committed_at_us: int | None = None
    staleness_s: float | None = None
    waiting_since_us: int | None = None
    cost_s: float | None = None
    likely: float = 1.0

    def after(
        self,
        number: int,
        outcome: Outcome,
        batch: int,
        committed: tuple[int, float | None] | None,
        cost_s: float | None,
    ) -> QueryReport:
        """Return the report after one more batch, in which some query had results or began."""
        began = outcome.began.get(number)
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
        # While results wait, nobody can see whether more came.
        if self.begun and self.waiting_since_us is None and (outcome.rows or outcome.waiting):
            had = bool(rows) or report.waiting_since_us is not None
            report = dataclasses.replace(report, likely=_faded(self.likely, float(had)))
        if began is not None:
            report = dataclasses.replace(report, begun=True, whole_from=began.whole_from)
        if committed is not None:
            report = dataclasses.replace(report, committed_at_us=committed[0], staleness_s=committed[1])
        return report


@dataclasses.dataclass(frozen=True)
class HostReport:
    """What there is to know after a batch.

    Attributes
    ----------
    batch : int
        Its number; -1 if there was none. Batches without results are left out.
    queries : mapping of int to QueryReport
        By incarnation.
    batch_s : float
        How long it took.
    fixed_s : float
        How long batches take beside putting out results; older batches fade.
    """

    batch: int = -1
    queries: Mapping[int, QueryReport] = dataclasses.field(default_factory=dict[int, QueryReport])
    batch_s: float = 0.0
    fixed_s: float = 0.0


class Reports:
    """The reports of all queries, in one file below the checkpoint.

    Parameters
    ----------
    checkpoint
        The host's.

    Notes
    -----
    A batch that runs again counts once. Figures never end a job: a report that cannot be written is a warning.
    """

    def __init__(self, checkpoint: TableFolder) -> None:
        self._folder = checkpoint.below(_FOLDER)
        self._known: HostReport | None = None
        self._last: tuple[bytes, HostReport] | None = None
        self._left_out = LeftOutFigures("the report of the queries", self._folder, _LOG)

    def read(self) -> Mapping[int, QueryReport]:
        """Return the report of each query, by its incarnation."""
        return self.host().queries

    def host(self) -> HostReport:
        """Return the whole report, as it is on the disk."""
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
        outcome: Outcome,
        queries: Collection[int],
        committed: Mapping[int, tuple[int, float | None]],
        seconds: float = 0.0,
        costs: Mapping[int, float] | None = None,
    ) -> None:
        """Add a batch.

        Parameters
        ----------
        batch
            Its number.
        outcome
            What it made of the queries.
        queries
            The incarnations in force. Others are forgotten.
        committed
            Of each table that got a commit, when, and how old its rows were.
        seconds
            How long it took.
        costs
            How much longer it took for each query whose results it put out.
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
        # The tables have the batch; the next report has its figures.
        self._left_out.attempt(lambda: write_value(self._folder, _NAME, dataclasses.asdict(known)))


def _estimate(before: float | None, now: float) -> float:
    """Return an average of seconds in which what was before fades.

    It is forgotten where it was far from true: the first batch of a process takes many times as long as the next ones.
    """
    if before is None or not before / 2 <= now <= before * 2:
        return round(now, _DIGITS)
    return _faded(before, now)


def _faded(before: float, now: float) -> float:
    return round(_KEEP * before + (1 - _KEEP) * now, _DIGITS)


def _waits(report: HostReport) -> bool:
    return any(each.waiting_since_us is not None for each in report.queries.values())
