"""The names of the package's own files in a query's checkpoint, and the records of its operators and of Spark."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Collection, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

from ...conf.errors import CheckpointError
from ...conf.locations import Place, checkpoint_location, real_location
from ...conf.process_identity import Process
from ...storage.atomic_write import write_whole
from ...storage.folder import TableFolder, folder_at

Kind = Literal["queue", "windows", "reorder", "joins", "latest", "numbering"]
"""The kinds of operators whose folders are numbered."""

CONTROLS = "upstream-control"
FEED_LISTS = "upstream-feeds"
FILE_LISTS = "upstream-files"
LANES = "upstream-lanes.json"
PLAN = "upstream-plan"
SAMPLES = "upstream-samples"
SINK = "upstream-sink"
SPARK = "upstream-spark"
_QUERY_QUEUE = "queue-"
OWN_SCHEMA = "upstream-schema-"
"""The prefix of the file with a source's inferred schema."""
SOURCE_RECORD = "upstream-source-"
"""The prefix of the file with a source's options, by which others read its rows again."""


def queue_folder(checkpoint: str, number: int = 0) -> str:
    """Return the folder for the reports of the shards of a queue."""
    return f"{checkpoint_location(checkpoint)}/upstream-queue{f'-{number}' if number else ''}"


def queue_of(folder: str) -> tuple[str, int] | None:
    """Return the checkpoint and the number of the queue that reports to a folder; None for another folder."""
    checkpoint, named, number = folder.rpartition("/upstream-queue")
    return (checkpoint, int(number.removeprefix("-") or 0)) if named else None


def stage_folder(checkpoint: str, number: int) -> str:
    """Return the folder for the reports of the shards of a stage of hosted queries."""
    return f"{checkpoint_location(checkpoint)}/upstream-stages/{number}"


def states_folder(checkpoint: str) -> str:
    """Return the folder for the states of hosted queries."""
    return f"{checkpoint_location(checkpoint)}/upstream-states"


def query_queue_folder(checkpoint: str, query: int) -> str:
    """Return the folder for the reports of the shards of a hosted query's queue."""
    return f"{stage_folder(checkpoint, 0)}/{_QUERY_QUEUE}{query}"


def forget_query_queues(checkpoint: TableFolder, but: Collection[int]) -> None:
    """Remove the reports of the queues of all hosted queries but some."""
    stage, kept = TableFolder(stage_folder(checkpoint.location, 0), checkpoint.storage), set(map(str, but))
    for each in stage.listing():
        if each.is_folder and each.name.startswith(_QUERY_QUEUE) and each.name[len(_QUERY_QUEUE) :] not in kept:
            place = stage.below(each.name)
            if place.is_local:
                shutil.rmtree(place.location, ignore_errors=True)
            else:  # a store has no empty folders
                place.remove(place.names(""))


def feeds_folder(checkpoint: str, name: str) -> str:
    """Return the folder for the feed reports of the input with that name."""
    return f"{checkpoint_location(checkpoint)}/upstream-feeds/{name}"


def operator_folder(checkpoint: str, kind: Kind, number: int = 0) -> str:
    """Return the folder for the reports of an operator's shards.

    Operators of a kind are numbered from 0 along the stream, so that an unchanged job finds its own folders.
    """
    if kind == "queue":
        return queue_folder(checkpoint, number)
    return f"{checkpoint_location(checkpoint)}/upstream-{kind}/{number}"


def dead_letters_folder(checkpoint: str | os.PathLike[str]) -> str:
    """Return the default location of the query's table of dead letters."""
    return f"{os.fspath(checkpoint)}/dead_letters"


def beside_checkpoint(letters: Place, checkpoint: str | os.PathLike[str] | None) -> bool:
    """Return whether a table of dead letters has to lie apart from the checkpoint: that within it is the query's."""
    return checkpoint is None or real_location(letters[1]) != real_location(dead_letters_folder(checkpoint))


def times_folder(checkpoint: TableFolder) -> TableFolder:
    """Return the folder for the reports of the times that the source's tasks read."""
    return checkpoint.below("upstream-times")


_LAYOUT = 1
_NAME = "operators.json"


def has_begun(checkpoint: TableFolder) -> bool:
    """Return whether Spark has journaled a batch below a checkpoint."""
    return any(name.isdigit() for name in checkpoint.names("offsets"))


