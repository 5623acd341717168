"""A latest table by its path: read it, check it, maintain it. No Spark session, and no Java."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from ..conf.errors import TableError
from ..conf.locations import absolute_location
from ..conf.options import duration_argument, path_argument
from ..delta_format.scan import open_table, read_columns, reading, scan_columns
from ..storage.folder import TableFolder
from .admin.check import CheckReport, check_table
from .admin.erase import Erasure, erase_key, key_bucket
from .admin.layout_change import change_history, rebucket_table
from .admin.repair import Repairs, repair_table
from .commit.lease import TableLease
from .figures.summary import CommitSummary, RunFigures, read_summaries, run_staleness
from .maintenance.runner import maintain_table

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from .spec.maintenance_rules import MaintenanceResult
    from .write_latest import BatchMetrics


_SHOWN_ROWS = 10


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
        `path` is not a path.

    Notes
    -----
    Nothing is read before a method needs it. A method that changes rows makes one commit, or none;
    :meth:`compact` makes one for each bucket, none of which changes a row. In an object store, :meth:`repair`,
    :meth:`rebucket`, :meth:`set_history`, :meth:`compact` and :meth:`erase` need the extra ``stores``, and raise
    :class:`~upstream.errors.EnvironmentMissingError` without it.

    Examples
    --------
    >>> table = us.LatestTable("latest")
    >>> table.check().healthy
    True
    """

    def __init__(self, path: str | os.PathLike[str], *, storage_options: Mapping[str, str] | None = None) -> None:
        self.path = path_argument("path", path)
        self._storage = dict(storage_options or {})

    def __repr__(self) -> str:
        return f"LatestTable({self.path!r})"

    def _repr_html_(self) -> str:
        """Show the path and some rows in a notebook."""
        head = f"<p>LatestTable <code>{escape(self.path)}</code></p>"
        try:
            return head + self.scan().head(_SHOWN_ROWS).collect()._repr_html_()
        except TableError as error:
            return f"{head}<pre>{escape(str(error))}</pre>"

    def scan(self, columns: Sequence[str] | None = None) -> pl.LazyFrame:
        """Scan the newest row of each key lazily: filter it, then collect it.

        Parameters
        ----------
        columns
            The columns to read [default: all but UpStream's own].

        Returns
        -------
        polars.LazyFrame
            Polars reads no column and no file that the answer does not need.

        Raises
        ------
        TableError
            There is no table, or it cannot be read.
        OptionError
            The table lacks a column.

        Examples
        --------
        >>> table.scan(["vehicle_id", "speed"]).filter(pl.col("speed") > 10).collect().rows()
        [(2, 20.0)]
        """
        return scan_columns(open_table(self.path, self._storage), columns)

    def to_polars(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Read the newest row of each key.

        Parameters
        ----------
        columns
            The columns to read [default: all but UpStream's own].

        Returns
        -------
        polars.DataFrame

        Raises
        ------
        TableError
            There is no table, or it cannot be read.
        OptionError
            The table lacks a column.

        Examples
        --------
        >>> table.to_polars(["vehicle_id", "speed"]).sort("vehicle_id").rows()
        [(1, 10.0), (2, 20.0), (3, 0.0)]
        """
        table = open_table(self.path, self._storage)
        with reading(table):
            return scan_columns(table, columns).collect()

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Read the newest row of each key, in the table's types.

        Parameters
        ----------
        columns
            The columns to read [default: all but UpStream's own].

        Returns
        -------
        pyarrow.Table

        Raises
        ------
        TableError
            There is no table, or it cannot be read.
        OptionError
            The table lacks a column.

        Examples
        --------
        >>> table.to_arrow().num_rows
        3
        """
        return read_columns(open_table(self.path, self._storage), columns)

    def to_pandas(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Read the newest row of each key.

        Parameters
        ----------
        columns
            The columns to read [default: all but UpStream's own].

        Returns
        -------
        pandas.DataFrame

        Raises
        ------
        TableError
            There is no table, or it cannot be read.
        OptionError
            The table lacks a column.

        Examples
        --------
        >>> float(table.to_pandas()["speed"].max())
        20.0
        """
        return self.to_arrow(columns).to_pandas()

    def check(self, *, source: str | None = None) -> CheckReport:
        """Check the sink's guarantees: one row per key, each in its bucket, none that a deletion overrules; files, log
        and counts as recorded.

        Parameters
        ----------
        source
            A folder or file of Parquet, or a Delta table, with input that the table was made from.
            The newest row of each key must be in the table, or lose to what is there.

        Returns
        -------
        Report
            ``healthy``, the `findings`, and what was counted.

        Raises
        ------
        TableError
            There is no table, it is not one of UpStream's, or it cannot be opened.
        SchemaError
            The source lacks the key or the time.

        Examples
        --------
        >>> table.check().healthy
        True
        """
        return check_table(self.path, storage=self._storage, source=source)

    def repair(
        self, *, dry_run: bool = False, orphans: bool = False, retention: str = "7 days", force: bool = False
    ) -> Repairs:
        """Repair what :meth:`check` finds. No query may be writing.

        Parameters
        ----------
        dry_run
            Only find out what would be done.
        orphans
            Remove files that no version within the retention needs.
        retention
            How old these have to be.
        force
            Whether to remove rows that are not duplicates: those in missing or damaged files, and those that are older
            than a deletion of their key.

        Returns
        -------
        Repairs
            `done`, a sentence for each repair, what is `left`, and the version to go back to.

        Raises
        ------
        OptionError
            `retention` is not a duration.
        TableError
            There is no table of UpStream's, it cannot be read or written, rows would go without `force`, or another
            writer has written to it meanwhile.

        Examples
        --------
        >>> table.repair(dry_run=True).done
        ()
        """
        return repair_table(
            self.path,
            storage=self._storage,
            dry_run=dry_run,
            orphans=orphans,
            retention_us=duration_argument("retention", retention, such_as="'7 days'"),
            force=force,
        )

    def maintain(
        self, *, retention: str | None = None, versions: int | None = None, dry_run: bool = False
    ) -> MaintenanceResult:
        """Remove files that no version within the retention needs, and make a checkpoint of the log.

        Parameters
        ----------
        retention
            How long a version can be read, such as ``7 days``; what the table records unless given.
        versions
            How many can be read at least; what the table records unless given.
        dry_run
            Only find out what would be done.

        Returns
        -------
        Maintained
            How many files and log entries were removed, and what waits for the next time.

        Raises
        ------
        OptionError
            `retention` is not a duration.
        TableError
            There is no such table, UpStream has not made it, or it cannot be read or written.

        Examples
        --------
        >>> table.maintain(retention="7 days", dry_run=True).files
        0
        """
        return maintain_table(
            self.path,
            storage=self._storage,
            retention_us=None if retention is None else duration_argument("retention", retention, such_as="'7 days'"),
            versions=versions,
            dry_run=dry_run,
        )

    def compact(self) -> MaintenanceResult:
        """Rewrite files that are small or have dead rows, then :meth:`maintain`.

        A query that is writing to the table continues with the new files.

        Returns
        -------
        Maintained
            `compacted` is how many files were put together.

        Raises
        ------
        TableError
            As for :meth:`maintain`.

        Examples
        --------
        >>> done = table.compact()
        """
        return maintain_table(self.path, storage=self._storage, compact=True)

    def rebucket(self, buckets: int) -> int:
        """Divide the table into another number of buckets.

        A query that is writing to it fails with its next batch, and resumes when it is restarted. If you gave it the
        option ``buckets``, give it the new number. A process that dies leaves an unchanged table.

        Parameters
        ----------
        buckets
            How many; 500,000 to 1 million keys in each is a good measure.

        Returns
        -------
        int
            The table's version afterwards.

        Raises
        ------
        OptionError
            The number is not at least 1, or the table is not divided by a key.
        TableError
            There is no such table, it cannot be read or written, or another writer has written to it meanwhile.

        Examples
        --------
        >>> version = table.rebucket(32)
        """
        return rebucket_table(self.path, buckets, storage=self._storage)

    def set_history(self, history: str) -> int:
        """Keep more or fewer of the newest rows of each key.

        More stay from then on; rows that are too many leave at once. A query that is writing to the table fails with
        its next batch, and resumes when it is restarted with the new ``history``.

        Parameters
        ----------
        history
            ``latest``, or ``latest N``.

        Returns
        -------
        int
            The table's version afterwards.

        Raises
        ------
        OptionError
            It is none of the two.
        TableError
            There is no such table, it keeps all rows, it has no time, it cannot be read or written, or another writer
            interferes.

        Examples
        --------
        >>> version = table.set_history("latest 3")
        """
        return change_history(self.path, history, storage=self._storage)

    def commits(self, *, after_version: int = -1) -> list[tuple[int, CommitSummary]]:
        """Return each commit's account of itself, oldest first, for the commits of queries.

        Parameters
        ----------
        after_version
            The last version already seen; -1 for all that the log still holds.

        Returns
        -------
        list of (int, CommitSummary)
            Versions with their summaries. Commits of others (OPTIMIZE, for example) are left out; an absent table has
            none.

        Examples
        --------
        >>> for version, summary in table.commits():
        ...     print(version, summary.rows, summary.superseded)
        1 3 0
        2 3 1
        """
        return read_summaries(self.path, after_version, self._storage)

    def staleness(self, *, after_version: int = -1) -> RunFigures | None:
        """Return the staleness of what the last query has committed.

        Parameters
        ----------
        after_version
            The version that the run began with; -1 for all that the log still holds.

        Returns
        -------
        RunFigures or None
            The commits added up; None if there is none.

        Examples
        --------
        >>> figures = table.staleness()
        >>> figures.commits, figures.updates
        (2, 6)
        """
        return run_staleness(self.path, after_version, self._storage)

    def batch_metrics(self, progress: StreamingQueryProgress) -> BatchMetrics | None:
        """Return the figures that Spark observed in a batch of :func:`write_latest`, and the summary of its commit.

        Parameters
        ----------
        progress
            Such as ``query.lastProgress``, or the progress of a listener's event.

        Returns
        -------
        BatchMetrics or None
            None if the progress has none: another query's, or a trigger without a batch.

        Examples
        --------
        >>> from pyspark.sql.streaming import StreamingQueryListener
        >>> class Listener(StreamingQueryListener):
        ...     def onQueryProgress(self, event):
        ...         print(table.batch_metrics(event.progress))
        """
        from .write_latest import batch_metrics

        return batch_metrics(progress, self.path, self._storage)

    def erase(
        self, *key: Any, outputs: Sequence[str] = (), index_location: str | None = None, dry_run: bool = False
    ) -> Erasure:
        """Erase a key from the table, from its dead-letter table, and from this machine's index
        cache.

        A query may be writing meanwhile. Its batch continues unless it touches the key's bucket at that very moment:
        then the query stops, and resumes when it is restarted. A row of the key that comes later is a new row. Earlier
        versions hold the key until their retention is over.

        Parameters
        ----------
        *key
            The values of its key's columns, in their order.
        outputs
            Dead-letter tables, beside those that the table's log names.
        index_location
            The query's option ``indexLocation``, if it has one.
        dry_run
            Only find out what would be done.

        Returns
        -------
        Erasure
            How many rows went from where, and what `remains` until when.

        Raises
        ------
        OptionError
            The values are not as many as the key's columns, or not of their types.
        TableError
            There is no such table, it cannot be read or written, or others commit all the time.

        Examples
        --------
        >>> done = table.erase(2)
        >>> done.rows
        1
        """
        return erase_key(
            self.path, *key, storage=self._storage, outputs=outputs, index_location=index_location, dry_run=dry_run
        )

    def key_bucket(self, *key: Any) -> int:
        """Return the bucket in which the rows of a key are, if there are any: the value of their column
        ``_upstream_bucket``.

        Polars and deltalake read all files of a table with deletion vectors even for one key. With a filter on the
        bucket beside that on the key, they read one bucket's. :meth:`rebucket` changes it.

        Parameters
        ----------
        *key
            The values of its key's columns, in their order.

        Returns
        -------
        int
            From 0 to the table's number of buckets - 1; what ``pmod(hash(k1, k2, …), buckets)`` is in Spark.

        Raises
        ------
        TableError
            There is no such table, or it is not one of UpStream's.
        OptionError
            The values are not as many as the key's columns, or not of their types.

        Examples
        --------
        >>> of_its_bucket = pl.col("_upstream_bucket") == table.key_bucket(2)
        >>> pl.scan_delta("latest").filter(of_its_bucket, pl.col("vehicle_id") == 2).collect().height
        1
        """
        return key_bucket(self.path, *key, storage=self._storage)

    def release(self) -> str | None:
        """Release the lease of the query that holds it, so that another one may start.

        Use it only for a query whose driver is gone: a live one takes the lease again with its next batch.

        Returns
        -------
        str or None
            The query's id; None if no query held the lease.

        Examples
        --------
        >>> table.release()
        """
        taken = TableLease(TableFolder(absolute_location(self.path), self._storage)).release()
        return None if taken is None else taken.holder
