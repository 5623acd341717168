"""How many tasks the stages of a host have: as many as there are shards, and not as many as the session shuffles into.

Spark's default is 200. Each stage of each batch would then have 200 tasks and as many state stores, of which few have a
shard.
"""

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
    """Let a streaming query that the block starts shuffle into no more partitions than `most`.

    Spark copies the session's settings when it makes the query, and a new checkpoint keeps the number. An existing
    checkpoint goes on with the number that it has.
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