def read_plan_record(checkpoint: str) -> Any:
    """Return the last record, or None; raise a CheckpointError for another version's."""
    place = folder_at(checkpoint_location(checkpoint)).below(PLAN)
    try:
        found: Any = json.loads(place.read(_NAME))
    except FileNotFoundError:
        return None
    if found["layout"] != _LAYOUT:
        raise CheckpointError(
            f"the record of the job in {place.location} has layout {found['layout']}",
            expected=f"layout {_LAYOUT}",
            hint="run the version of the package that began the checkpoint, or start with a new checkpoint location",
        )
    return found["stages"]


def write_plan_record(checkpoint: str, stages: Any) -> None:
    """Replace the checkpoint's record by `stages`, a JSON value."""
    place = folder_at(checkpoint_location(checkpoint)).below(PLAN)
    content = json.dumps({"layout": _LAYOUT, "stages": stages}, indent=1).encode()
    write_whole(place, _NAME, lambda stream: stream.write(content))


_STEPS, _STEPS_LAYOUT = "steps.json", 2


def read_steps(checkpoint: TableFolder) -> list[dict[str, Any]] | None:
    """Return the steps of the query as its last start recorded them; None without a record of this layout."""
    try:
        found: Any = json.loads(checkpoint.below(PLAN).read(_STEPS))
    except FileNotFoundError:
        return None
    return found["steps"] if found["layout"] == _STEPS_LAYOUT else None


def write_steps(checkpoint: TableFolder, steps: Any) -> None:
    """Replace the record of a query's steps, a JSON value: for people, since no query depends on it."""
    content = json.dumps({"layout": _STEPS_LAYOUT, "steps": steps}, indent=1).encode()
    write_whole(checkpoint.below(PLAN), _STEPS, lambda stream: stream.write(content))


_APPLICATION = "application.json"
# Times of so many batches stay; older ones go now and then.
_BATCHES, _EVERY = 256, 64


@dataclasses.dataclass(frozen=True)
class SparkTimes:
    """The times that Spark measured in a batch."""

    batch: int
    began_us: int  # when Spark's trigger began
    steps_s: Mapping[str, float]  # by Spark's name of a step, such as addBatch

    def write(self, checkpoint: TableFolder) -> None:
        """Write the times beside those of the batches before."""
        place = checkpoint.below(SPARK)
        _write(place, f"{self.batch}.json", self)
        if self.batch % _EVERY == 0:
            numbers = (name.removesuffix(".json") for name in place.names(""))
            place.remove([f"{each}.json" for each in numbers if each.isdigit() and int(each) <= self.batch - _BATCHES])

    @classmethod
    def read(cls, checkpoint: TableFolder, batch: int) -> SparkTimes | None:
        """Return a batch's times; None if Spark's listener has not written them."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, ValueError, TypeError):
            return cls(**json.loads(checkpoint.below(SPARK).read(f"{batch}.json")))
        return None


@dataclasses.dataclass(frozen=True)
class SparkApplication:
    """The application of Spark that runs a query."""

    id: str
    pages: str | None  # the address of Spark's UI; None without one
    processes: tuple[Process, ...]  # the driver's: its JVM, and Python

    def write(self, checkpoint: TableFolder) -> None:
        """Replace the record of the application that ran the query before."""
        _write(checkpoint.below(SPARK), _APPLICATION, dataclasses.replace(self, pages=page_address(self.pages)))

    @classmethod
    def read(cls, checkpoint: TableFolder) -> SparkApplication | None:
        """Return the application that last ran a query; None if it is unknown."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, ValueError, TypeError, KeyError):
            found = json.loads(checkpoint.below(SPARK).read(_APPLICATION))
            processes = tuple(Process(**each) for each in found["processes"])
            return cls(str(found["id"]), page_address(found["pages"]), processes)
        return None


def page_address(text: Any) -> str | None:
    """Return the scheme, host and path of an HTTP address, without a password or a query; None for all else."""
    with contextlib.suppress(ValueError, AttributeError):
        parts = urlsplit(str(text))
        if parts.scheme in ("http", "https") and parts.hostname:
            return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
    return None


def _write(place: TableFolder, name: str, value: SparkTimes | SparkApplication) -> None:
    content = json.dumps(dataclasses.asdict(value)).encode()
    write_whole(place, name, lambda stream: stream.write(content))
