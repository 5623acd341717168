"""UpStream's join, into Delta's own sink as Spark's join, or into UpStream's table, which keeps every pair.

A pair comes once, so the table has no row to replace: ``history="all"``, in as many buckets as the join has shards.
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks.engines.window_state import works_done
from benchmarks.harness import given_job, say

SHARDS = 16
PARTITIONS = ("on-time", "late")


def joined(spark: Any, work: dict[str, Any]) -> Any:
    """Return the pairs over the feeds at ``work["left"]`` and ``work["right"]``."""
    import upstream as us

    left, right = (
        us.read(
            spark,
            None if work["apart"] else work[side],
            key="key",
            event_time="ms",
            watermark_delay=f"{work['delay_s']} seconds",
            fileFormat="parquet",
            schema="key BIGINT, ms BIGINT, id BIGINT, value BIGINT",
            timeFormat="epoch_ms",
            maxFilesPerTrigger=work["files_per_batch"],
            # Each folder is an input partition, with a watermark of its own.
            **({"paths": json.dumps([f"{work[side]}/{part}" for part in PARTITIONS])} if work["apart"] else {}),
        )
        for side in ("left", "right")
    )
    reach = f"{work['reach_s']} seconds"
    within = us.Interval(before=reach, after=reach)
    return left.join(right, on="key", within=within, shards=SHARDS)


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Do the job's works one after the other; how long each took, and what its state took."""
    import upstream as us

    spark = us.session("benchmark", master=f"local[{job['cores']}]")

    def writer(work: dict[str, Any], checkpoint: str) -> Any:
        pairs = joined(spark, work)
        if work["sink"] == "table":
            return pairs.write(work["out"], checkpoint=checkpoint, key="key", history="all")
        rows = pairs.dataframe(checkpoint).where("NOT _upstream.punctuation")
        rows = rows.select("key", "id", "ms", "value", "id_right", "ms_right", "value_right")
        return rows.writeStream.format("delta").option("path", work["out"]).option("checkpointLocation", checkpoint)

    return works_done(spark, job, writer)


if __name__ == "__main__":
    say(main(given_job()))
