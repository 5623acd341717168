"""Our source, coalescing where it reads, and our sink."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.harness import say, told


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Do the job's works one after the other, and say how long each took."""
    began = time.perf_counter()
    import upstream

    spark = upstream.session("benchmark", master=f"local[{job['cores']}]", **job.get("conf", {}))
    ready = time.perf_counter()
    seconds, batches = [], []
    for work in job["work"]:
        start = time.perf_counter()
        query = run(upstream, spark, job, work["data"], work["out"])
        seconds.append(time.perf_counter() - start)
        batches.append([dict(progress.durationMs) for progress in query.recentProgress])
    spark.stop()
    return {"setup_seconds": ready - began, "seconds": seconds, "batches": batches}


def run(upstream: Any, spark: Any, job: dict[str, Any], data: str, out: str) -> Any:
    """Everything there is at `data`, into the table `out`."""
    options = {**job["options"], "schema": "key BIGINT, ms BIGINT, value DOUBLE"}
    feed = upstream.latest(spark, data, key="key", time="ms", timeFormat="epoch_ms", **options)
    writer = upstream.write_latest(
        feed, out, key="key", time="ms", checkpointLocation=out + "-checkpoint", **job["sink"]
    )
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


if __name__ == "__main__":
    say(main(told()))
