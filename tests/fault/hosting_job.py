"""The job that the kill test of continuous queries runs and kills: queries come, change, fail and go while it runs.

Arguments: folder of the feed, folder of the tables, checkpoint; a cluster, if it is to run on one.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import upstream as us
from upstream.core.rows.system_column import SYSTEM
from upstream.queries.hosting.running import start
from upstream.queries.registry.changes import Change
from upstream.queries.registry.editing import record
from upstream.queries.registry.journal import Journal
from upstream.queries.registry.opening import define_stream, opened
from upstream.queries.relations.nodes import Stream

SCHEMA = "k BIGINT, t TIMESTAMP, g BIGINT, v BIGINT"
AT_ONCE = 3
"""So many are registered before the job starts; the others come one by one, each after a batch."""
CHANGES = (
    Change("register", "each", "ISTREAM(SELECT k, v FROM rows [NOW])"),
    Change("register", "newest", "SELECT k, g, v FROM LATEST(rows)"),
    Change("register", "per_group", "SELECT g, COUNT(*) AS n FROM LATEST(rows) GROUP BY g", buckets=2),
    Change("register", "later", "SELECT g, SUM(v) AS total FROM LATEST(rows) GROUP BY g"),
    Change("register", "gone", "SELECT k FROM LATEST(rows)"),
    Change("alter", "per_group", "SELECT g, COUNT(*) AS n, MAX(v) AS most FROM LATEST(rows) GROUP BY g"),
    Change("drop", "gone"),
    Change("deactivate", "later"),
    Change("activate", "later"),
    Change("register", "failing", "SELECT k, 1 / (v - v) AS x FROM LATEST(rows)"),
)


def stream(spark: Any, feed: str) -> us.UpdateStream:
    return us.read(
        spark, f"{feed}/*.csv", key="k", event_time="t", schema=SCHEMA, fileFormat="csv", maxFilesPerTrigger=1,
        watermark=us.Watermark.bounded("5 seconds"),
    )  # fmt: skip


def defined(rows: us.UpdateStream, lake: str, checkpoint: str) -> None:
    """Begin the registry, or find it as it was begun."""
    from pyspark.sql.pandas.types import to_arrow_schema

    opened(checkpoint, lake, 2)
    own = to_arrow_schema(rows.schema, timezone="UTC").remove_metadata()
    own = own.remove(own.get_field_index(SYSTEM))
    define_stream(checkpoint, Stream("rows", own, ("k",), "t", updates=True))


def main(feed: str, lake: str, checkpoint: str, master: str = "local[2]") -> None:
    spark = us.session(master=master, **{"spark.sql.shuffle.partitions": 2})
    rows = stream(spark, feed)
    defined(rows, lake, checkpoint)
    journal = Journal(checkpoint)
    while journal.version() < AT_ONCE:
        record(checkpoint, CHANGES[journal.version()])
    query = start({"rows": rows}, checkpoint, processingTime="0 seconds")
    seen = -1
    while journal.version() < len(CHANGES):
        progress = query.lastProgress
        if progress is not None and progress.batchId > seen:
            seen = progress.batchId
            record(checkpoint, CHANGES[journal.version()])
        if not query.isActive:
            raise query.exception() or SystemExit("the query has stopped")
        time.sleep(0.02)
    query.processAllAvailable()
    query.stop()
    # Whatever was written while the query stopped; then what the failure has written.
    for _ in range(2):
        start({"rows": rows}, checkpoint, availableNow=True).awaitTermination()
    print("finished", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
