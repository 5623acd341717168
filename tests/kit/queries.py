"""Queries that take what is there, and end."""

from __future__ import annotations

import time
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
    return run_to_end(upstream.write_latest(stream, str(table), checkpoint=str(checkpoint), **options))


def batches_begun(checkpoint: Path | str) -> int:
    """How many batches Spark has journaled."""
    return sum(file.name.isdigit() for file in (Path(checkpoint) / "offsets").iterdir())


def stays_idle(query: StreamingQuery, checkpoint: Path | str, for_s: float) -> bool:
    """Whether a query that has taken all there is begins no batch, though it looks for input again and again for so
    long, ten times at least.
    """
    query.processAllAvailable()
    before, until, looks = batches_begun(checkpoint), time.monotonic() + for_s, 0
    while looks < 10 or time.monotonic() < until:
        query.processAllAvailable()  # returns when the query has looked for input and found none
        looks += 1
    return batches_begun(checkpoint) == before
