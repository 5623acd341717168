"""Feed progress after a batch, reported by the tasks that read its times; see docs/decisions/0002."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...storage.folder import TableFolder
from .report_files import read_values

__all__ = ["batch_name", "reported_states"]


def batch_name(end: Mapping[str, Any]) -> str:
    """Return the name of the batch that ended at an offset, the prefix of its tasks' files."""
    return f"{end['id']}-{end['batch']:08d}"


def reported_states(folder: TableFolder, end: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the progress snapshot of each feed of a batch, from the reports of its tasks."""
    states: dict[str, Mapping[str, Any]] = {}
    for value in read_values(folder, batch_name(end) + "-"):
        states.update(value)
    return states
