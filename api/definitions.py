"""What queries can name: update streams, their columns, key and time; and stored relations."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow.types as patypes

from ..conf.errors import OptionError, SchemaError
from ..conf.locations import absolute_location
from ..conf.options import path_argument
from ..core.pushdown.at_source import source_options
from ..core.rows.event_times import EPOCH_UNITS
from ..core.rows.system_column import SYSTEM, TIMESTAMP
from ..datasource.options import POSITION
from ..expressions.zones import zone_of_session
from ..hosting.edits import declare, define_stream, record, refresh
from ..hosting.journal import Change, known_name
from ..hosting.registry import Registry, registry_now
from ..hosting.table_merge import GivenForTables
from ..operators.compile import places_read
from ..operators.ingest.plan import IntakePlan
from ..operators.relations.plan.nodes import Stream
from ..plan.nodes import Filter, InputRows, Intake, Node, Queue, Transform, walk
from ..sink.latest_table import LatestTable
from .stream import UpdateStream

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import SparkSession


_LOG = logging.getLogger("upstream.queries")


def define(checkpoint: str, name: str, stream: object, *, updates: bool) -> None:
    """Let the queries of a checkpoint name a stream. See :func:`definition_of` and :func:`define_stream`."""
    defined = definition_of(name, stream, updates=updates)
    assert isinstance(stream, UpdateStream)
    if any(map(_is_embedded, walk(stream.plan))):
        _LOG.warning(
            "the source '%s' reads embedded punctuation: queries use that of whole input partitions, and none of "
            "single keys",
            name,
        )
    define_stream(checkpoint, defined, [path for _, path in places_read(stream.plan)])


def _is_embedded(node: Node) -> bool:
    if isinstance(node, InputRows):
        return (source_options(node.frame) or {}).get("watermark", "").lower() == "embedded"
    return (
        isinstance(node, Intake)
        and isinstance(node.specification, IntakePlan)
        and node.specification.policy.name == "embedded"
    )


def definition_of(name: str, stream: object, *, updates: bool) -> Stream:
    """Return what queries can name of a stream.

    Parameters
    ----------
    name
        What queries call it.
    stream
        An update stream.
    updates
        Whether a later row of a key replaces the former.

    Raises
    ------
    OptionError
        It is not an update stream, or has no event time.
    SchemaError
        A column has a type that Arrow does not have.
    """
    from pyspark.errors import PySparkException

    if not isinstance(stream, UpdateStream):
        raise OptionError(f"stream={stream!r}", expected="a stream, as us.read(…) gives it")
    if stream.event_time is None:
        raise no_event_time(name)
    try:
        columns = stream.plan.arrow.remove_metadata()
    except PySparkException as error:
        raise SchemaError(
            f"a column of the stream '{name}' has a type that Arrow does not have: {error}",
            hint="cast it, or leave it out",
        ) from error
    own = columns_of(columns, stream.event_time, stream.plan.time_format.format)
    newest = _has_newest_alone(stream.plan)
    if newest and not updates:
        raise OptionError(
            f"the stream '{name}' has a queue, or coalesces, so it drops rows that a newer one supersedes",
            expected="a stream of every row, or updates=True",
            hint="remove the queue, or give updates=True",
        )
    return Stream(name, own, stream.key, stream.event_time, updates=updates, newest=newest)


def columns_of(schema: pa.Schema, event_time: str, time_format: str | None) -> pa.Schema:
    """Return a stream's columns in queries, in which an event time of dates or of numbers with a unit is an instant.

    A date is the instant at which its day begins. A position in a log stays a number.
    """
    own = schema.remove(schema.get_field_index(SYSTEM))
    at = own.get_field_index(event_time)
    if at < 0 or event_time == POSITION:
        return own
    kind = own.field(at).type
    number = patypes.is_integer(kind) or patypes.is_floating(kind)
    if not patypes.is_date(kind) and not (number and time_format in EPOCH_UNITS):
        return own
    return own.set(at, own.field(at).with_type(TIMESTAMP))


def no_event_time(name: str) -> OptionError:
    """Return the error for a stream without an event time."""
    return OptionError(
        f"the stream '{name}' has no event time",
        expected="a column of timestamps that orders its rows",
        hint="us.read(…, event_time=…), or event_time = '…' in CREATE SOURCE",
    )


def _has_newest_alone(plan: Node) -> bool:
    """Return whether a plan leaves out superseded rows only, and no step after that can leave out a newest row."""
    while isinstance(plan, Transform) and not (isinstance(plan.step, Filter) and plan.step.on_leave == "keep"):
        (plan,) = plan.inputs
    leaves_out = isinstance(plan, InputRows | Intake | Queue)  # later steps have the reason of the one before them
    return leaves_out and plan.left_out is not None and plan.left_out.newest


def time_zone_of(session: SparkSession | None) -> str | None:
    """Return a session's time zone; None without a session.

    Raises
    ------
    OptionError
        This machine does not know the zone.
    """
    return None if session is None else zone_of_session(str(session.conf.get("spark.sql.session.timeZone")))


def rows_of(name: str, registry: Registry, storage: Mapping[str, str]) -> pl.LazyFrame:
    """Return the rows of a query's table, without UpStream's own columns.

    Raises
    ------
    OptionError
        There is no query of this name.
    TableError
        The job has not written its table yet.
    """
    query = registry.queries[known_name(name, registry.queries, "query")]
    return LatestTable(query.location, storage_options=storage).scan()


class StoredRelations:
    """What :class:`~.queries.Queries` has for stored relations."""

    checkpoint: str
    _given: GivenForTables

    def table(self, name: str, table: str | os.PathLike[str]) -> None:
        """Declare a Delta table, as it is now, that queries read. If the relation is there already, nothing changes.

        Parameters
        ----------
        name
            The relation's name in queries.
        table
            The table's folder or address. It may be a table that UpStream keeps.

        Raises
        ------
        OptionError
            The name cannot be one or is taken, or there is a relation of this name over another table.
        TableError
            There is no table, or it cannot be opened.
        SchemaError
            A column has a type that Spark does not have.

        Notes
        -----
        Guarantee: queries read the version that the table has now, until :meth:`refresh` brings a later one. A batch
        that runs again reads the same rows. The options of an object store are those with which the queries were
        opened, here and where the job runs.

        Examples
        --------
        >>> queries = us.queries(spark, checkpoint="relation_cp", to="lake")
        >>> queries.source("buses", stream)
        >>> queries.table("models", "vehicles")
        >>> queries.create("known", "SELECT * FROM LATEST(buses) WHERE vehicle_id IN (SELECT vehicle_id FROM models)")
        """
        declare(self.checkpoint, name, absolute_location(path_argument("table", table)), self._given.storage)

    def refresh(self, name: str) -> None:
        """Refresh a relation to the rows that its table has now. The queries that read it restart.

        Parameters
        ----------
        name
            The relation's name.

        Raises
        ------
        OptionError
            There is no relation of this name, or a query that reads it does not fit the table as it is now.
        TableError
            The table is gone, or cannot be opened.

        Notes
        -----
        If the table has no other version than before, nothing changes.

        Examples
        --------
        >>> queries = us.queries(spark, checkpoint="refresh_cp", to="lake")
        >>> queries.table("models", "vehicles")
        >>> queries.refresh("models")
        """
        refresh(self.checkpoint, name, self._given.storage)

    def drop_table(self, name: str) -> None:
        """Forget a relation that no query and no view names. Its table stays as it is.

        Parameters
        ----------
        name
            The relation's name.

        Raises
        ------
        OptionError
            There is no relation of this name, or it is in use.

        Examples
        --------
        >>> queries = us.queries(spark, checkpoint="drop_table_cp", to="lake")
        >>> queries.table("models", "vehicles")
        >>> queries.drop_table("models")
        """
        record(self.checkpoint, Change("drop_table", name))

    def tables(self) -> dict[str, str]:
        """Return the stored relations by name, each with its table and the version that queries read.

        Returns
        -------
        dict of str to str

        Examples
        --------
        >>> us.queries(checkpoint="relations_cp", to="lake").tables()
        {}
        """
        return {name: str(each.table) for name, each in registry_now(self.checkpoint).catalog.relations.items()}
