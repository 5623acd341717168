"""What lies where below a query's checkpoint, beside Spark's own folders.

| name | who writes | what |
|---|---|---|
| ``upstream-queue``, ``upstream-queue-1``, … | shards of a queue | rows waiting and delivered (:mod:`.queue_reports`) |
| ``upstream-windows/0``, ``1``, … | shards of a window operator | how far it is (:mod:`.window_reports`) |
| ``upstream-reorder/0``, … | shards of a union, merge, ordered release or distinct | rows (:mod:`.reorder_reports`) |
| ``upstream-joins/0``, … | shards of a join | rows of both sides (:mod:`.join_reports`) |
| ``upstream-latest/0``, … | shards of a join of newest rows | keys of both sides (:mod:`.latest_join_reports`) |
| ``upstream-numbering/0``, … | the step that numbers a stream's rows | how many (:mod:`.numbering_reports`) |
| ``upstream-stages/0``, ``1`` | shards of the stages of hosted queries | what they hold (:mod:`.stage_reports`) |
| ``upstream-feeds/NAME`` | shards of an input of Spark's own | how far each feed is (:mod:`.feed_reports`) |
| ``upstream-feeds/*.list`` | the planner of the source | feeds at rest (:mod:`.offset_book`) |
| ``upstream-times`` | tasks of the source | the times that they read (:mod:`.time_reports`) |
| ``upstream-schema-*.json`` | the source | its inferred schema |
| ``upstream-files`` | the source | lists of finished files |
| ``upstream-plan`` | the driver | the operators that the state is bound to (:mod:`.plan_record`) |
| ``upstream-sink`` | the sink | the last commit to its table, or to each result table |
| ``quarantine`` | shards of an input of Spark's own | rows that cannot be used |

Operators of a kind are numbered from 0 along the stream, so that a job that is not changed finds its own.
"""

from __future__ import annotations

import os
from typing import Literal

from ...conf.locations import checkpoint_location
from ...storage.folder import TableFolder

__all__ = [
    "FEED_LISTS",
    "FILE_LISTS",
    "OWN_SCHEMA",
    "PLAN",
    "SHARED_SCHEMA",
    "SINK",
    "Kind",
    "feeds_folder",
    "joins_folder",
    "latest_folder",
    "numbering_folder",
    "operator_folder",
    "quarantine_folder",
    "queue_folder",
    "reorder_folder",
    "stage_folder",
    "times_folder",
    "windows_folder",
]

Kind = Literal["queue", "windows", "reorder", "joins", "latest", "numbering"]
"""Operators that are numbered."""

FEED_LISTS = "upstream-feeds"
FILE_LISTS = "upstream-files"
PLAN = "upstream-plan"
SINK = "upstream-sink"
OWN_SCHEMA = "upstream-schema-"
"""Begins the name of a source's record."""
SHARED_SCHEMA = "upstream-schema.json"
"""What releases wrote in which all sources of a checkpoint had one record."""


def queue_folder(checkpoint: str, number: int = 0) -> str:
    """Return the folder in which the shards of a query's queue report; its queues are numbered from 0 on."""
    return f"{checkpoint_location(checkpoint)}/upstream-queue{f'-{number}' if number else ''}"


def windows_folder(checkpoint: str, number: int = 0) -> str:
    """Return the folder in which the shards of a query's window operators report; they are numbered from 0 on."""
    return f"{checkpoint_location(checkpoint)}/upstream-windows/{number}"


def reorder_folder(checkpoint: str, number: int) -> str:
    """Return the folder in which the shards of a union, a merge, an ordered release or a distinct report.

    These operators are numbered from 0 on.
    """
    return f"{checkpoint_location(checkpoint)}/upstream-reorder/{number}"


def joins_folder(checkpoint: str, number: int = 0) -> str:
    """Return the folder in which the shards of a query's join report; its joins are numbered from 0 on."""
    return f"{checkpoint_location(checkpoint)}/upstream-joins/{number}"


def latest_folder(checkpoint: str, number: int = 0) -> str:
    """Return the folder in which the shards of a query's join of newest rows report; numbered from 0 on."""
    return f"{checkpoint_location(checkpoint)}/upstream-latest/{number}"


def numbering_folder(checkpoint: str, number: int = 0) -> str:
    """Return the folder in which the step reports that numbers a stream's rows; numbered from 0 on."""
    return f"{checkpoint_location(checkpoint)}/upstream-numbering/{number}"


def stage_folder(checkpoint: str, number: int) -> str:
    """Return the folder in which the shards of a stage of hosted queries report; the first stage is 0."""
    return f"{checkpoint_location(checkpoint)}/upstream-stages/{number}"


def feeds_folder(checkpoint: str, name: str) -> str:
    """Return the folder in which the input of that name reports on its feeds."""
    return f"{checkpoint_location(checkpoint)}/upstream-feeds/{name}"


def operator_folder(checkpoint: str, kind: Kind, number: int) -> str:
    """Return the folder in which the shards of a numbered operator report."""
    return _OF_KIND[kind](checkpoint, number)


def quarantine_folder(checkpoint: str | os.PathLike[str]) -> str:
    """Return the default folder in which an input of Spark's own quarantines rows."""
    return f"{os.fspath(checkpoint)}/quarantine"


def times_folder(checkpoint: TableFolder) -> TableFolder:
    """Return the folder in which the tasks of a source with this checkpoint report the times that they read."""
    return checkpoint.below("upstream-times")


_OF_KIND = {
    "queue": queue_folder,
    "windows": windows_folder,
    "reorder": reorder_folder,
    "joins": joins_folder,
    "latest": latest_folder,
    "numbering": numbering_folder,
}
