"""Our source on Kafka, coalescing where it reads, and our sink."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.harness import say, told


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Do the job's works one after the other, and say how long each took."""
    began = time.perf_counter()
    import upstream

    spark = upstream.session("benchmark", master=f"local[{job['cores']}]")
    ready = time.perf_counter()
    seconds, batches = [], []
    for work in job["work"]:
        start = time.perf_counter()
        query = run(upstream, spark, job["servers"], work["topic"], work["out"])
        seconds.append(time.perf_counter() - start)
        batches.append([dict(progress.durationMs) for progress in query.recentProgress])
    spark.stop()
    return {"setup_seconds": ready - began, "seconds": seconds, "batches": batches}


def run(upstream: Any, spark: Any, servers: str, topic: str, out: str) -> Any:
    """All that is in a topic, into the table `out`."""
    options = {
        "connector": "kafka",
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "schema": "key BIGINT, ms BIGINT, value DOUBLE",
        "checkpointLocation": out + "-checkpoint",
    }
    feed = upstream.latest(spark, key="key", time="ms", timeFormat="epoch_ms", **options)
    writer = upstream.write_latest(feed, out, key="key", time="ms", checkpointLocation=out + "-checkpoint")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


if __name__ == "__main__":
    say(main(told()))
