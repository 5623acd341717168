"""The job that the kill test of continuous queries runs and kills: queries come, change, fail and go while it runs.

Arguments: folder of the feed, folder of the tables, checkpoint; a cluster, if it is to run on one; how many groups of
changes it makes, before it goes on until it is killed. The stored relation is beside
the feed. A test arms steps of the sink (see `dying_sink`).
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
from deltalake import DeltaTable

import upstream as us
from upstream.hosting.journal import Journal

SCHEMA = "k BIGINT, t TIMESTAMP, g BIGINT, v BIGINT"
SHORT = "1 millisecond"
"""The intended duration of a batch, for which there is hardly time to put out any results."""

_COUNTS = "SELECT g, COUNT(*) AS n FROM LATEST(rows) GROUP BY g"


def _rename(queries: us.Queries) -> None:
    """Give the stored relation a second version, once, and let queries read it."""
    table = DeltaTable(str(Path(queries.tables()["names"].partition(" of ")[2])))
    if table.version() == 0:
        names = pl.DataFrame({"g": [1, 2, 3, 3], "name": ["one", "changed", "three", "three"]})
        names.write_delta(table.table_uri, mode="overwrite")
    queries.refresh("names")


Action = Callable[[us.Queries], None]
AT_ONCE: tuple[Action, ...] = (
    lambda queries: queries.table("names", Path(_feed()).parent / "names"),
    lambda queries: queries.create("each", "ISTREAM(SELECT k, v FROM rows [NOW])"),
    lambda queries: queries.create("newest", "SELECT k, g, v FROM LATEST(rows)", weight=4),
    lambda queries: queries.create("per_group", _COUNTS, buckets=2),
    lambda queries: queries.create("gone", "SELECT k FROM LATEST(rows)"),
    lambda queries: queries.create("another", "SELECT k, v FROM LATEST(rows)"),
    lambda queries: queries.create("failing", "SELECT k, 100 / v AS x FROM LATEST(rows)"),
    lambda queries: queries.create(
        "named", "SELECT name, COUNT(*) AS n, SUM(v) AS total FROM LATEST(rows) AS r JOIN names ON r.g = names.g "
        "GROUP BY name", weight=0.5,
    ),
)  # fmt: skip
"""What is there before the job starts. Each adds one version to the registry; so does each of the others."""
GROUPS: tuple[tuple[Action, ...], ...] = (
    (
        lambda queries: queries.create("later", "SELECT g, SUM(v) AS total FROM LATEST(rows) GROUP BY g"),
        lambda queries: queries.create("stopped", "SELECT g, MAX(v) AS most FROM LATEST(rows) GROUP BY g"),
    ),
    (
        lambda queries: queries.alter("per_group", _COUNTS.replace("AS n", "AS n, MAX(v) AS most")),
        lambda queries: queries.drop("another", delete_table=True),
    ),
    (
        lambda queries: queries.drop("gone", delete_table=True),
        lambda queries: queries.deactivate("later"),
        lambda queries: queries.create("another", "SELECT g, k FROM LATEST(rows)"),
    ),
    (_rename, lambda queries: queries.alter("each", weight=2)),
    (lambda queries: queries.activate("later"), lambda queries: queries.deactivate("stopped")),
)
"""What is done while it runs, each group after a batch."""


def _feed() -> str:
    return sys.argv[1]


def stream(spark: Any, feed: str) -> us.UpdateStream:
    return us.read(
        spark, f"{feed}/*.csv", key="k", event_time="t", schema=SCHEMA, fileFormat="csv", maxFilesPerTrigger=1,
        watermark=us.Watermark.bounded("5 seconds"),
    )  # fmt: skip


def _done(checkpoint: str) -> int:
    """How many of the actions the registry has."""
    journal = Journal(checkpoint)
    changes = journal.read(range(1, journal.version() + 1))
    return sum(change.kind != "fail" for change in changes)


def main(feed: str, lake: str, checkpoint: str, master: str = "local[2]", groups: str = "") -> None:
    if folder := os.environ.get("UPSTREAM_ARMED"):
        from dying_sink import arm

        arm(folder)
    spark = us.session(master=master, **{"spark.sql.shuffle.partitions": 2})
    queries = us.queries(spark, checkpoint=checkpoint, to=lake, shards=2)
    queries.source("rows", stream(spark, feed))
    for action in AT_ONCE[_done(checkpoint) :]:
        action(queries)
    query = queries.start(batch_duration=SHORT, processingTime="0 seconds")
    seen, end = -1, len(AT_ONCE)
    for group in GROUPS[: int(groups) if groups else None]:
        end += len(group)
        left = group[len(group) - max(end - _done(checkpoint), 0) :] if _done(checkpoint) < end else ()
        while left and ((progress := query.lastProgress) is None or progress.batchId <= seen):
            if not query.isActive:
                raise query.exception() or SystemExit("the query has stopped")
            time.sleep(0.02)
        if left:
            seen = progress.batchId
        for action in left:
            action(queries)
    if groups:
        query.awaitTermination()
    query.processAllAvailable()
    query.stop()
    # Whatever was written while the query stopped, and what waits; then once more without a limit to the time.
    queries.start(batch_duration=SHORT, availableNow=True).awaitTermination()
    queries.start(availableNow=True).awaitTermination()
    print("finished", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
