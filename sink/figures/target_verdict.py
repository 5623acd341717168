"""Whether a commit kept to the target for staleness, and what it would take if not."""

from __future__ import annotations

import dataclasses
import math

from ...conf.staleness_target import StalenessTarget
from .summary import CommitSummary

__all__ = ["judged"]


def judged(summary: CommitSummary, target: StalenessTarget, last: CommitSummary | None) -> CommitSummary:
    """The summary with its verdict.

    Parameters
    ----------
    summary
        Of a commit.
    target
        The bound.
    last
        The summary of the query's commit before, for the pace.
    """
    summary = dataclasses.replace(summary, target=str(target))
    if summary.staleness is None:
        return summary
    # The oldest that waits is known, the quantiles of what waits are not: it counts where the bound is for the oldest.
    figures = dataclasses.replace(summary.staleness, max=max(summary.staleness.max, summary.oldest or 0.0))
    summary = dataclasses.replace(summary, target_met=target.met(figures))
    if summary.target_met or summary.queue is None or summary.queue.delivered == 0:
        return summary
    batch_s = max(summary.committed_at_us - summary.queue.clock_us, 1) / 1e6
    follows = last is not None and last.batch_id == summary.batch_id - 1
    pace_s = max(summary.committed_at_us - last.committed_at_us, 1) / 1e6 if last is not None and follows else batch_s
    needed = target.needed_rows_per_s(figures, batch_s, summary.queue.delivered / pace_s)
    if needed is None:
        return summary
    return dataclasses.replace(summary, needed_rows_per_s=needed, needed_budget=math.ceil(needed * pace_s))
