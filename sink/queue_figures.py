"""What the shards of a query's queue reported of the batch that is being committed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..frames.ages import Ages, Staleness
from ..frames.reports import read_reports, reports_folder

__all__ = ["QueueFigures", "Waiting", "look_at_queue"]


@dataclasses.dataclass(frozen=True)
class QueueFigures:
    """One batch of a queue, all shards together.

    Attributes
    ----------
    clock_us : int
        When the batch was planned; what it served was dequeued at that moment.
    arrived, delivered : int
        Rows that came, and rows that were served.
    superseded, older, conflicts, shed : int
        Updates of this batch that will not be delivered because a newer one of their key is; of these, late ones; pairs with one key and
        time but different payloads; rows dropped by random shedding.
    staleness : Staleness or None
        Queue staleness: ages of what was served, at `clock_us`. Quantiles are right to 4.5 %. None if nothing was served.
    """

    clock_us: int
    arrived: int
    delivered: int
    superseded: int
    older: int
    conflicts: int
    shed: int
    staleness: Staleness | None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> QueueFigures:
        """The figures that :func:`dataclasses.asdict` described. Names of later versions are ignored."""
        known = {field.name: value[field.name] for field in dataclasses.fields(cls) if field.name in value}
        if known["staleness"] is not None:
            known["staleness"] = Staleness(**known["staleness"])
        return cls(**known)


@dataclasses.dataclass(frozen=True)
class Waiting:
    """What a queue did in a batch, how many rows wait after it, and since when the oldest of them."""

    did: QueueFigures
    pending: int
    oldest_us: int | None


def look_at_queue(checkpoint: str, batch_id: int) -> Waiting | None:
    """What the shards say after a batch; None if the query has no queue, or it has had no part in this batch.

    A batch leaves alone the shards that got neither rows nor a tick: what waits in those is as their last report says. Reports
    without any of this batch are of a query that has lost its queue, and say nothing any more.
    """
    reports = read_reports(reports_folder(checkpoint))
    mine = [report for report in reports if report.batch_id == batch_id]
    if not mine:
        return None
    did = QueueFigures(
        clock_us=max(report.now_us for report in mine),
        arrived=sum(report.arrived for report in mine),
        delivered=sum(report.delivered for report in mine),
        superseded=sum(report.superseded for report in mine),
        older=sum(report.older for report in mine),
        conflicts=sum(report.conflicts for report in mine),
        shed=sum(report.shed for report in mine),
        staleness=Ages.together(report.ages for report in mine).figures(),
    )
    oldest = [report.oldest_us for report in reports if report.waiting and report.oldest_us is not None]
    return Waiting(did, sum(report.waiting for report in reports), min(oldest, default=None))
