"""A table of the newest row per key over a synthetic feed in real time: by the fluent API, or by a job of SQL."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import upstream as us
from benchmarks.engines.overload_spark import expensive
from benchmarks.harness import cores, given_job, say
from benchmarks.overload import COST_S


def score(value: pa.Array) -> pa.Array:
    """Return the values, after the processor time of an expensive function."""
    expensive(COST_S)(pa.record_batch([value], ["value"]))
    return value


def start(spark: Any, job: dict[str, Any]) -> Any:
    """Start the job's query."""
    if job["sql"] is not None:
        return us.sql(spark, job["sql"], to=job["to"], checkpoint=job["checkpoint"]).start()
    stream = us.read(spark, key="key", event_time="time", connector="synthetic", coalesce=True, **job["feed"])
    if job["queued"]:
        stream = stream.queue(policy="in-place").map(expensive(COST_S), "score DOUBLE", batch_rows=200)
    return stream.write(f"{job['to']}/l0", checkpoint=job["checkpoint"]).trigger(processingTime="0 seconds").start()


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Run for the job's seconds; report a job that the package refuses."""
    spark = us.session(master=f"local[{cores()}]")
    spark.sparkContext.setLogLevel("OFF")
    try:
        query = start(spark, job)
    except us.UpstreamError as error:
        return {"refused": str(error)}
    query.awaitTermination(job["seconds"])
    failed = query.exception()
    query.stop()
    if failed:
        raise failed
    return {}


if __name__ == "__main__":
    say(main(given_job()))
