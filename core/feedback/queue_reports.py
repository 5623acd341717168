"""What the shards of a queue, and the tasks after it, say of each batch: a small file each, below the query's checkpoint.

It is the one path back from operators: the planner of the next batch reads the reports, and so does the sink's commit, which runs after
the shards of its batch are done. A report is a function of its batch, so a task that is tried again writes the same.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from ...storage.atomic_write import write_whole
from ...storage.folder import TableFolder, folder_at
from .ages import Ages
from .checkpoint_layout import queue_folder

__all__ = [
    "Served",
    "ShardReport",
    "read_queues",
    "read_reports",
    "read_served",
    "read_values",
    "remove_values",
    "write_report",
    "write_served",
    "write_value",
]


@dataclasses.dataclass(frozen=True)
class ShardReport:
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
    """

    shard: int
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

    def to_json(self) -> dict[str, Any]:
        """A JSON value, the inverse of :meth:`from_json`."""
        return {**{field.name: getattr(self, field.name) for field in _fields()}, "ages": self.ages.to_json()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ShardReport:
        """The report that :meth:`to_json` described. Names of other versions are ignored."""
        known = {field.name: value[field.name] for field in _fields() if field.name in value}
        if "ages" in known:
            known["ages"] = Ages.from_json(known["ages"])
        return cls(**known)


@dataclasses.dataclass(frozen=True)
class Served:
    """How one task's rows flowed to what comes after the queue, in one batch.

    Attributes
    ----------
    rows : int
        Punctuation included.
    began_us, ended_us : int
        When the first row was handed on, and when whatever follows asked for more after the last.
    """

    rows: int
    began_us: int
    ended_us: int


def read_queues(checkpoint: TableFolder) -> list[list[ShardReport]]:
    """Return what the shards of each of a query's queues reported last, by the queue's number; none if it has no queue."""
    found: list[list[ShardReport]] = []
    while reports := read_reports(TableFolder(queue_folder(checkpoint.location, len(found)), checkpoint.storage)):
        found.append(reports)
    return found


def write_report(folder: str, report: ShardReport) -> None:
    """Put a shard's report in the place of its last one."""
    write_value(folder, f"shard-{report.shard}.json", report.to_json())


def read_reports(folder: str | TableFolder) -> list[ShardReport]:
    """The last report of each shard that has made one."""
    return [ShardReport.from_json(value) for value in read_values(folder, "shard-")]


def write_served(folder: str, task: int, served: Served) -> None:
    """Put what a task says of its rows in the place of what it said before."""
    write_value(folder, f"served-{task}.json", dataclasses.asdict(served))


def read_served(folder: str) -> list[Served]:
    """What each task said last."""
    return [Served(**value) for value in read_values(folder, "served-")]


def _fields() -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(ShardReport)


def write_value(folder: str | TableFolder, name: str, value: Mapping[str, Any]) -> None:
    """Put a JSON value in the place of the last one of that name, whole or not at all."""
    text = json.dumps(value).encode()
    write_whole(folder, name, lambda stream: stream.write(text))


def read_values(folder: str | TableFolder, prefix: str) -> list[dict[str, Any]]:
    """The values of which the name begins so, in the order of names; none if there is no such folder."""
    place = folder_at(folder)
    names = sorted(name for name in place.names("") if name.startswith(prefix))
    return [json.loads(value) for value in place.each(place.read, names)]


def remove_values(folder: str | TableFolder, prefix: str, below: str) -> None:
    """Take away the values of which the name begins so and comes before `below`; what is gone already is no error."""
    place = folder_at(folder)
    place.remove(name for name in place.names("") if name.startswith(prefix) and name < below)
