"""What commits say of how many rows the table has: batches in their summaries, repairs in what they record of themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ...delta_format.latest_table import METADATA_KEY, recorded_under

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["REPAIR_KEY", "RowsRecorded", "rows_recorded"]

REPAIR_KEY = "upstreamRepair"
"""Where the commit of a repair has what it did, and how many rows the table has after it."""

_LOOK_BACK = 256


class RowsRecorded(NamedTuple):
    """How many rows a commit says there are.

    Attributes
    ----------
    version, rows : int
    since : str
        The operations of later commits, which did not say.
    """

    version: int
    rows: int
    since: str


def rows_recorded(table: DeltaTable) -> RowsRecorded | None:
    """The latest count of the last 256 commits; None if none says."""
    operations: list[str] = []
    for entry in table.history(_LOOK_BACK):
        rows = _rows_of(entry)
        if rows is not None:
            return RowsRecorded(int(entry["version"]), rows, ", ".join(dict.fromkeys(operations)))
        operations.append(str(entry.get("operation", "unknown")))
    return None


def _rows_of(entry: Mapping[str, Any]) -> int | None:
    summary, repair = recorded_under(METADATA_KEY, entry), recorded_under(REPAIR_KEY, entry)
    if summary is not None:
        return summary.get("keys")
    return None if repair is None else repair.get("keys")
