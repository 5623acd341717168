"""A benchmark's works by streaming queries on Spark, one after the other: how long each took, and the bytes of its
state and of its checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["figures", "keep_changes", "works_done"]


def works_done(spark: Any, job: dict[str, Any], writer: Callable[[dict[str, Any], str], Any]) -> dict[str, Any]:
    """Do a job's works, and stop the session.

    Parameters
    ----------
    spark
    job : dict
        With its works under ``work``.
    writer : callable
        From a work and a checkpoint's folder to the writer of a stream.
    """
    spark.sparkContext.setLogLevel("ERROR")
    seconds, states = [], []
    for work in job["work"]:
        checkpoint = work["out"] + "-checkpoint"
        keep_changes(spark, wanted=not work["whole_state"])
        start = time.perf_counter()
        query = writer(work, checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        seconds.append(time.perf_counter() - start)
        states.append(figures(query, checkpoint))
    spark.stop()
    return {"seconds": seconds, "states": states}


def keep_changes(spark: Any, *, wanted: bool) -> None:
    """Set whether state is kept as each batch's changes, which is cheaper, or whole, which shows its size."""
    name = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
    spark.conf.set(name, str(wanted).lower())


def figures(query: Any, checkpoint: str) -> dict[str, Any]:
    """Return figures of a query that has ended.

    They are its batches, the checkpoint's size per batch, and the peak size of the state's files.

    The latter is 0 where only changes were kept. A checkpoint keeps the files of the last hundred batches: with fewer,
    all that was written.
    """
    batches = query.recentProgress
    # A store on the heap has no files, but a size of its own.
    states = [
        sum(
            operator.customMetrics.get("rocksdbSstFileSize")
            or operator.customMetrics.get("stateOnCurrentVersionSizeBytes", 0)
            for operator in each.stateOperators
        )
        for each in batches
    ]
    written = sum(file.stat().st_size for file in Path(checkpoint).rglob("*") if file.is_file())
    return {
        "batches": len(batches),
        "state_bytes": max(states, default=0),
        "checkpoint_bytes_per_batch": round(written / max(len(batches), 1)),
    }
