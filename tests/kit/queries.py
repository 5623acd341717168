"""Queries that take what is there, and end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import upstream

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def run_to_end(writer: DataStreamWriter) -> StreamingQuery:
    """Run a query until it has taken all that is there; raise what it failed with."""
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def write_to_end(stream: Any, table: Path | str, checkpoint: Path | str, **options: Any) -> StreamingQuery:
    """Write all that a stream has by now into a latest table."""
    return run_to_end(upstream.write_latest(stream, str(table), checkpointLocation=str(checkpoint), **options))
