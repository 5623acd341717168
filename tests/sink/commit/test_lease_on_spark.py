"""Two queries on one table by mistake: the second is refused when it starts, and may start when the first has ended.

The first has Spark's times of its batches beside its checkpoint.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from kit.waiting import wait_for
from pyspark.errors import StreamingQueryException

from upstream.core.feedback.checkpoint_layout import SparkApplication, SparkTimes, page_address
from upstream.sink.commit.lease import TableLease
from upstream.sink.write_latest import write_latest
from upstream.storage.folder import TableFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema("k BIGINT, t BIGINT").json(str(folder))


def started(df: DataFrame, tmp_path: Path, name: str, **more: Any) -> StreamingQuery:
    options = {"checkpointLocation": str(tmp_path / name), **more}
    return write_latest(df, tmp_path / "table", key="k", event_time="t", buckets=2, **options).queryName(name).start()


def test_the_second_query_is_refused_while_the_first_lives(spark, tmp_path):
    feed, table = tmp_path / "feed", tmp_path / "table"
    feed.mkdir()
    (feed / "1.json").write_text('{"k": 1, "t": 1}\n')
    first = started(stream(spark, feed), tmp_path, "first", lease="6 seconds")
    wait_for((table / "_delta_log" / f"{1:020d}.json").exists, first.exception)
    lease = TableLease(TableFolder(str(table))).read()
    assert lease is not None
    assert lease.holder == first.id
    checkpoint = TableFolder(str(tmp_path / "first"))
    wait_for(lambda: SparkTimes.read(checkpoint, 0), first.exception)
    times = SparkTimes.read(checkpoint, 0)
    assert times.steps_s == {name: length / 1e3 for name, length in first.lastProgress.durationMs.items()}
    assert {"latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets"} <= times.steps_s.keys()
    assert 0 < lease.since_us - times.began_us < times.steps_s["triggerExecution"] * 1e6
    application = SparkApplication.read(checkpoint)
    assert (application.id, application.pages) == (
        spark.sparkContext.applicationId,
        page_address(spark.sparkContext.uiWebUrl),
    )
    assert lease.process in application.processes
    # While it waits for rows, it is kept alive all the same.
    wait_for(
        lambda: (found := TableLease(TableFolder(str(table))).read()) and found.renewed_us > lease.renewed_us + 4e6,
        first.exception,
    )
    second = started(stream(spark, feed), tmp_path, "second", lease="6 seconds")
    with pytest.raises(StreamingQueryException, match=f"is being written by another query, {first.id}, of process"):
        second.awaitTermination()
    # The first has noticed nothing.
    (feed / "2.json").write_text('{"k": 2, "t": 1}\n')
    first.processAllAvailable()
    assert DeltaTable(str(table)).to_pyarrow_table().num_rows == 2
    # It ends: the second may start at once, and the first no more while that one lives.
    first.stop()
    third = started(stream(spark, feed), tmp_path, "second")
    third.processAllAvailable()
    again = started(stream(spark, feed), tmp_path, "first")
    (feed / "3.json").write_text('{"k": 3, "t": 1}\n')
    with pytest.raises(StreamingQueryException, match="written by another query"):
        again.awaitTermination()
    third.processAllAvailable()
    assert sorted(DeltaTable(str(table)).to_pyarrow_table().column("k").to_pylist()) == [1, 2, 3]
