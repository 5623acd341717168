"""The checkpoint's memory of its result tables, to detect a table that is gone or was restored."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pyarrow as pa

from ...conf.errors import CheckpointError, TableError
from ...core.feedback.checkpoint_layout import SINK
from ...core.feedback.report_files import read_values, write_value
from ..commit.last_commit import restored_over

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...storage.folder import TableFolder
    from .known_table import KnownTable

__all__ = ["Begun", "read_begun", "write_begun"]

_NAME = "result-tables.json"


@dataclasses.dataclass(frozen=True)
class Begun:
    """The last commit to a table that the checkpoint remembers.

    A query sends its table only changes. Without this check, a deleted table would be made with these alone,
    and a restored one would lack some.
    """

    query_id: int  # the incarnation that made the commit
    table_id: str  # the id in the table's metadata
    version: int  # the version of that commit, or a later one
    batch_id: int

    def fields(self) -> tuple[int, str, int, int]:
        return self.query_id, self.table_id, self.version, self.batch_id

    def check(self, known: KnownTable, location: str, recorded: int | None, writer: str, name: str) -> None:
        """Refuse a table that lost commits of the query: it is gone, another one, or was restored.

        `recorded` is the query's last batch by the table's transactions, and `writer` its name in them.
        """
        if not known.exists:
            raise self._lost(f"there is no table at {location} any more", name)
        if known.table_id != self.table_id:
            raise self._lost(f"the table at {location} is another one than the query {name!r} has written", name)
        if known.log.version < self.version or recorded is None or recorded < self.batch_id:
            raise self._lost(
                f"the table at {location}, at version {known.log.version}, does not hold the last commit of the query "
                f"{name!r}",
                name,
            )
        if known.log.version > self.version:
            restored = restored_over(known.entries_after(self.version), self.version, writer)
            if restored is not None:
                raise self._lost(
                    f"version {restored} of the table at {location} has restored it to an earlier one, without commits "
                    f"of the query {name!r}",
                    name,
                )

    def _lost(self, problem: str, name: str) -> TableError:
        return TableError(
            problem,
            expected=f"the table {self.table_id} with what the query committed up to batch {self.batch_id}: it sends "
            "its table only what changes",
            hint=f"put the table back as it was; or let the query begin anew: deactivate {name}, then activate it",
        )


def read_begun(checkpoint: TableFolder) -> dict[str, Begun]:
    """Return the checkpoint's memory of each query's table, by the query's name."""
    try:
        values = read_values(checkpoint.below(SINK), _NAME)
        return {name: Begun(*fields) for name, fields in values[0].items()} if values else {}
    except (OSError, ValueError, TypeError, pa.ArrowException) as error:
        raise _unusable(checkpoint, error) from error


def write_begun(checkpoint: TableFolder, begun: Mapping[str, Begun]) -> None:
    """Write the last commit to each query's table to the checkpoint."""
    try:
        write_value(checkpoint.below(SINK), _NAME, {name: each.fields() for name, each in begun.items()})
    except (OSError, pa.ArrowException) as error:
        raise _unusable(checkpoint, error) from error


def _unusable(checkpoint: TableFolder, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"what the checkpoint remembers of result tables cannot be kept in {checkpoint.location}/{SINK}: "
        f"{checkpoint.masked(error)}",
        expected=f"a folder that can be read and written beside the driver, with {_NAME} as the sink wrote it",
        hint="check that the disk has room and the folder may be written to; the restarted query repeats the batch",
    )
