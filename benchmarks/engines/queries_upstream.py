"""Ours: one streaming query hosts all continuous queries, each with its own latest table; or, for one of them, the same
by the fluent API. There are as many shards as cores, as Spark has partitions.
"""

from __future__ import annotations

from typing import Any

from benchmarks.engines.query_batches import done
from benchmarks.harness import cores, given_job, say


def stream(spark: Any, work: dict[str, Any]) -> Any:
    """Return the feed at ``work["data"]`` as updates by key."""
    from upstream.api.stream import UpdateStream

    options = {
        "path": work["data"],
        "fileFormat": "csv",
        "schema": "key BIGINT, ms BIGINT, value BIGINT",
        "key": "key",
        "select": "key, value, timestamp_millis(ms) AS at",
        "eventTime": "at",
        "watermark": "bounded",
        "watermarkDelay": f"{work['delay_s']} s",
        "maxFilesPerTrigger": str(work["files_per_batch"]),
    }
    return UpdateStream(spark.readStream.format("upstream").options(**options).load(), key="key", event_time="at")


def text(query: dict[str, Any]) -> str:
    """Return a query in the language of continuous queries."""
    window = f"[RANGE {query['range_s']} SECONDS SLIDE {query['slide_s']} SECONDS]"
    return f"SELECT key, {query['function']}({query['argument']}) AS v FROM feed {window} GROUP BY key"


def hosted(spark: Any, work: dict[str, Any]) -> Any:
    """Start the query that hosts all of the work's queries."""
    import upstream as us

    queries = us.queries(spark, checkpoint=work["out"] + "-checkpoint", to=work["out"], shards=cores())
    queries.source("feed", stream(spark, work))
    for query in work["queries"]:
        queries.create(query["name"], text(query))
    return queries.start(availableNow=True)


def fluent(spark: Any, work: dict[str, Any]) -> Any:
    """Start the work's only query by the fluent API."""
    import upstream
    from upstream.operators.aggregates import functions as F

    (query,) = work["queries"]
    checkpoint = work["out"] + "-checkpoint"
    aggregate = {"count": F.count, "sum": F.sum_, "avg": F.avg, "min": F.min_, "max": F.max_}[query["function"]]
    windows = stream(spark, work).window(
        f"{query['range_s']} seconds", f"{query['slide_s']} seconds", shards=cores(), emit="latest"
    )
    table = windows.agg(v=aggregate() if query["function"] == "count" else aggregate(query["argument"]))
    out = f"{work['out']}/{query['name']}"
    return upstream.write_latest(table, out, checkpoint=checkpoint).trigger(availableNow=True).start()


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Do the job's works one after the other."""
    import upstream

    spark = upstream.session("benchmark", master=f"local[{job['cores']}]")
    spark.sparkContext.setLogLevel("ERROR")

    def started(work: dict[str, Any]) -> list[Any]:
        return [(fluent if work["fluent"] else hosted)(spark, work)]

    return done(job, started, spark.stop)


if __name__ == "__main__":
    say(main(given_job()))
