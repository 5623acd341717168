"""Refuse wrong options, keys and columns before there is a Spark session."""

from __future__ import annotations

from collections.abc import Mapping

from ..conf.errors import OptionError

__all__ = ["check_source"]


def check_source(given: Mapping[str, str]) -> None:
    """Check the feed in this process as a query would.

    The function infers the schema and records it in the checkpoint, so that the query need not infer it again.

    Parameters
    ----------
    given
        The source's options, as Spark would hand them over.

    Raises
    ------
    OptionError, SchemaError
        The error that the query would raise.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    from .ddl import arrow_schema
    from .spark_reader import UpstreamStreamReader, source_schema

    schema = source_schema(given)
    if isinstance(schema, str):
        try:
            schema = from_arrow_schema(arrow_schema(schema))
        except OptionError:
            return  # Spark knows types that are not known here, and says what is wrong with the others
    UpstreamStreamReader(given, schema)
