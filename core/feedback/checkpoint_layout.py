"""The names of the package's own files in a query's checkpoint, and the record of its operators."""

from __future__ import annotations

import json
import os
from typing import Any, Literal

from ...conf.errors import CheckpointError
from ...conf.locations import Place, checkpoint_location, real_location
from ...storage.atomic_write import write_whole
from ...storage.folder import TableFolder, folder_at

Kind = Literal["queue", "windows", "reorder", "joins", "latest", "numbering"]
"""The kinds of operators whose folders are numbered."""

CONTROLS = "upstream-control"
FEED_LISTS = "upstream-feeds"
FILE_LISTS = "upstream-files"
PLAN = "upstream-plan"
SAMPLES = "upstream-samples"
SINK = "upstream-sink"
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


def windows_folder(checkpoint: str, number: int = 0) -> str:
    """Return the folder for the reports of the shards of a window operator."""
    return f"{checkpoint_location(checkpoint)}/upstream-windows/{number}"


def reorder_folder(checkpoint: str, number: int) -> str:
    """Return the folder for the reports of the shards of a union, a merge, an ordered release or a distinct."""
    return f"{checkpoint_location(checkpoint)}/upstream-reorder/{number}"


def joins_folder(checkpoint: str, number: int = 0) -> str:
    """Return the folder for the reports of the shards of a join."""
    return f"{checkpoint_location(checkpoint)}/upstream-joins/{number}"


def latest_folder(checkpoint: str, number: int = 0) -> str:
    """Return the folder for the reports of the shards of a join or a grouping of newest rows."""
    return f"{checkpoint_location(checkpoint)}/upstream-latest/{number}"


def numbering_folder(checkpoint: str, number: int = 0) -> str:
    """Return the folder for the reports of the step that numbers a stream's rows."""
    return f"{checkpoint_location(checkpoint)}/upstream-numbering/{number}"


def stage_folder(checkpoint: str, number: int) -> str:
    """Return the folder for the reports of the shards of a stage of hosted queries."""
    return f"{checkpoint_location(checkpoint)}/upstream-stages/{number}"


def feeds_folder(checkpoint: str, name: str) -> str:
    """Return the folder for the feed reports of the input with that name."""
    return f"{checkpoint_location(checkpoint)}/upstream-feeds/{name}"


def operator_folder(checkpoint: str, kind: Kind, number: int) -> str:
    """Return the folder for the reports of an operator's shards.

    Operators of a kind are numbered from 0 along the stream, so that an unchanged job finds its own folders.
    """
    return _OF_KIND[kind](checkpoint, number)


def dead_letters_folder(checkpoint: str | os.PathLike[str]) -> str:
    """Return the default location of the query's table of dead letters."""
    return f"{os.fspath(checkpoint)}/dead_letters"


def beside_checkpoint(letters: Place, checkpoint: str | os.PathLike[str] | None) -> bool:
    """Return whether a table of dead letters has to lie apart from the checkpoint: that within it is the query's."""
    return checkpoint is None or real_location(letters[1]) != real_location(dead_letters_folder(checkpoint))


def times_folder(checkpoint: TableFolder) -> TableFolder:
    """Return the folder for the reports of the times that the source's tasks read."""
    return checkpoint.below("upstream-times")


_OF_KIND = {
    "queue": queue_folder,
    "windows": windows_folder,
    "reorder": reorder_folder,
    "joins": joins_folder,
    "latest": latest_folder,
    "numbering": numbering_folder,
}


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
