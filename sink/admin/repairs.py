"""The row counts in commits: batches record them in their summaries, commands in the commit's metadata."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...conf.errors import TableError
from ...conf.units import now_us
from ...delta_format.latest_table import METADATA_KEY, CommitChanges, recorded_under
from ...delta_format.log import commit_infos

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from ..table.contents import TableContents
    from ..table.table import TableChange


REPAIR_KEY = "upstreamRepair"
"""Where the commit of a command has what it did, and how many rows the table has after it."""

_LOOK_BACK = 256


class RowCount(NamedTuple):
    """The row count that a commit records."""

    version: int
    rows: int
    since: str  # the operations of the later commits, which recorded none


def rows_recorded(table: DeltaTable) -> RowCount | None:
    """Return the latest row count in the last 256 commits; None if none has one."""
    operations: list[str] = []
    for entry in commit_infos(table, _LOOK_BACK):
        rows = _rows_of(entry)
        if rows is not None:
            return RowCount(int(entry["version"]), rows, ", ".join(dict.fromkeys(operations)))
        operations.append(str(entry.get("operation", "unknown")))
    return None


def nothing_since(table: DeltaTable) -> CommitChanges:
    """Return the delivery record of a commit that changes no row: the last low-watermark again."""
    delivered = (CommitChanges.of_commit(entry) for entry in commit_infos(table, _LOOK_BACK))
    last = next((found for found in delivered if found is not None), CommitChanges(0, {}, {}))
    return dataclasses.replace(last, committed_at_us=now_us(), rows={}, deletions={})


def commit_command(
    contents: TableContents,
    change: TableChange,
    operation: str,
    done: Sequence[str],
    keys: int | None,
    *,
    properties: Mapping[str, str | None] | None = None,
    numbers: Mapping[str, int] | None = None,
    commit_info: Mapping[str, Any] | None = None,
    meanwhile: str = "while it was rebuilt",
) -> int:
    """Commit a command's change and record its effect; return the table's version.

    `done` is a sentence each. `keys` is the table's number of rows afterwards; None if it is unknown. `meanwhile` is a
    part of the error's text: the period in which no other writer may write.
    """
    target = contents.target
    commit_info = {REPAIR_KEY: {"done": list(done), "keys": keys}, **(commit_info or {})}
    if not change.commit(operation, commit_info, properties=properties, numbers=numbers):
        raise TableError(
            f"another program has written to the table at {target.location} {meanwhile}",
            expected="nobody else writing to the table",
            hint="stop the queries that write to it, and say it again; the table is as it was",
        )
    return change.version


def _rows_of(entry: Mapping[str, Any]) -> int | None:
    summary, repair = recorded_under(METADATA_KEY, entry), recorded_under(REPAIR_KEY, entry)
    if summary is not None:
        return summary.get("keys")
    return None if repair is None else repair.get("keys")
