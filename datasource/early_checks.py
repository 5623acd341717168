"""Checks of options, keys and columns before there is a Spark session."""

from __future__ import annotations

from collections.abc import Mapping

from ..conf.errors import OptionError

__all__ = ["check_source"]


def check_source(given: Mapping[str, str]) -> None:
    """Check the feed as a query would, with its errors, and record the inferred schema in the checkpoint."""
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
