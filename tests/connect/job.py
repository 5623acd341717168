"""A client of Spark Connect, with a server of its own, in the working directory.

job.py: prints a JSON object of what each part of it gave: rows of a table, or the name and the text of an error
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import upstream as us

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
DEFAULT = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
DDL = "vehicle BIGINT, at TIMESTAMP, speed BIGINT"


def rows_of(table: str, columns: list[str]) -> list[Any]:
    return sorted(us.LatestTable(table).scan(columns).collect().rows())


def written(stream: us.UpdateStream, table: str, columns: list[str], **options: Any) -> list[Any]:
    """The table's rows once a query has read all there is."""
    query = stream.write(table, checkpoint=f"{table}_cp", **options).trigger(availableNow=True).start()
    query.awaitTermination()
    metrics = us.LatestTable(table).batch_metrics(query.recentProgress[0])
    assert metrics is not None
    assert metrics.commit is not None
    return rows_of(table, columns)


class Parts:
    """What the job does; each method is a part."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def _read(self, **options: Any) -> us.UpdateStream:
        return us.read(self._spark, "feed", key="vehicle", event_time="at", **options)

    def session(self) -> Any:
        return [type(self._spark).__module__, us.check_session(self._spark), us.session() is self._spark]

    def steps(self) -> Any:
        """More buckets and partitions than cores: the server is asked for these."""
        self._spark.conf.set("spark.sql.shuffle.partitions", 5)
        try:
            stream = self._read().map(double, schema="twice BIGINT")
            assert "upstreamSteps" in stream.df._plan._options, "the source does not run the step"
            return written(stream.where("twice > 12"), "steps", ["vehicle", "twice"])
        finally:
            self._spark.conf.set("spark.sql.shuffle.partitions", 2)

    def coalesced(self) -> Any:
        return written(self._read(coalesce=True), "newest", ["vehicle", "speed"], delete_when="speed > 30")

    def window(self) -> Any:
        stream = self._read(watermark_delay="1 second", onEnd="keep")
        means = stream.window("4 seconds", slide="2 seconds").agg(speed=us.avg("speed"), rows=us.count())
        return written(means, "means", ["vehicle", "speed", "rows"])

    def window_of_coalesced_rows(self) -> Any:
        return self._read(coalesce=True).select("speed").window("4 seconds")

    def queue_without_rocksdb(self) -> Any:
        before = self._spark.conf.get(PROVIDER)
        self._spark.conf.set(PROVIDER, DEFAULT)
        try:
            return self._read(coalesce=True).queue().write("queued", checkpoint="queued_cp")
        finally:
            self._spark.conf.set(PROVIDER, before)

    def merge(self) -> Any:
        return self._read().write("merged", checkpoint="merged_cp", engine="merge")

    def batch(self) -> Any:
        rows = self._spark.createDataFrame([(1, 10, 0.5)], "vehicle BIGINT, at BIGINT, speed DOUBLE")
        us.write_batch(rows, "batch", key="vehicle", event_time="at")
        return rows_of("batch", ["vehicle", "at"])

    def named_batches(self) -> Any:
        return self._counts({"queryId": "counts"})

    def batches_without_a_name(self) -> Any:
        return self._counts(None)

    def _counts(self, name: dict[str, str] | None) -> Any:
        rows = self._spark.readStream.schema(DDL).option("header", True).csv("feed")
        place, folder = f"counts_{name is None}", sys.argv[1]

        def write(batch: Any, batch_id: int) -> None:
            named: dict[str, Any] = {} if name is None else {**name, "batchId": batch_id}
            us.write_batch(batch, f"{folder}/{place}", key="vehicle", **named)

        writer = rows.groupBy("vehicle").count().writeStream.outputMode("update").foreachBatch(write)
        query = writer.option("checkpointLocation", f"{place}_cp").trigger(availableNow=True).start()
        query.awaitTermination()
        return rows_of(place, ["vehicle", "count"])


def double(rows: pa.Table) -> pa.Table:
    return pa.table({"twice": pc.multiply(rows["speed"], 2)})


def outcome(part: Callable[[], Any]) -> Any:
    try:
        return part()
    except Exception as error:
        return [type(error).__name__, str(error)]


def main() -> int:
    remote = {"spark.remote": "local[2]", "spark.sql.shuffle.partitions": 2, "spark.connect.grpc.binding.port": 0}
    parts = Parts(us.session("connect", **remote))
    names = [name for name in vars(Parts) if not name.startswith("_")]
    print(json.dumps({name: outcome(getattr(parts, name)) for name in names}, default=str))
    parts._spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
