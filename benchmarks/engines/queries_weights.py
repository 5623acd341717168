"""Ours: queries of several weights on one host, first without a limit, then with batches that are too short for all."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks.engines.queries_upstream import stream
from benchmarks.harness import cores, given_job, say

_FREE_FILES = 3


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Run the job's queries twice, over the first files of the feed and over the others."""
    import upstream as us
    from upstream.hosting.reports import Reports
    from upstream.storage.folder import folder_at

    spark = us.session("benchmark", master=f"local[{job['cores']}]")
    spark.sparkContext.setLogLevel("ERROR")
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000")
    feed, checkpoint = Path(job["out"] + "-feed"), job["out"] + "-checkpoint"
    shutil.rmtree(feed, ignore_errors=True)
    feed.mkdir(parents=True)
    files = sorted(Path(job["data"]).glob("*.csv"), key=lambda each: int("".join(filter(str.isdigit, each.stem))))

    queries = us.queries(spark, checkpoint=checkpoint, to=job["out"], shards=cores())
    queries.source("feed", stream(spark, {**job, "data": str(feed), "files_per_batch": 1_000}))
    for number, (name, weight) in enumerate(job["queries"].items()):
        text = f"SELECT key, value + {number} AS v FROM LATEST(feed)"
        queries.create(name, text, weight=weight)
    for file in files[:_FREE_FILES]:
        os.link(file, feed / file.name)
        queries.start(availableNow=True).awaitTermination()
    report = Reports(folder_at(checkpoint)).host()
    first = max(_served(checkpoint))
    running = queries.start(batch_duration="100 ms")
    start_us, measured = 0, files[len(files) // 4]  # the choice has settled by then
    for file in files[_FREE_FILES:]:
        if file == measured:
            start_us = time.time_ns() // 1000
        batch = _last_batch(running)
        os.link(file, feed / file.name)
        while _last_batch(running) == batch:
            if running.exception() is not None:
                raise SystemExit(f"the job has failed: {running.exception()}")
            time.sleep(0.01)
    end_us = time.time_ns() // 1000
    # What waited then comes out, and shows since when.
    running.processAllAvailable()
    took = [each.batchDuration for each in running.recentProgress]
    running.stop()
    served = [each for batch, each in _served(checkpoint).items() if batch > first]
    spark.stop()
    return {
        "start_us": start_us,
        "end_us": end_us,
        "batches": len(served),
        "fixed_s": report.fixed_s,
        "results_s": sum(each.cost_s or 0.0 for each in report.queries.values()),
        "took_ms": statistics.median(took),
        "served": statistics.median(len(job["queries"]) if each is None else len(each) for each in served),
    }


def _last_batch(running: Any) -> int:
    return -1 if running.lastProgress is None else int(running.lastProgress.batchId)


def _served(checkpoint: str) -> dict[int, list[int] | None]:
    """Return whose results each batch put out; None for all."""
    found: dict[int, list[int] | None] = {}
    for file in (Path(checkpoint) / "offsets").iterdir():
        if file.name.isdigit():
            for line in file.read_text().splitlines():
                if "upstream_queries" in line:
                    found[int(file.name)] = json.loads(line)["served"]
    return dict(sorted(found.items()))


if __name__ == "__main__":
    say(main(given_job()))
