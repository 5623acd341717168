"""The order of arrival in a table over all its writers, whose inputs number their rows from 0 each."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from ...conf.errors import TableError
from ...delta_format.latest_table import SEQ
from ..figures.summary import APP_PREFIX
from ..table.table import transaction_version

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from ..merge.task import TaskResult
    from ..spec.options import SinkTarget
    from ..table.files import DataFiles
    from ..table.table import Snapshot


BASE_PREFIX = "upstream.base-"
"""Begins the application of the transaction that holds a query's base."""
HIGHEST = "upstream.highest"
"""The application of the transaction that holds one more than the highest number in the table."""


@dataclasses.dataclass(frozen=True)
class RowNumberOffset:
    """The offset of a writer's row numbers in a table.

    A query's base is one above the highest number that the table had at the query's first commit. So of two
    rows of one key and time, the later query's row is the later one. Base and highest number are transaction
    versions in the table's commits: a repeat and a restart find the same base.
    """

    base: int = 0  # added to the numbers of the writer's rows
    # the query whose base it is; None for a batch of no query, which takes a new base each time
    query: str | None = None

    @classmethod
    def of(
        cls, target: SinkTarget, writer: str, table: DeltaTable | None, snapshot: Snapshot, files: DataFiles
    ) -> RowNumberOffset:
        query = (target.numbered_by or writer) if target.of_query and target.repeatable else None
        if table is None:
            return cls(0, query)
        if query is not None:
            known = transaction_version(target, table, BASE_PREFIX + query)
            if known is not None:
                return cls(known, query)
            if transaction_version(target, table, APP_PREFIX + writer) is not None:
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
        """Return the transaction versions that go with a commit upon a version of the table.

        A query whose first batch met that of another one takes the current base: its rows so far are in buckets that
        the other one has not changed, and its further rows are later.
        """
        highest = max([_next(target, table, snapshot, files), *(result.highest + 1 for result in results)])
        numbers = {HIGHEST: highest}
        return numbers if self.query is None else numbers | {BASE_PREFIX + self.query: self.base}


def _next(target: SinkTarget, table: DeltaTable, snapshot: Snapshot, files: DataFiles) -> int:
    """Return a number above all row numbers of the table."""
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
