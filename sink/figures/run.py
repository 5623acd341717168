"""The figures of a run: those of its commits, added up."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from ...core.feedback.ages import Ages, Staleness
from .summary import CommitSummary, read_summaries

__all__ = ["RunFigures", "run_figures", "run_staleness"]


@dataclasses.dataclass(frozen=True)
class RunFigures:
    """The figures of one query's commits, added up. Times are in seconds."""

    commits: int
    updates: int
    delivered: int
    superseded: int
    seconds: float  # from the first arrival among the first commit's rows to the last commit
    # application staleness of all delivered rows; quantiles within 4.5 %; None without arrivals
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
        delivered=sum(each.delivered for each in mine),
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
