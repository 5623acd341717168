"""What the shards of a query's queue reported of the batch that is being committed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ...core.feedback.ages import Ages, Staleness
from ...core.feedback.queue_reports import read_queues
from ...delta_format.latest_table import known_fields
from ...storage.folder import TableFolder

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
        Updates of this batch that will not be delivered because a newer one of their key is; of these, late ones; pairs
        with one key and time but different payloads; rows dropped by random shedding.
    outdated : int
        Of the superseded updates, those that no delivered row represents: they were older than a row of their key that
        the queue had delivered.
    staleness : Staleness or None
        Queue staleness: ages of what was served, at `clock_us`. Quantiles are right to 4.5 %. None if nothing was
        served.
    """

    clock_us: int
    arrived: int
    delivered: int
    superseded: int
    older: int
    conflicts: int
    shed: int
    staleness: Staleness | None
    outdated: int = 0

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> QueueFigures:
        """Return the figures that :func:`dataclasses.asdict` described."""
        known = known_fields(cls, value)
        if known["staleness"] is not None:
            known["staleness"] = Staleness(**known["staleness"])
        return cls(**known)


@dataclasses.dataclass(frozen=True)
class Waiting:
    """What a queue did in a batch, how many rows wait after it, and since when the oldest of them."""

    did: QueueFigures
    pending: int
    oldest_us: int | None


def look_at_queue(checkpoint: TableFolder, batch_id: int) -> Waiting | None:
    """Return the state of all the query's queues after a batch, as their shards reported it.

    It is None if the query has no queue, or no queue had a part in this batch. A batch leaves alone the shards that got
    neither rows nor a tick: for those, the last report counts. Reports without any of this batch come from a query that
    has lost its queue, and no longer count.
    """
    queues = read_queues(checkpoint)
    took_part = [part for part in ([each for each in queue if each.batch_id == batch_id] for queue in queues) if part]
    if not took_part:
        return None
    # Rows pass the queues in this order: they arrive at the first, and what the last delivers is what the sink gets.
    mine, first, last = [each for part in took_part for each in part], took_part[0], took_part[-1]
    reports = [each for queue in queues for each in queue]
    did = QueueFigures(
        clock_us=max(report.now_us for report in mine),
        arrived=sum(report.arrived for report in first),
        delivered=sum(report.delivered for report in last),
        superseded=sum(report.superseded for report in mine),
        older=sum(report.older for report in mine),
        conflicts=sum(report.conflicts for report in mine),
        shed=sum(report.shed for report in mine),
        staleness=Ages.together(report.ages for report in last).figures(),
        outdated=sum(report.outdated for report in mine),
    )
    oldest = [report.oldest_us for report in reports if report.waiting and report.oldest_us is not None]
    return Waiting(did, sum(report.waiting for report in reports), min(oldest, default=None))
