"""A latest table by its path: read it, check it, maintain it. No Spark session, and no Java."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..conf.arguments import path_argument
from ..conf.errors import OptionError
from ..conf.locations import absolute_location
from ..conf.units import parse_duration_us
from ..storage.folder import TableFolder
from .admin.check import Report, check_table
from .admin.erase import Erasure, erase_key
from .admin.history_change import change_keep
from .admin.maintain import maintain_table
from .admin.rebucket import rebucket_table
from .admin.repair import Repairs, repair_table
from .admin.scan import open_table, scan_table
from .commit.lease import release_lease
from .figures.run import RunFigures, run_staleness
from .figures.summary import CommitSummary, read_summaries

if TYPE_CHECKING:
    import polars as pl

    from .spec.maintenance_rules import Maintained

__all__ = ["LatestTable"]

_OWN = "_upstream_"


class LatestTable:
    """A Delta table that keeps the newest row of each key.

    Parameters
    ----------
    path
        The table's folder or address.
    storage_options
        Options for an object store, such as ``{"region": "eu-west-1"}``.

    Raises
    ------
    OptionError
        The path is none.

    Notes
    -----
    Nothing is read before a method needs it. A method that changes rows makes one commit, or leaves the table as it was; :meth:`compact` makes one for each bucket, none of which
    changes a row.

    Examples
    --------
    >>> table = upstream.LatestTable("latest")
    >>> table.rows().filter(pl.col("speed") > 10).collect()
    >>> table.check().healthy
    True
    """

    def __init__(self, path: str | os.PathLike[str], *, storage_options: Mapping[str, str] | None = None) -> None:
        self.path = path_argument("path", path)
        self._storage = dict(storage_options or {})

    def __repr__(self) -> str:
        return f"LatestTable({self.path!r})"

    def rows(self, columns: Sequence[str] | None = None) -> pl.LazyFrame:
        """Return the newest row of each key, to be filtered and collected.

        Parameters
        ----------
        columns
            Which; all but UpStream's own unless given.

        Returns
        -------
        polars.LazyFrame

        Raises
        ------
        TableError
            There is no table, or it cannot be opened.
        OptionError
            The table lacks a column.
        """
        found = scan_table(open_table(TableFolder(absolute_location(self.path), self._storage), self.path))
        names = found.collect_schema().names()
        wanted = [name for name in names if not name.startswith(_OWN)] if columns is None else list(columns)
        absent = [name for name in wanted if name not in names]
        if absent:
            raise OptionError(
                f"the table has no column {', '.join(absent)}", expected="columns among " + ", ".join(names)
            )
        return found.select(wanted)

    def check(self, *, source: str | None = None) -> Report:
        """Check that the table is what the sink promises; see :func:`upstream.check_table`."""
        return check_table(self.path, storage=self._storage, source=source)

    def repair(self, *, dry_run: bool = False, orphans: bool = False, force: bool = False) -> Repairs:
        """Repair what :meth:`check` finds; see :func:`upstream.repair_table`. No query may be writing."""
        return repair_table(self.path, storage=self._storage, dry_run=dry_run, orphans=orphans, force=force)

    def maintain(
        self, *, retention: str | None = None, versions: int | None = None, dry_run: bool = False
    ) -> Maintained:
        """Remove what no version within the retention needs.

        Parameters
        ----------
        retention
            How long a version can be read, such as ``7 days``; what the table records unless given.
        versions
            How many can be read at least; what the table records unless given.
        dry_run
            Only say what would be done.

        Returns
        -------
        Maintained

        Raises
        ------
        OptionError
            `retention` is no duration.
        TableError
            There is no such table, UpStream has not made it, or it cannot be read or written.
        """
        return self._maintain(retention, versions, dry_run=dry_run, compact=False)

    def compact(self) -> Maintained:
        """Write files again that are small or have dead rows, then :meth:`maintain`. A batch under way may have to be repeated."""
        return self._maintain(None, None, dry_run=False, compact=True)

    def rebucket(self, buckets: int) -> int:
        """Divide the table into another number of buckets, and return its version; see :func:`upstream.rebucket_table`."""
        return rebucket_table(self.path, buckets, storage=self._storage)

    def keep_history(self, keep: str) -> int:
        """Keep more or fewer of the newest rows of each key, ``latest`` or ``latest N``, and return the version; see :func:`upstream.change_keep`."""
        return change_keep(self.path, keep, storage=self._storage)

    def history(self, *, after_version: int = -1) -> list[tuple[int, CommitSummary]]:
        """Return the versions that queries have committed, with what each says of itself; see :func:`upstream.read_summaries`."""
        return read_summaries(self.path, after_version, self._storage)

    def staleness(self, *, after_version: int = -1) -> RunFigures | None:
        """Return the staleness of what the last query has committed; None if there is no commit. See :func:`upstream.run_staleness`."""
        return run_staleness(self.path, after_version, self._storage)

    def erase(self, *key: Any, outputs: Sequence[str] = (), dry_run: bool = False) -> Erasure:
        """Erase a key from the table, and from its tables of late and conflicting rows; see :func:`upstream.erase_key`."""
        return erase_key(self.path, *key, storage=self._storage, outputs=outputs, dry_run=dry_run)

    def release(self) -> str | None:
        """Take the lease from the query that holds it, so that another one may start; return its id, or None if nobody held it.

        Only for a query whose driver is gone: one that lives takes the lease again with its next batch.
        """
        taken = release_lease(TableFolder(absolute_location(self.path), self._storage))
        return None if taken is None else taken.query_id

    def _maintain(self, retention: str | None, versions: int | None, *, dry_run: bool, compact: bool) -> Maintained:
        try:
            retention_us = None if retention is None else parse_duration_us(retention)
        except ValueError:
            raise OptionError(f"retention={retention!r}", expected="a duration such as '7 days'") from None
        return maintain_table(
            self.path,
            storage=self._storage,
            retention_us=retention_us,
            versions=versions,
            dry_run=dry_run,
            compact=compact,
        )
