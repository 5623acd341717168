"""What the shards of a queue, and the tasks after it, report of each batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from typing_extensions import Self

from ...storage.folder import TableFolder
from .ages import Ages
from .checkpoint_layout import queue_folder
from .report_files import Report, read_reports

__all__ = ["QueueReport", "Served", "read_queues"]


@dataclasses.dataclass(frozen=True)
class QueueReport(Report):
    """What a shard did in a batch, and what waits in it afterwards.

    Attributes
    ----------
    shard : int
    now_us : int
        The clock of the batch.
    arrived, delivered, superseded, older, conflicts, shed : int
        Updates and rows of this batch.
    waiting : int
        Rows that wait.
    ready_at_us : int or None
        When the first of them may be served.
    oldest_us : int or None
        The oldest first arrival among them.
    places : list of [place, count]
        How many wait up to a place, for some places; increasing.
    used, allocated : int
        Locations in use, and locations of all pages.
    pages_read, pages_written : int
        Pages of rows fetched and written in this batch.
    state_bytes : int
        Size of what was written.
    batch_id : int
        Spark's number of the batch; -1 if it is not known.
    ages : Ages
        Of what was delivered, from first arrival to the clock of the batch: queue staleness.
    most_stale : str or None
        The keys that wait longest, as an Arrow stream in base64; None if nobody asked for them.
    outdated : int
        Of the superseded updates, those that no later row represents: they were older than a delivered row of their
        key.
    """

    now_us: int
    arrived: int
    delivered: int
    superseded: int
    older: int
    conflicts: int
    shed: int
    waiting: int
    ready_at_us: int | None
    oldest_us: int | None
    places: list[list[int]]
    used: int
    allocated: int
    pages_read: int
    pages_written: int
    state_bytes: int
    batch_id: int = -1
    ages: Ages = dataclasses.field(default_factory=Ages)
    most_stale: str | None = None
    outdated: int = 0

    def to_json(self) -> dict[str, Any]:
        """See :class:`Report`."""
        return {
            **{field.name: getattr(self, field.name) for field in dataclasses.fields(self)},
            "ages": self.ages.to_json(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """See :class:`Report`."""
        return super().from_json({**value, "ages": Ages.from_json(value["ages"])} if "ages" in value else value)


@dataclasses.dataclass(frozen=True)
class Served(Report):
    """How one task's rows flowed to what comes after the queue, in one batch.

    Attributes
    ----------
    shard : int
        The task's number.
    rows : int
        Punctuation included.
    began_us, ended_us : int
        When the first row was handed on, and when whatever follows asked for more after the last.
    """

    prefix: ClassVar[str] = "served-"

    rows: int
    began_us: int
    ended_us: int


def read_queues(checkpoint: TableFolder) -> list[list[QueueReport]]:
    """Return the last reports of the shards of each of a query's queues, by the queue's number; none without queues."""
    found: list[list[QueueReport]] = []
    while reports := read_reports(
        TableFolder(queue_folder(checkpoint.location, len(found)), checkpoint.storage), QueueReport
    ):
        found.append(reports)
    return found
