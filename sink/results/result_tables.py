"""The tables of many queries, beside the driver: looked at before a batch, committed after it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...conf.clock import now_us
from ...conf.errors import UpstreamError

if TYPE_CHECKING:
    from ...storage.folder import TableFolder
    from ..figures.summary import CommitSummary
    from .result_table import ResultTable
    from .staging import SeenTable

__all__ = ["ResultTables", "Seen"]


@dataclasses.dataclass(frozen=True)
class Seen:
    """What was seen of tables before a batch.

    Attributes
    ----------
    tables : mapping of str to SeenTable
        What :func:`~upstream.sink.results.staging.stage` needs of each, by the query's name.
    refused : mapping of str to UpstreamError
        Why a table cannot be written, of those that cannot: its query is to fail.
    """

    tables: Mapping[str, SeenTable]
    refused: Mapping[str, UpstreamError]


class ResultTables:
    """The tables of the queries that one streaming query hosts.

    Parameters
    ----------
    host
        The streaming query's id, as Spark gave it to its checkpoint.
    checkpoint
        The checkpoint's folder, in which is remembered what was committed.
    clock_us
        Says when a commit is made.
    """

    def __init__(self, host: str, checkpoint: str | TableFolder, clock_us: Callable[[], int] = now_us) -> None: ...

    def look(self, tables: Iterable[ResultTable]) -> Seen:
        """Return what tasks need of the tables for the next batch. It can be pickled."""
        ...

    def commit(
        self,
        tables: Iterable[ResultTable],
        results: Mapping[str, Sequence[bytes]],
        batch_id: int,
        offsets: str | None,
    ) -> dict[str, CommitSummary]:
        """Make a batch visible in all tables, in each of them once.

        Parameters
        ----------
        tables
            All that the queries in force have, with or without results: what is not there is made, and the first batch
            of another incarnation replaces all rows. Leave out those of queries that have failed.
        results
            What :func:`~upstream.sink.results.staging.stage` returned, by the query's name. Names that are not among
            the tables are discarded.
        batch_id
            The batch's number.
        offsets
            The digest of what the batch reads (:func:`upstream.sink.commit.batch_identity.read_offsets`).

        Returns
        -------
        dict of str to CommitSummary
            The commits that were made: none of a table that has the batch already, or had no rows in it.

        Raises
        ------
        TableError
            Some tables could not be committed. All others are; a repeat of the batch commits what is missing.
        """
        ...

    def discard(self, results: Mapping[str, Sequence[bytes]]) -> None:
        """Remove what tasks have staged for a batch that is not committed."""
        ...
