"""Reports of the shards of a queue, and of the tasks after it."""

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
    """A shard's work in a batch, and the rows that wait afterwards."""

    now_us: int  # the clock of the batch
    arrived: int  # in this batch, as are the counts up to `shed`
    delivered: int
    superseded: int
    older: int
    conflicts: int
    shed: int
    waiting: int  # rows that wait
    ready_at_us: int | None  # when the first of them may be served
    oldest_us: int | None  # the oldest first arrival among them
    places: list[list[int]]  # pairs of a place and how many rows wait up to it; increasing, for some places
    used: int  # locations in use; `allocated` are those of all pages
    allocated: int
    pages_read: int  # pages of rows, in this batch
    pages_written: int
    state_bytes: int  # the bytes written
    batch_id: int = -1  # Spark's number of the batch; -1 if unknown
    # queue staleness of delivered rows: first arrival to the batch's clock
    ages: Ages = dataclasses.field(default_factory=Ages)
    most_stale: str | None = None  # the keys that wait longest, an Arrow stream in base64; None unless requested
    outdated: int = 0  # superseded updates older than a delivered row of their key: no later row represents them

    def to_json(self) -> dict[str, Any]:
        return {
            **{field.name: getattr(self, field.name) for field in dataclasses.fields(self)},
            "ages": self.ages.to_json(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return super().from_json({**value, "ages": Ages.from_json(value["ages"])} if "ages" in value else value)


@dataclasses.dataclass(frozen=True)
class Served(Report):
    """The rows that one task passed on after the queue in a batch, and the time that this took."""

    prefix: ClassVar[str] = "served-"

    rows: int  # punctuation included
    began_us: int  # when the first row was passed on
    ended_us: int  # when the next step asked for more after the last row


def read_queues(checkpoint: TableFolder) -> list[list[QueueReport]]:
    """Return the last reports of each queue's shards, by the queue's number."""
    found: list[list[QueueReport]] = []
    while reports := read_reports(
        TableFolder(queue_folder(checkpoint.location, len(found)), checkpoint.storage), QueueReport
    ):
        found.append(reports)
    return found
