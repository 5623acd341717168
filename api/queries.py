"""Continuous queries: what they read, and which are in force."""

from __future__ import annotations

import os
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from ..conf.errors import OptionError
from ..conf.locations import absolute_location, checkpoint_location
from ..conf.options import duration_argument, path_argument, whole_argument
from ..conf.units import now_us
from ..hosting.edits import drop_query, opened, record
from ..hosting.journal import Change, known_name
from ..hosting.registry import Registry, registry_now
from ..hosting.reports import Reports, listed
from ..hosting.shared_parts import explain_among
from ..hosting.table_merge import GivenForTables
from ..operators.ingest.dataframe import copies_late
from ..plan.explain import PlanText
from ..storage.folder import folder_at
from .definitions import StoredRelations, define, rows_of, time_zone_of

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from .stream import UpdateStream


def queries(
    spark: SparkSession | None = None,
    *,
    checkpoint: str | os.PathLike[str],
    to: str | os.PathLike[str] | None = None,
    shards: int | None = None,
    overwrite: bool = False,
    **options: object,
) -> Queries:
    """Open the continuous queries of a checkpoint, whether a job runs them or not.

    Parameters
    ----------
    spark
        The session that runs the job. Leave it out to change the queries of a job that runs elsewhere.
    checkpoint
        The job's checkpoint. A new one begins without queries.
    to
        The folder in which each query has a table of its name. An existing checkpoint remembers it.
    shards
        The number of parts into which the state is divided [default: the number of cores, at least 2]. An
        existing checkpoint remembers it.
    overwrite
        Whether the job takes over tables below `to` that queries of another checkpoint have made. It then replaces
        their rows, and that checkpoint's job gets an error [default: the query fails].
    **options
        Options of the object store with the tables and the stored relations, which begin with ``storage.``. Give them
        whenever you open the queries, since no file has them.

    Returns
    -------
    Queries

    Raises
    ------
    OptionError
        `to` is missing for a new checkpoint or is in the checkpoint, an argument differs from the checkpoint's, or an
        option is unknown.

    Examples
    --------
    >>> queries = us.queries(checkpoint="queries_cp", to="lake")
    >>> queries.list().height
    0
    """
    place = checkpoint_location(path_argument("checkpoint", checkpoint))
    folder = None if to is None else absolute_location(path_argument("to", to))
    opened(place, folder, whole_argument("shards", shards))
    return Queries(spark, place, GivenForTables.of(options, overwrite=overwrite))


