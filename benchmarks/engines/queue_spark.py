"""A queue on Spark without a table: what a large batch and a small one take; or Spark's own newest row per key beside
it.

The feed is Spark's own: Parquet files, one a batch. What comes out goes nowhere (format ``noop``).
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import upstream
from benchmarks.harness import given_job, say
from upstream.core.rows.system_column import SYSTEM

_SHARDS = 16
_PATIENCE_S = 600
# The first batches meet workers that have to start, and code that has not been compiled.
_NOT_COUNTED = 4


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Run the engine over small, large and small batches; the trigger's seconds of each that counts, by its rows."""
    home = Path(job["out"])
    shutil.rmtree(home, ignore_errors=True)
    feed = home / "feed"
    feed.mkdir(parents=True)
    small, large = job["small_rows"], job["large_rows"]
    sizes = [*[small] * _NOT_COUNTED, large, *[large] * job["large"], small, *[small] * job["small"]]
    generator, first = np.random.default_rng(1), 0
    for number, rows in enumerate(sizes):
        ms = first + np.arange(rows)
        table = pa.table({"key": generator.integers(0, job["keys"], rows), "ms": ms, "value": ms / 3})
        pq.write_table(table, feed / f"part-{number:05d}.parquet")
        first += rows
        time.sleep(0.002)  # files are taken by their age
    spark = upstream.session(master=f"local[{job['cores']}]")
    spark.sparkContext.setLogLevel("ERROR")
    stream = spark.readStream.schema("key BIGINT, ms BIGINT, value DOUBLE").option("maxFilesPerTrigger", 1)
    df, checkpoint = stream.parquet(str(feed)), str(home / "checkpoint")
    if job["engine"] == "max_by":
        writer = _newest(df).writeStream.outputMode("update")
    else:
        stream = upstream.UpdateStream(_with_system(df), key="key", event_time="ms")
        queued = stream.queue(policy=job["engine"], budget=job["budget"], shards=_SHARDS)
        writer = queued.dataframe(checkpoint).writeStream
    query = writer.format("noop").option("checkpointLocation", checkpoint).start()
    deadline = time.monotonic() + _PATIENCE_S
    while query.isActive and len(_batches(query)) < len(sizes) and time.monotonic() < deadline:
        time.sleep(0.1)
    if query.exception():
        raise query.exception()
    seconds = [seconds for _, seconds in _batches(query)]
    query.stop()
    spark.stop()
    if len(seconds) < len(sizes):
        raise SystemExit(f"{len(seconds)} of {len(sizes)} batches in {_PATIENCE_S} s")
    at = _NOT_COUNTED + 1
    return {"large": seconds[at : at + job["large"]], "small": seconds[at + job["large"] + 1 : len(sizes)]}


def _batches(query: Any) -> list[tuple[int, float]]:
    """Return rows and seconds of each batch with rows of the feed."""
    found = [(progress.sources[0].numInputRows, progress) for progress in query.recentProgress]
    return [(rows, progress.durationMs["triggerExecution"] / 1e3) for rows, progress in found if rows]


def _with_system(df: Any) -> Any:
    from pyspark.sql import functions as F

    arrival = F.timestamp_millis("ms")
    fields = {
        "punctuation": F.lit(False),
        "source": F.lit("feed"),
        "seq": F.col("ms"),
        "arrival": arrival,
        "first_arrival": arrival,
        "covered": F.lit(1).cast("bigint"),
    }
    return df.withColumn(SYSTEM, F.struct(*[value.alias(name) for name, value in fields.items()]))


def _newest(df: Any) -> Any:
    from pyspark.sql import functions as F

    return df.groupBy("key").agg(F.max_by(F.struct("ms", "value"), "ms").alias("row")).select("key", "row.*")


if __name__ == "__main__":
    say(main(given_job()))
