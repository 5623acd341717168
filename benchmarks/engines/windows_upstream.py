"""Our windows per key, into the table. What the benchmark knows of the operator is in :func:`windowed`."""

from __future__ import annotations

from typing import Any

from benchmarks.engines.window_state import works_done
from benchmarks.harness import given_job, say

SHARDS = 16


def windowed(spark: Any, work: dict[str, Any]) -> Any:
    """Return a stream of windows over the feed at ``work["data"]``."""
    from upstream.api.stream import UpdateStream
    from upstream.operators.aggregates.approximate import approx_count_distinct, median
    from upstream.operators.aggregates.functions import count, sum_

    options = {
        "path": work["data"],
        "fileFormat": "csv",
        "schema": "key BIGINT, ms BIGINT, value BIGINT",
        "key": "key",
        "eventTime": "ms",
        "timeFormat": "epoch_ms",
        "watermark": "bounded",
        "watermarkDelay": "10 s",
        "maxFilesPerTrigger": str(work["files_per_batch"]),
    }
    feed = spark.readStream.format("upstream").options(**options).load()
    aggregates = (
        {"n": count(), "total": sum_("value")}
        if work["aggregates"] == "sums"
        else {"n": count(), "median": median("value"), "different": approx_count_distinct("value")}
    )
    windows = UpdateStream(feed, key="key", event_time="ms").window(
        f"{work['range_s']} seconds", f"{work['slide_s']} seconds", shards=SHARDS, emit=work["emit"]
    )
    return windows.agg(**aggregates)


def keyed_by(work: dict[str, Any]) -> dict[str, Any]:
    """Return the table's key and time options: one row per key, or per key and window."""
    return {} if work["emit"] == "latest" else {"key": ("key", "window_id"), "eventTime": "window_end"}


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Do the job's works one after the other; how long each took, and what its state took."""
    import upstream

    spark = upstream.session("benchmark", master=f"local[{job['cores']}]")

    def writer(work: dict[str, Any], checkpoint: str) -> Any:
        windows = windowed(spark, work)
        return upstream.write_latest(windows, work["out"], checkpoint=checkpoint, **keyed_by(work))

    return works_done(spark, job, writer)


if __name__ == "__main__":
    say(main(given_job()))
