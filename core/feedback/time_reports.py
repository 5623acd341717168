"""What tasks leave behind of the times they read: per batch the state of their feeds' progress after it. See
docs/decisions/0015.

The planner of the next batch takes it up, and so does whoever counts the rows of the batch itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...storage.folder import TableFolder
from .report_files import read_values

__all__ = ["batch_name", "reported_states"]


def batch_name(end: Mapping[str, Any]) -> str:
    """Return the name of the batch that ended at an offset, with which its tasks' files begin."""
    return f"{end['id']}-{end['batch']:08d}"


def reported_states(folder: TableFolder, end: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the state of progress of each feed of a batch, as the tasks that looked at it reported."""
    states: dict[str, Mapping[str, Any]] = {}
    for value in read_values(folder, batch_name(end) + "-"):
        states.update(value)
    return states
