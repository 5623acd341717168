"""The order of arrival in a table over all who write it, whose inputs number their rows from 0 each.

Each query has a base, which is added to what its rows are numbered by: one beyond the highest number that the table had
when the query first committed. So of two rows of a key and one time the one that a later query brings is the later one.
Both numbers are versions of transactions in the table's own commits: a repeat and a restart find the same base.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from ...conf.errors import TableError
from ...delta_format.latest_table import SEQ
from ..table.table import transaction_version
from .batch_identity import recorded_batch

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from ..merge.task import TaskResult
    from ..spec.options import SinkTarget
    from ..table.files import DataFiles
    from ..table.table import Snapshot

__all__ = ["BASE_PREFIX", "HIGHEST", "Numbering"]

BASE_PREFIX = "upstream.base-"
"""Begins the application of the transaction that holds a query's base."""
HIGHEST = "upstream.highest"
"""The application of the transaction that holds one more than the highest number in the table."""


@dataclasses.dataclass(frozen=True)
class Numbering:
    """How a writer's rows are numbered in a table, by one of its versions.

    Attributes
    ----------
    base : int
        Is added to the numbers of the writer's rows.
    query : str or None
        Whose base it is; None for a batch that is of no query, which takes a new one each time.
    """

    base: int = 0
    query: str | None = None

    @classmethod
    def of(
        cls, target: SinkTarget, writer: str, table: DeltaTable | None, snapshot: Snapshot, files: DataFiles
    ) -> Numbering:
        """Return the numbering of a writer for the table as it is.

        Parameters
        ----------
        target, writer
            The target, and the writer's name in transactions.
        table, snapshot, files
            The table.

        Raises
        ------
        TableError
            A file that the table names is gone.
        """
        query = (target.numbered_by or writer) if target.of_query and target.repeatable else None
        if table is None:
            return cls(0, query)
        if query is not None:
            known = transaction_version(target, table, BASE_PREFIX + query)
            if known is not None:
                return cls(known, query)
            if recorded_batch(target, table, writer) is not None:
                return cls(0, query)  # an earlier release, which had no bases, wrote for it
        return cls(_next(target, table, snapshot, files), query)

    def transactions(
        self,
        target: SinkTarget,
        table: DeltaTable,
        snapshot: Snapshot,
        files: DataFiles,
        results: Sequence[TaskResult],
    ) -> dict[str, int]:
        """Return the versions of transactions that go with a commit upon a version of the table.

        A query whose first batch met that of another one takes the current base: its rows so far are in buckets that
        the other one has not changed, and its further rows are later.

        Raises
        ------
        TableError
            A file that the table names is gone.
        """
        highest = max([_next(target, table, snapshot, files), *(result.highest + 1 for result in results)])
        numbers = {HIGHEST: highest}
        return numbers if self.query is None else numbers | {BASE_PREFIX + self.query: self.base}


def _next(target: SinkTarget, table: DeltaTable, snapshot: Snapshot, files: DataFiles) -> int:
    """Return a number above all that the table has."""
    known = transaction_version(target, table, HIGHEST)
    if known is not None:
        return known
    # A table by an earlier release: once, since whoever commits says it.
    found = -1
    for path in [*snapshot.rows, *snapshot.tombstones.paths.values()]:
        try:
            largest = pc.max(files.read_rows([path], columns=[SEQ]).column(SEQ)).as_py()
        except FileNotFoundError as error:
            raise TableError(
                f"a file of the table at {target.location} is gone: {error}",
                expected="the files that the table's log names",
                hint="restart the query if the table was replaced or vacuumed meanwhile; else restore the file, or run "
                "upstream repair",
            ) from error
        found = max(found, -1 if largest is None else largest)
    return found + 1
