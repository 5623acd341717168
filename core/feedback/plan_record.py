"""The record of a query's operators in its checkpoint, and whether the query has begun."""

from __future__ import annotations

import json
from typing import Any

from ...conf.errors import CheckpointError
from ...conf.locations import checkpoint_location
from ...storage.atomic_write import write_whole
from ...storage.folder import folder_at
from .checkpoint_layout import PLAN

__all__ = ["has_begun", "read_plan_record", "write_plan_record"]

_LAYOUT = 1
_NAME = "operators.json"


def has_begun(checkpoint: str) -> bool:
    """Return whether Spark has journaled a batch below a checkpoint."""
    return any(name.isdigit() for name in folder_at(checkpoint_location(checkpoint)).names("offsets"))


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
