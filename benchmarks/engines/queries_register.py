"""Ours: what a registration takes while a streaming query hosts others, and what it takes to parse and plan a text."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks.engines.queries_upstream import stream, text
from benchmarks.harness import cores, given_job, say

_REGISTERED = 5
_LONGEST_S = 600


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Host the job's queries, and register more."""
    import upstream as us

    spark = us.session("benchmark", master=f"local[{job['cores']}]")
    spark.sparkContext.setLogLevel("ERROR")
    queries = us.queries(spark, checkpoint=job["out"] + "-checkpoint", to=job["out"], shards=cores())
    queries.source("feed", stream(spark, {**job, "files_per_batch": 100}))
    took = []
    for query in job["queries"]:
        began = time.perf_counter()
        queries.create(query["name"], text(query))
        took.append(time.perf_counter() - began)
    running = queries.start()
    _wait_for(job, job["queries"][-1]["name"])
    running.processAllAvailable()
    first = []
    for number in range(_REGISTERED):
        name = f"more{number}"
        query = {**job["queries"][number], "name": name}
        began = time.perf_counter()
        queries.create(name, text(query).replace(" AS v", f" + {number + 1} AS v"))
        _wait_for(job, name)
        first.append(time.perf_counter() - began)
        running.processAllAvailable()
    running.stop()
    spark.stop()
    return {"first_result_s": first, "register_ms": statistics.median(took) * 1000, "bind_ms": _bind_ms(job)}


def _bind_ms(job: dict[str, Any]) -> float:
    import pyarrow as pa

    from upstream.language import Catalog, bind
    from upstream.operators.relations.plan.nodes import Stream

    schema = pa.schema([("key", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("value", pa.int64())])
    catalog = Catalog(streams={"feed": Stream("feed", schema, event_time="at")})
    took = []
    for query in job["queries"]:
        began = time.perf_counter()
        bind(text(query), catalog)
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1000


def _wait_for(job: dict[str, Any], name: str) -> None:
    """Wait until a query's table has a commit."""
    first = Path(job["out"]) / name / "_delta_log" / f"{0:020}.json"
    until = time.monotonic() + _LONGEST_S
    while not first.exists():
        if time.monotonic() > until:
            raise SystemExit(f"{name} has had no result for {_LONGEST_S} s")
        time.sleep(0.01)


if __name__ == "__main__":
    say(main(given_job()))
