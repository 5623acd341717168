"""What queries can name of an update stream, its columns, its key and its event time; their time zone; their rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..conf.errors import OptionError, QueryRefusedError, SchemaError
from ..core.rows.system_column import SYSTEM
from ..operators.plan_paths import places_read
from ..operators.stream import UpdateStream
from ..queries.expressions.zones import zone_of_session
from ..queries.language import bind
from ..queries.placing.results import result_of
from ..queries.registry.names import known_name
from ..queries.registry.opening import define_stream
from ..queries.registry.registry import Registry
from ..queries.relations.nodes import Stream
from ..sink.latest_table import LatestTable

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import SparkSession

__all__ = ["define", "definition_of", "rows_of", "time_zone_of"]


def define(checkpoint: str, name: str, stream: object, *, updates: bool) -> None:
    """Let the queries of a checkpoint name a stream. See :func:`definition_of` and :func:`define_stream`."""
    defined = definition_of(name, stream, updates=updates)
    assert isinstance(stream, UpdateStream)
    define_stream(checkpoint, defined, [path for _, path in places_read(stream.plan)])


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
        It is no update stream, or has no event time.
    SchemaError
        A column has a type that Arrow does not have.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema

    if not isinstance(stream, UpdateStream):
        raise OptionError(f"stream={stream!r}", expected="a stream, as us.read(…) gives it")
    if stream.event_time is None:
        raise OptionError(
            f"the stream '{name}' has no event time",
            expected="a column of timestamps that orders its rows",
            hint="us.read(…, event_time=…)",
        )
    try:
        columns = to_arrow_schema(stream.schema, timezone="UTC").remove_metadata()
    except PySparkException as error:
        raise SchemaError(
            f"a column of the stream '{name}' has a type that Arrow does not have: {error}",
            hint="cast it, or leave it out",
        ) from error
    own = columns.remove(columns.get_field_index(SYSTEM))
    return Stream(name, own, stream.key, stream.event_time, updates=updates)


def time_zone_of(session: SparkSession | None) -> str | None:
    """Return a session's time zone; None without a session.

    Raises
    ------
    OptionError
        This machine does not know the zone.
    """
    return None if session is None else zone_of_session(str(session.conf.get("spark.sql.session.timeZone")))


def rows_of(name: str, registry: Registry, storage: Mapping[str, str]) -> pl.LazyFrame:
    """Return the rows of a query's table, without a column ``row_key``.

    Raises
    ------
    OptionError
        There is no query of this name.
    TableError
        The job has not written its table yet.
    """
    query = registry.queries[known_name(name, registry.queries, "query")]
    rows = LatestTable(query.location, storage_options=storage).rows()
    try:
        bound = query.bound if query.bound is not None else bind(query.text, registry.catalog.in_zone(query.time_zone))
    except QueryRefusedError:
        return rows
    added = result_of(bound.plan).row_key
    return rows if added is None else rows.drop(added, strict=False)
