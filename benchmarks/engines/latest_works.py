"""A benchmark's works by queries that each fill a latest table, one after the other: how long each took, batch by
batch, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

__all__ = ["works_done"]


def works_done(
    start: Callable[[], Any], job: dict[str, Any], work_done: Callable[[Any, dict[str, Any]], Any]
) -> dict[str, Any]:
    """Do a job's works, and stop the session.

    Parameters
    ----------
    start : callable
        Makes the session; how long that takes is told apart.
    job : dict
        With its works under ``work``.
    work_done : callable
        Does one of them in the session; returns the query, which has ended.
    """
    began = time.perf_counter()
    spark = start()
    ready = time.perf_counter()
    seconds, batches = [], []
    for work in job["work"]:
        since = time.perf_counter()
        query = work_done(spark, work)
        seconds.append(time.perf_counter() - since)
        batches.append([dict(progress.durationMs) for progress in query.recentProgress])
    spark.stop()
    return {"setup_seconds": ready - began, "seconds": seconds, "batches": batches}