class Queries(StoredRelations):
    """Queries that one streaming query answers together, each in a table of its own. Made by :func:`upstream.queries`.

    Any process can change the queries while the job runs. A change is a file below the checkpoint, and the job makes it
    with its next batch.

    Attributes
    ----------
    checkpoint : str
        The job's checkpoint.

    Notes
    -----
    Guarantee: a change is checked against all changes of other processes before it is written. It is on the
    disk when the call returns. The offset of each batch contains the version of the registry, so a batch that runs
    again has the same queries.

    Examples
    --------
    >>> queries = us.queries(spark, checkpoint="buses_cp", to="lake")
    >>> queries.source("buses", stream)
    >>> queries.create_view("fast", "SELECT vehicle_id, speed FROM LATEST(buses) WHERE speed > 10")
    >>> queries.create("fastest", "SELECT MAX(speed) AS speed FROM fast", weight=2)
    >>> queries.list().select("name", "weight", "active").rows()
    [('fastest', 2.0, True)]
    """

    def __init__(
        self, spark: SparkSession | None, checkpoint: str, given: GivenForTables, time_zone: str | None = None
    ) -> None:
        self.checkpoint = checkpoint
        self._given = given
        self._spark = spark
        self._time_zone = time_zone  # of texts, without a session
        self._streams: dict[str, UpdateStream] = {}
        self._late_aside: set[str] = set()

    def source(
        self,
        name: str,
        stream: UpdateStream,
        *,
        updates: bool = True,
        dead_letter_rows: Literal["late"] | None = None,
    ) -> None:
        """Declare a stream that queries read. A program does so each time before it starts the job.

        Parameters
        ----------
        name
            The stream's name in queries.
        stream
            The stream, with an event time. If it has a queue or coalesces, only queries over newest rows (``LATEST``)
            and stored relations can read it.
        updates
            Whether a row replaces the earlier row of its key, and tombstones delete it. With False each row stays:
            ``LATEST`` still finds the newest row of each key.
        dead_letter_rows
            With ``late``, rows that are late for a query are written to the dead-letter table, each once, with the
            queries that miss it. :meth:`list` counts late rows in any case.

        Raises
        ------
        OptionError
            The stream has no event time, it reads a query's table, the name is invalid or taken, or a query does not
            fit.
        SchemaError
            The event time is not a timestamp, or the columns have a type that queries cannot take.
        CheckpointError
            The job has run with other streams: they are fixed for the life of a checkpoint.

        Examples
        --------
        >>> queries = us.queries(spark, checkpoint="streams_cp", to="lake")
        >>> queries.source("buses", stream)
        """
        late_aside = copies_late(dead_letter_rows)
        define(self.checkpoint, name, stream, updates=updates)
        self._streams[name] = stream
        (self._late_aside.add if late_aside else self._late_aside.discard)(name)

    def create(
        self,
        name: str,
        query: str,
        *,
        weight: float = 1,
        active: bool = True,
        buckets: int = 1,
        lateness: str | None = None,
        queue: str | None = None,
        budget: int | str | None = None,
        access_interval: str | None = None,
        key_weight: str | None = None,
    ) -> None:
        """Create a query. If a query of this name and text is there, nothing changes.

        Parameters
        ----------
        name
            The query's name, and its table's.
        query
            The query, as the page on the query language describes it.
        weight
            How much its freshness counts, compared with the other queries'.
        active
            Whether it runs at once.
        buckets
            The number of parts of its table. A table of many rows needs more than one.
        lateness
            By how much below the low-watermark a row still counts, such as ``10 minutes``. It corrects the table.
        queue, budget, access_interval, key_weight
            The policy, budget, access interval, and weight of a queue, as for :meth:`UpdateStream.queue`: ``in-place``,
            ``linecutting``, ``auto`` or ``fifo``. The query must be a list of columns over ``LATEST(stream)``. The
            columns are computed only for the rows that leave the queue [default: no queue; with one, the budget
            ``auto``].

        Raises
        ------
        OptionError
            The name is taken, cannot name a table or meets other files, or another argument is wrong.
        QueryRefusedError
            The query cannot be read, does not fit its streams, or needs unbounded state. The message points at the
            place.

        Notes
        -----
        An existing query stays unchanged, also if its weight was altered or it was deactivated.

        Functions of timestamps, such as ``HOUR`` and a cast to text, follow the session's time zone
        (``spark.sql.session.timeZone``); without a session, UTC. The query keeps the zone with which it was created.

        Examples
        --------
        >>> queries = us.queries(spark, checkpoint="create_cp", to="lake")
        >>> queries.source("buses", stream)
        >>> queries.create("count", "SELECT COUNT(*) AS n FROM LATEST(buses)")
        """
        zone = self._zone()
        late = None if lateness is None else duration_argument("lateness", lateness)
        given = {"queue": queue, "budget": budget, "access_interval": access_interval, "key_weight": key_weight}
        options = {name: str(value) for name, value in given.items() if value is not None}
        change = Change("create", name, query, weight=weight, active=active, buckets=buckets, time_zone=zone)
        self._record(replace(change, lateness_us=late, queue=options or None))

    def create_view(self, name: str, query: str) -> None:
        """Create a view. If a view of this name and text is there, nothing changes.

        Parameters
        ----------
        name
            The view's name.
        query
            The query that defines it. It may name other views.

        Raises
        ------
        OptionError
            The name is taken or cannot be one.
        QueryRefusedError
            The query cannot be read, or does not fit its streams.

        Examples
        --------
        >>> queries = us.queries(spark, checkpoint="view_cp", to="lake")
        >>> queries.source("buses", stream)
        >>> queries.create_view("fast", "SELECT * FROM LATEST(buses) WHERE speed > 10")
        """
        self._record(Change("view", name, query))

    def alter(
        self, name: str, query: str | None = None, *, weight: float | None = None, budget: int | str | None = None
    ) -> None:
        """Give a query another text, weight or budget.

        Parameters
        ----------
        name
            The query's name.
        query
            The new text. The query restarts with it, in the session's time zone if there is a session, and its
            table has the new result only.
        weight
            The new weight. The query continues.
        budget
            The new budget of its queue. The query continues.

        Raises
        ------
        OptionError
            There is no query of this name, or there is nothing to alter.
        QueryRefusedError
            The text cannot be read, does not fit its streams, or needs unbounded state.

        Examples
        --------
        >>> queries = us.queries(spark, checkpoint="alter_cp", to="lake")
        >>> queries.source("buses", stream)
        >>> queries.create("count", "SELECT COUNT(*) AS n FROM LATEST(buses)")
        >>> queries.alter("count", weight=4)
        """
        queue = None
        if budget is not None:
            queries = self._registry().queries
            queue = {**queries[known_name(name, queries, "query")].queue, "budget": str(budget)}
        self._record(Change("alter", name, query, weight=weight, time_zone=self._zone(), queue=queue))

    def activate(self, name: str) -> None:
        """Activate a query. It restarts, or continues if its state was kept.

        Parameters
        ----------
        name
            The query's name.

        Raises
        ------
        OptionError
            There is no query of this name.
        QueryRefusedError
            The query no longer fits its streams and views.

        Examples
        --------
        >>> queries = us.queries(spark, checkpoint="activate_cp", to="lake")
        >>> queries.source("buses", stream)
        >>> queries.create("count", "SELECT COUNT(*) AS n FROM LATEST(buses)", active=False)
        >>> queries.activate("count")
        """
        self._record(Change("activate", name))

    def deactivate(self, name: str, *, keep_state: bool = False, reason: str | None = None) -> None:
        """Stop a query. Its table stays as it is.

        Parameters
        ----------
        name
            The query's name.
        keep_state
            Whether the job keeps the query's state up to date [default: it forgets the state]. Then :meth:`activate`
            continues the query: its table gets the net change since the pause, in one commit.
        reason
            Why, for :meth:`list`.

        Raises
        ------
        OptionError
            There is no query of this name, or `keep_state` is set and the query has no state left.

        Examples
        --------
        >>> queries = us.queries(spark, checkpoint="deactivate_cp", to="lake")
        >>> queries.source("buses", stream)
        >>> queries.create("count", "SELECT COUNT(*) AS n FROM LATEST(buses)")
        >>> queries.deactivate("count", reason="nobody reads it")
        """
        self._record(Change("deactivate", name, reason=reason, kept_since_us=now_us() if keep_state else None))

    def drop(self, name: str, *, delete_table: bool = False) -> None:
        """Forget a query.

        Parameters
        ----------
        name
            The query's name.
        delete_table
            Whether the job deletes the query's table [default: the table stays as it is].

        Raises
        ------
        OptionError
            There is no query of this name, or a relation reads the table that `delete_table` would delete.
        TableError
            The query has not written the table that `delete_table` would delete.

        Notes
        -----
        The job deletes the table before its next batch, when the query no longer runs. If no job runs, the next one
        does so. If the job dies meanwhile, it deletes what is left at its next start. Files of others stay.

        Examples
        --------
        >>> queries = us.queries(spark, checkpoint="drop_cp", to="lake")
        >>> queries.source("buses", stream)
        >>> queries.create("count", "SELECT COUNT(*) AS n FROM LATEST(buses)")
        >>> queries.drop("count")
        """
        drop_query(self.checkpoint, name, delete_table=delete_table, options=self._given.options)

    def drop_view(self, name: str) -> None:
        """Forget a view that no query and no other view names.

        Parameters
        ----------
        name
            The view's name.

        Raises
        ------
        OptionError
            There is no view of this name, or it is in use.

        Examples
        --------
        >>> queries = us.queries(spark, checkpoint="drop_view_cp", to="lake")
        >>> queries.source("buses", stream)
        >>> queries.create_view("fast", "SELECT * FROM LATEST(buses) WHERE speed > 10")
        >>> queries.drop_view("fast")
        """
        self._record(Change("drop_view", name))

    def explain(self, query: str) -> str:
        """Return the plan of a query as text: its result, its operators, what each keeps, and who shares it.

        Parameters
        ----------
        query
            The name of a query or a view, or the text of a query that is not registered.

        Returns
        -------
        str

        Raises
        ------
        OptionError
            There is no query and no view of this name.
        QueryRefusedError
            The text cannot be read, does not fit its streams, or needs unbounded state.

        Examples
        --------
        >>> queries = us.queries(spark, checkpoint="explain_cp", to="lake")
        >>> queries.source("buses", stream)
        >>> print(queries.explain("SELECT COUNT(*) AS n FROM LATEST(buses)").splitlines()[0])
        result: a relation, kept as a table (n int64)
        """
        return PlanText(explain_among(query, self._registry(), self._zone()))

    def start(self, *, name: str | None = None, batch_duration: str | None = None, **trigger: Any) -> StreamingQuery:
        """Start the job that answers the queries, with those that are registered now and later.

        Parameters
        ----------
        name
            The streaming query's name in Spark.
        batch_duration
            The intended duration of a batch, such as ``2 seconds``. If it is too short for all results, some wait.
        **trigger
            As of Spark's ``trigger``: ``processingTime="5 seconds"``, or ``availableNow=True`` to read what is there
            now, and end.

        Returns
        -------
        pyspark.sql.streaming.StreamingQuery

        Raises
        ------
        OptionError
            There is no session, `batch_duration` is not a duration, or a stream is missing: see :meth:`stream`.
        SchemaError
            A stream leaves rows out which queries need.
        CheckpointError
            The checkpoint was begun with other operators in the streams, or another job hosts its queries.
        EnvironmentMissingError
            The session is a client of Spark Connect, or its state store cannot hold the queries' state.

        Notes
        -----
        Guarantee: each table has each batch once, in one commit of its own, whatever fails meanwhile. If a value of a
        query cannot be computed, this query is deactivated with the reason, and the others continue. Results that wait
        are never lost, each query has its turn, and a job with ``availableNow=True`` ends when none wait.

        Examples
        --------
        >>> queries = us.queries(spark, checkpoint="start_cp", to="lake")
        >>> queries.source("buses", stream)
        >>> queries.create("fleet", "SELECT COUNT(*) AS n FROM LATEST(buses)")
        >>> queries.start(availableNow=True).awaitTermination()
        >>> queries.scan("fleet").collect().rows()
        [(2,)]
        """
        batch_s = None if batch_duration is None else duration_argument("batch_duration", batch_duration) / 1e6
        if self._spark is None:
            raise OptionError(
                "the queries were opened without a session",
                expected="a session that runs the job",
                hint="us.queries(spark, checkpoint=…)",
            )
        from ..hosting.job import start

        plans = {each: stream.plan for each, stream in self._streams.items()}
        given = {"batch_s": batch_s, "given": self._given, "late_aside": self._late_aside}
        return start(plans, self.checkpoint, name=name, **given, **trigger)

    def _repr_html_(self) -> str:
        """Show the queries in a notebook."""
        return f"<p>Queries <code>{escape(self.checkpoint)}</code></p>{self.list()._repr_html_()}"

    def scan(self, name: str) -> pl.LazyFrame:
        """Scan the rows of a query's table lazily: filter them, then collect them. A column ``row_key`` is left out.

        Parameters
        ----------
        name
            The query's name.

        Returns
        -------
        polars.LazyFrame

        Raises
        ------
        OptionError
            There is no query of this name.
        TableError
            The job has not written its table yet.

        Examples
        --------
        >>> queries = us.queries(spark, checkpoint="rows_cp", to="lake")
        >>> queries.source("buses", stream)
        >>> queries.create("fastest", "SELECT MAX(speed) AS speed FROM LATEST(buses)")
        >>> queries.start(availableNow=True).awaitTermination()
        >>> queries.scan("fastest").collect().rows()
        [(4.5,)]
        """
        return rows_of(name, self._registry(), self._given.storage)

    def list(self) -> pl.DataFrame:
        """Return the queries in the order in which they were registered.

        Returns
        -------
        polars.DataFrame
            The columns ``name``, ``text``, ``weight``, and ``active``; ``reason``: why a query is not active;
            ``complete_from``: the event time from which its results lack nothing, the year 1 for all, null if that
            is not certain or rows were late; ``late``: how many rows came too late for it; ``staleness``: how old the
            rows were at ``committed_at``, when its table took them last, in seconds (the 99th percentile);
            ``waiting``: how old the oldest row is behind results that wait for a later batch, in seconds.

        Examples
        --------
        >>> queries = us.queries(checkpoint="list_cp", to="lake")
        >>> queries.list().columns
        ['name', 'text', 'weight', 'active', 'reason', 'complete_from', 'late', 'staleness', 'committed_at', 'waiting']
        """
        return listed(self._registry(), Reports(folder_at(self.checkpoint)).read(), now_us())

    def views(self) -> dict[str, str]:
        """Return the texts of the views, by name.

        Returns
        -------
        dict of str to str

        Examples
        --------
        >>> us.queries(checkpoint="views_cp", to="lake").views()
        {}
        """
        return dict(self._registry().catalog.views)

    def _zone(self) -> str | None:
        return self._time_zone if self._spark is None else time_zone_of(self._spark)

    def _registry(self) -> Registry:
        return registry_now(self.checkpoint)

    def _record(self, change: Change) -> None:
        record(self.checkpoint, change)
