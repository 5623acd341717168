"""Micro-batches of updates into a table that is there: our sink, and what Delta's users do instead. Told by a job; one
process for one table.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.engines.latest_spark import session
from benchmarks.harness import given_job, say

SCHEMA = "k BIGINT, ts BIGINT, v DOUBLE, name STRING"
OURS = ("auto", "vectors", "rewrite")

Upsert = Callable[[Any, int], None]


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Load the table, run its batches or read it, as the job says."""
    return {"load": load, "batches": batches, "read": read}[job["do"]](job)


def load(job: dict[str, Any]) -> dict[str, Any]:
    """Write the table as it is before the first batch."""
    spark = started(job)
    began = time.perf_counter()
    rows = spark.read.parquet(job["base"])
    if job["engine"] in OURS:
        import upstream

        # By `auto` a table marks rows if it is made for many keys.
        keys = {"expectedKeys": job["keys"]} if job["engine"] == "auto" and "keys" in job else {}
        upstream.write_batch(rows, job["table"], key="k", event_time="ts", buckets=job["buckets"], **keys)
    else:
        spark.conf.set("spark.databricks.delta.properties.defaults.enableDeletionVectors", str(job["vectors"]).lower())
        rows.repartition(job["buckets"]).write.format("delta").save(job["table"])
    seconds = time.perf_counter() - began
    spark.stop()
    return {"seconds": seconds}


def batches(job: dict[str, Any]) -> dict[str, Any]:
    """Run a batch for each file of the updates, and return the seconds of each trigger."""
    spark = started(job)
    spark.sparkContext.setLogLevel("ERROR")
    updates = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(job["updates"])
    checkpoint = job["table"] + "-checkpoint"
    if job["engine"] in OURS:
        import upstream

        writer = upstream.write_latest(
            updates, job["table"], key="k", event_time="ts", buckets=job["buckets"], engine=job["engine"],
            checkpoint=checkpoint, maintenance=job["maintenance"],
        )  # fmt: skip
    else:
        upsert = {"merge": merge, "replaceUsing": replace_using, "delta-rs": by_delta_rs}[job["engine"]]
        writer = updates.writeStream.foreachBatch(upsert(spark, job["table"])).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    seconds = [progress.durationMs["triggerExecution"] / 1e3 for progress in query.recentProgress]
    spark.stop()
    return {"seconds": seconds}


def read(job: dict[str, Any]) -> dict[str, Any]:
    """Return Spark's seconds for the whole table, and for one key of it."""
    spark = session(job["cores"])
    scans: list[float] = []
    points: list[float] = []
    for _ in range(5):
        reader = spark.read.format("delta")
        table = (reader if job["version"] is None else reader.option("versionAsOf", job["version"])).load(job["table"])
        began = time.perf_counter()
        table.selectExpr("count(*)", "sum(v)", "max(name)").collect()
        scans.append(time.perf_counter() - began)
        began = time.perf_counter()
        found = table.where(f"k = {job['key']}").collect()
        points.append(time.perf_counter() - began)
        assert len(found) == 1
    spark.stop()
    return {"scan": min(scans), "point": min(points)}


def started(job: dict[str, Any]) -> Any:
    """Return a session as each engine's users would have it."""
    if job["engine"] in OURS:
        import upstream

        return upstream.session(
            "benchmark", master=f"local[{job['cores']}]", **{"spark.sql.streaming.numRecentProgressUpdates": "10000"}
        )
    spark = session(job["cores"])
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "10000")
    return spark


def merge(spark: Any, table: str) -> Upsert:
    """Return an upsert by MERGE. Each key is in a batch once, so it removes no duplicates first."""
    from delta.tables import DeltaTable

    def upsert(batch: Any, batch_id: int) -> None:
        del batch_id
        target = DeltaTable.forPath(spark, table).alias("t").merge(batch.alias("s"), "t.k = s.k")
        target.whenMatchedUpdateAll("s.ts > t.ts").whenNotMatchedInsertAll().execute()

    return upsert


def replace_using(spark: Any, table: str) -> Upsert:
    """Return an upsert by selective overwrite, which ignores which row is newer."""
    del spark

    def upsert(batch: Any, batch_id: int) -> None:
        del batch_id
        batch.write.format("delta").mode("overwrite").option("replaceUsing", "k").save(table)

    return upsert


def by_delta_rs(spark: Any, table: str) -> Upsert:
    """Return an upsert by the merge of delta-rs, on the driver."""
    del spark
    from deltalake import DeltaTable

    def upsert(batch: Any, batch_id: int) -> None:
        del batch_id
        target = DeltaTable(table).merge(batch.toArrow(), "t.k = s.k", source_alias="s", target_alias="t")
        target.when_matched_update_all("s.ts > t.ts").when_not_matched_insert_all().execute()

    return upsert


if __name__ == "__main__":
    say(main(given_job()))
