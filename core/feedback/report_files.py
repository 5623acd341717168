"""Small JSON files below a query's checkpoint: operators' reports to the next batch's planner and the sink's commit."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from typing_extensions import Self

from ...storage.atomic_write import write_whole
from ...storage.folder import TableFolder, folder_at

__all__ = ["Report", "read_reports", "read_values", "remove_values", "write_report", "write_value"]


@dataclasses.dataclass(frozen=True)
class Report:
    """A shard's or a task's report on its last batch.

    It must be a function of the batch, so that a task that is retried writes the same.
    """

    shard: int

    prefix: ClassVar[str] = "shard-"
    """The prefix of the files' names."""

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the report that :meth:`to_json` described. Names of other versions are ignored."""
        # Not every kind had its number in the file from the beginning.
        known = {"shard": 0, **value}
        return cls(**{field.name: known[field.name] for field in dataclasses.fields(cls) if field.name in known})


ReportT = TypeVar("ReportT", bound=Report)


def write_report(folder: str | TableFolder, report: Report) -> None:
    """Replace a shard's last report by this one."""
    write_value(folder, f"{report.prefix}{report.shard}.json", report.to_json())


def read_reports(folder: str | TableFolder, kind: type[ReportT]) -> list[ReportT]:
    """Return the last report of each shard that has made one, in the order of the files' names."""
    return [kind.from_json(value) for value in read_values(folder, kind.prefix)]


def write_value(folder: str | TableFolder, name: str, value: Mapping[str, Any]) -> None:
    """Replace the last JSON value of that name by this one, as a whole or not at all."""
    text = json.dumps(value).encode()
    write_whole(folder, name, lambda stream: stream.write(text))


def read_values(folder: str | TableFolder, prefix: str) -> list[dict[str, Any]]:
    """Return the values whose name begins with `prefix`, in the order of names; none if there is no such folder."""
    place = folder_at(folder)
    names = sorted(name for name in place.names("") if name.startswith(prefix))
    return [json.loads(value) for value in place.each(place.read, names)]


def remove_values(folder: str | TableFolder, prefix: str, below: str) -> None:
    """Remove the values whose names begin with `prefix` and come before `below`; missing ones are no error."""
    place = folder_at(folder)
    place.remove(name for name in place.names("") if name.startswith(prefix) and name < below)
