"""Early start of Spark's Python processes, while the user's program does something else."""

from __future__ import annotations

import atexit
import contextlib
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["warm_workers"]

_PATIENCE_S = 20


def warm_workers(spark: SparkSession) -> threading.Thread:
    """Read a few synthetic rows in a background thread, which never raises, and return the thread.

    Spark starts its Python processes one by one before a first batch is done; this starts most of them early.
    """

    def read() -> None:
        # The session may be stopped meanwhile, or the format not be installed where Spark looks: nothing is lost then.
        with contextlib.suppress(Exception):
            rows = spark.read.format("upstream").options(connector="synthetic", rows="8", rowsPerSecond="8").load()
            rows.repartition(2).write.format("noop").mode("overwrite").save()

    thread = threading.Thread(target=read, name="upstream-warm-workers", daemon=True)
    thread.start()
    # A program that ends at once would take the workers away in the middle of the batch, which Spark reports as errors.
    atexit.register(thread.join, _PATIENCE_S)
    return thread
