"""The last commit to each table that a checkpoint remembers, to detect a table that has lost it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa

from ...conf.errors import CheckpointError, TableError
from ...core.feedback.checkpoint_layout import SINK
from ...core.feedback.reports import read_values, write_value
from ...delta_format.latest_table import METADATA_KEY, recorded_under
from ...storage.folder import TableFolder

if TYPE_CHECKING:
    from ..spec.options import SinkTarget


_NAME = "last-commits.json"

ITS_TABLE = ""
"""The name of the table of a query that writes to one alone."""


class CommitLog(Protocol):
    """The log of a table, at its latest version."""

    @property
    def version(self) -> int:
        """The latest version; -1 if there is no table."""
        ...

    @property
    def table_id(self) -> str:
        """The id in the table's metadata; empty without a table."""
        ...

    def entries(self, count: int) -> list[dict[str, Any]]:
        """Return the `commitInfo` and `version` of the latest versions, newest first, as far as the log goes."""
        ...


class LastCommit(NamedTuple):
    """The last commit to a table that the checkpoint remembers.

    The table's own record is not enough. A table that was deleted or restored has the record of an earlier state. After
    a RESTORE, which keeps transactions, it records batches that it no longer holds. To continue would lose batches.
    """

    table_id: str  # the id in the table's metadata
    version: int  # the version of that commit, or a later one
    batch_id: int
    incarnation: int = 0  # of the hosted query that made the commit

    def check(self, log: CommitLog, location: str, recorded: int | None, writer: str, name: str = ITS_TABLE) -> None:
        """Refuse a table that lost commits of the query: it is gone, another one, or was restored.

        `recorded` is the query's last batch by the table's transactions, `writer` its name in them, and `name`
        that of a hosted query.
        """
        query = f"the query {name!r}" if name else "this query"
        if log.version < 0:
            raise self._lost(f"there is no table at {location} any more", name)
        if log.table_id != self.table_id:
            raise self._lost(
                f"the table at {location} is another one than {query} has written: it was created again", name
            )
        if log.version < self.version or recorded is None or recorded < self.batch_id:
            raise self._lost(
                f"the table at {location}, at version {log.version}, does not hold the last commit of {query}", name
            )
        newer = log.version - self.version
        restored = _restored_over(log.entries(newer), self.version, writer) if newer else None
        if restored is not None:
            raise self._lost(
                f"version {restored} of the table at {location} has restored it to an earlier one, without commits of "
                f"{query}",
                name,
            )

    def _lost(self, problem: str, name: str) -> TableError:
        held = f"the table {self.table_id} with what the query committed up to batch {self.batch_id}"
        if name:
            return TableError(
                problem,
                expected=f"{held}: it sends its table only what changes",
                hint=f"restore the table; or start the query from the beginning: deactivate {name}, then activate it",
            )
        return TableError(
            problem,
            expected=f"{held}, in version {self.version} or later, since rows would be lost without it",
            hint="restore the table. Or start the query with a new checkpointLocation. It then reads its input from "
            "the beginning, and rows that the table has, or has newer, change nothing. To continue without those "
            f"rows, remove {SINK}/{_NAME} from the query's checkpoint",
        )


def _restored_over(entries: Sequence[Mapping[str, Any]], version: int, writer: str) -> int | None:
    """Return the version that restored a table to one without commits of a query; None if none did.

    `entries` are the `commitInfo` of the versions after `version`, the query's last commit that is remembered.
    """

    def query_of(entry: Mapping[str, Any]) -> Any:
        return (recorded_under(METADATA_KEY, entry) or {}).get("query_id")

    mine = {version, *(int(entry["version"]) for entry in entries if query_of(entry) == writer)}
    for entry in entries:
        if entry.get("operation") != "RESTORE":
            continue
        restored_to = (entry.get("operationParameters") or {}).get("version")
        made = int(entry["version"])
        # Restored by a time: to which version is not said.
        if restored_to is None or any(int(restored_to) < each < made for each in mine):
            return made
    return None


def read_last_commits(checkpoint: TableFolder) -> dict[str, LastCommit]:
    """Return the last commit to each table that the checkpoint remembers, by the query's name."""
    try:
        values = read_values(checkpoint.below(SINK), _NAME)
        return {name: LastCommit(*fields) for name, fields in values[0].items()} if values else {}
    except (OSError, ValueError, TypeError, AttributeError, pa.ArrowException) as error:
        raise _unusable(checkpoint, error) from error


def write_last_commits(checkpoint: TableFolder, commits: Mapping[str, LastCommit]) -> None:
    """Write the last commit to each table to the checkpoint, by the query's name."""
    try:
        write_value(checkpoint.below(SINK), _NAME, commits)
    except (OSError, pa.ArrowException) as error:
        raise _unusable(checkpoint, error) from error


def version_remembered(target: SinkTarget) -> int | None:
    """Return a version that has the query's last commit; None without one, or without a checkpoint."""
    if target.application is not None or not target.checkpoint:
        return None
    last = read_last_commits(target.checkpoint_folder).get(ITS_TABLE)
    return None if last is None else last.version


def _unusable(checkpoint: TableFolder, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"what the checkpoint remembers of its tables cannot be kept in {checkpoint.location}/{SINK}: "
        f"{checkpoint.masked(error)}",
        expected=f"a folder that the driver can read and write, with {_NAME} as the sink wrote it",
        hint="check that the disk has room and the folder is writable; the restarted query repeats the batch",
    )


_ON_DISK = (
    "give checkpointLocation as a path that the driver's machine can read; Spark takes one without file: before it for "
    "a place in its default file system (spark.hadoop.fs.defaultFS)"
)
_IN_STORE = (
    "give the store's options to the sink, as for a table there (storage.…; docs/readers.md): Spark's own "
    "spark.hadoop.fs.… do not reach it"
)


def read_query_id(checkpoint: TableFolder) -> str:
    """Return the id that Spark gave the query's checkpoint before its first batch."""
    try:
        return str(json.loads(checkpoint.read("metadata"))["id"])
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise CheckpointError(
            f"the query's id cannot be read from {checkpoint.location}/metadata: {checkpoint.masked(error)}",
            expected="the metadata file that Spark writes when a query starts, readable for the driver",
            hint=_ON_DISK if checkpoint.is_local else _IN_STORE,
        ) from (error if checkpoint.is_local else None)


def writer_id(target: SinkTarget) -> str:
    """Return the writer's name in summaries and transactions."""
    return read_query_id(target.checkpoint_folder) if target.application is None else target.application
