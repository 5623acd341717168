"""The figures of a query's queue in the batch that is being committed, as its shards reported them."""

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
    """One batch of a queue, all shards together."""

    clock_us: int  # the batch's plan, at which its rows are dequeued; epoch microseconds
    arrived: int
    delivered: int
    superseded: int  # updates of this batch that a newer one of their key replaced
    older: int  # of the superseded, the late ones
    conflicts: int  # pairs with one key and time but different payloads
    shed: int  # rows dropped by random shedding
    # ages of the delivered rows at `clock_us`; quantiles within 4.5 %; None if there are none
    staleness: Staleness | None
    outdated: int = 0  # of the superseded, those older than a row of their key that the queue had delivered

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> QueueFigures:
        known = known_fields(cls, value)
        if known["staleness"] is not None:
            known["staleness"] = Staleness(**known["staleness"])
        return cls(**known)


@dataclasses.dataclass(frozen=True)
class Waiting:
    """A queue's figures in a batch, and the backlog after it."""

    did: QueueFigures
    pending: int  # rows that wait
    oldest_us: int | None  # since when the oldest of them waits


def look_at_queue(checkpoint: TableFolder, batch_id: int) -> Waiting | None:
    """Return the state of all the query's queues after a batch; None if no queue had a part in it.

    A batch skips the shards that got neither rows nor a tick: for those, the last report counts. A queue without any
    report of this batch no longer counts: the query has lost it.
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
