"""The works of ``benchmarks.queries`` by streaming queries on Spark: seconds, processor time and batches of each."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.processor_time import processor_s

__all__ = ["done"]


def done(
    job: dict[str, Any], started: Callable[[dict[str, Any]], list[Any]], stop: Callable[[], object]
) -> dict[str, Any]:
    """Do a job's works one after the other, then stop.

    Parameters
    ----------
    job : dict
        With its works under ``work``.
    started : callable
        From a work to the streaming queries that do it.
    stop : callable
        Stops the session.

    Returns
    -------
    dict
        Under ``works`` for each work ``seconds``, ``processor_s``, ``batches_ms`` (of the first query) and
        ``checkpoint_bytes``.
    """
    works = []
    for work in job["work"]:
        began, began_cpu = time.perf_counter(), processor_s()
        queries = started(work)
        for query in queries:
            query.awaitTermination()
        found = {"seconds": time.perf_counter() - began, "processor_s": processor_s() - began_cpu}
        found["batches_ms"] = [each.batchDuration for each in queries[0].recentProgress if each.numInputRows]
        found["checkpoint_bytes"] = sum(
            file.stat().st_size for file in Path(work["out"] + "-checkpoint").rglob("*") if file.is_file()
        )
        works.append(found)
    stop()
    return {"works": works}
