"""Our source, coalescing where it reads, and our sink."""

from __future__ import annotations

from typing import Any

from benchmarks.engines.latest_works import works_done
from benchmarks.harness import given_job, say


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Do the job's works one after the other, and say how long each took."""

    def start() -> Any:
        import upstream

        return upstream.session("benchmark", master=f"local[{job['cores']}]", **job.get("conf", {}))

    return works_done(start, job, lambda spark, work: run(spark, job, work["data"], work["out"]))


def run(spark: Any, job: dict[str, Any], data: str, out: str) -> Any:
    """Read everything at `data` into the table `out`."""
    import upstream

    options = {**job["options"], "schema": "key BIGINT, ms BIGINT, value DOUBLE"}
    feed = upstream.latest(spark, data, key="key", event_time="ms", timeFormat="epoch_ms", **options)
    writer = upstream.write_latest(feed, out, key="key", event_time="ms", checkpoint=out + "-checkpoint", **job["sink"])
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


if __name__ == "__main__":
    say(main(given_job()))
