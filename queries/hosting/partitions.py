"""A limit on the tasks of the host's stages: as many as there are shards."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["at_most_partitions"]

_PARTITIONS = "spark.sql.shuffle.partitions"
_lock = threading.Lock()


@contextlib.contextmanager
def at_most_partitions(session: SparkSession, most: int) -> Generator[None]:
    """Limit the shuffle partitions of a streaming query that the block starts.

    With Spark's default, each stage of each batch would have 200 tasks and state stores, most of them without a shard.
    Spark copies the session's settings when it makes the query. A checkpoint keeps the number with which it began.
    """
    with _lock:
        given = session.conf.get(_PARTITIONS)
        assert given is not None
        if int(given) <= most:
            yield
            return
        session.conf.set(_PARTITIONS, most)
        try:
            yield
        finally:
            session.conf.set(_PARTITIONS, given)
