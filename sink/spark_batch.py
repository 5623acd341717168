"""What Spark tells the thread that runs a ``foreachBatch``: whose batch it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["batch_of"]

_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


def batch_of(session: SparkSession) -> tuple[str, int] | None:
    """The query's id, which its checkpoint has, and the batch's number; None outside of a ``foreachBatch``."""
    context = getattr(session, "_sc", None)
    if context is None:
        return None
    query, number = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
    return None if query is None or number is None else (query, int(number))
