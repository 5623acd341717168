"""What queries can name of an update stream: its columns, its key and its event time."""

from __future__ import annotations

from ..conf.errors import OptionError, SchemaError
from ..core.rows.system_column import SYSTEM
from ..operators.plan_paths import places_read
from ..operators.stream import UpdateStream
from ..queries.registry.opening import define_stream
from ..queries.relations.nodes import Stream

__all__ = ["define", "definition_of"]


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
