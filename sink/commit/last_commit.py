"""A query's name as a writer, and its last commit, to detect a table that has lost it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...conf.errors import CheckpointError, TableError
from ...core.feedback.checkpoint_layout import SINK
from ...core.feedback.reports import read_values, write_value
from ...delta_format.latest_table import METADATA_KEY, recorded_under
from ...delta_format.log import commit_infos
from ...storage.folder import TableFolder

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from ..spec.options import SinkTarget


_NAME = "last-commit.json"


@dataclasses.dataclass(frozen=True)
class LastCommit:
    """The last commit that a query's checkpoint remembers.

    The table's own record is not enough. A table that was deleted or put back has the record of an earlier
    state. After a RESTORE, which keeps transactions, it records batches that it no longer holds. To continue
    would lose batches.
    """

    table_id: str  # the id in the table's metadata
    version: int  # the version of that commit, or a later one
    batch_id: int

    @classmethod
    def of(cls, checkpoint: TableFolder) -> LastCommit | None:
        """Return the last commit that the checkpoint remembers; None before the query's first one."""
        try:
            values = read_values(checkpoint.below(SINK), _NAME)
            return cls(**values[0]) if values else None
        except (OSError, ValueError, TypeError, pa.ArrowException) as error:
            raise _unusable(checkpoint, error) from error

    def remember(self, checkpoint: TableFolder) -> None:
        try:
            write_value(checkpoint.below(SINK), _NAME, dataclasses.asdict(self))
        except (OSError, pa.ArrowException) as error:
            raise _unusable(checkpoint, error) from error

    def check(self, table: DeltaTable | None, location: str, recorded: int | None, query_id: str) -> None:
        """Refuse a table that lost commits of this query: it is gone, another one, or was restored.

        `recorded` is the query's last batch by the table's transactions.
        """
        if table is None:
            raise self._lost(f"there is no table at {location} any more")
        if str(table.metadata().id) != self.table_id:
            raise self._lost(
                f"the table at {location} is another one than this query has written: it was created again"
            )
        if table.version() < self.version or recorded is None or recorded < self.batch_id:
            raise self._lost(
                f"the table at {location}, at version {table.version()}, does not hold this query's last commit"
            )
        newer = table.version() - self.version
        restored = restored_over(commit_infos(table, newer), self.version, query_id) if newer else None
        if restored is not None:
            raise self._lost(
                f"version {restored} of the table at {location} has restored it to an earlier one, without commits of "
                "this query"
            )

    def _lost(self, problem: str) -> TableError:
        return TableError(
            problem,
            expected=f"the table {self.table_id} with what this query committed up to batch {self.batch_id}, in "
            f"version {self.version} or "
            "later: to go on without it would lose rows",
            hint="put the table back as it was; or start the query with a new checkpointLocation, so that it reads its "
            "input from the "
            "beginning: rows that the table has, or has newer, change nothing. To go on without those rows, remove "
            f"{SINK}/{_NAME} from the query's checkpoint",
        )


def restored_over(entries: Sequence[Mapping[str, Any]], version: int, query_id: str) -> int | None:
    """Return the version that restored a table to one without commits of a query; None if none did.

    `entries` are the `commitInfo` of the versions after `version`, the query's last commit that is remembered.
    """
    mine = {version, *(int(entry["version"]) for entry in entries if _query_of(entry) == query_id)}
    for entry in entries:
        if entry.get("operation") != "RESTORE":
            continue
        restored_to = (entry.get("operationParameters") or {}).get("version")
        made = int(entry["version"])
        # Restored by a time: to which version is not said.
        if restored_to is None or any(int(restored_to) < each < made for each in mine):
            return made
    return None


def last_remembered(target: SinkTarget) -> LastCommit | None:
    """Return the last commit that the writer's checkpoint remembers; None without one, or without a checkpoint."""
    return LastCommit.of(target.checkpoint_folder) if target.application is None and target.checkpoint else None


def version_remembered(target: SinkTarget) -> int | None:
    """Return a version that has the query's last commit; None as for :func:`last_remembered`."""
    last = last_remembered(target)
    return None if last is None else last.version


def _query_of(entry: Mapping[str, Any]) -> Any:
    return (recorded_under(METADATA_KEY, entry) or {}).get("query_id")


def _unusable(checkpoint: TableFolder, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"what the checkpoint remembers of the table cannot be kept in {checkpoint.location}/{SINK}: "
        f"{checkpoint.masked(error)}",
        expected=f"a folder that can be read and written beside the driver, with {_NAME} as the sink wrote it",
        hint="check that the disk has room and the folder may be written to; the restarted query repeats the batch",
    )


_ON_DISK = (
    "give checkpointLocation as a path that the driver's machine can read; Spark takes one without file: before it for "
    "a place in its "
    "default file system (spark.hadoop.fs.defaultFS)"
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
            expected="the metadata file that Spark writes when a query starts, readable beside the driver",
            hint=_ON_DISK if checkpoint.is_local else _IN_STORE,
        ) from (error if checkpoint.is_local else None)


def writer_id(target: SinkTarget) -> str:
    """Return the writer's name in summaries and transactions."""
    return read_query_id(target.checkpoint_folder) if target.application is None else target.application
