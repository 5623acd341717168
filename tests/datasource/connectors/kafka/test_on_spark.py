"""From a broker to the latest table, on Spark: what arrives, what is complete, and a broker that dies."""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from kit.queries import run_to_end
from kit.recorded_changes import Recording
from kit.tables import read_by_key
from kit.waiting import wait_for
from pyspark.sql import SparkSession

import upstream
from upstream.delta_format.append_table import count_dead_letters
from upstream.sink.figures.summary import read_summaries
from upstream.storage.folder import TableFolder

from .messages import Sender

SECRET = "hunter2-on-spark"


def value(key: int, ms: int, n: int) -> bytes:
    return json.dumps({"k": key, "ms": ms, "n": n}).encode()


def writer(spark: SparkSession, broker: Any, topic: str, folder: Path, **options: Any) -> Any:
    checkpoint = {"checkpointLocation": str(folder / "checkpoint")}
    place = {"connector": "kafka", "kafka.bootstrap.servers": broker.address, "subscribe": topic}
    form = {"schema": "k BIGINT, ms BIGINT, n BIGINT", "timeFormat": "epoch_ms", "watermarkDelay": "1 second"}
    updates = upstream.latest(spark, key="k", event_time="ms", **{**place, **form, **checkpoint, **options})
    return upstream.write_latest(updates, str(folder / "table"), key="k", event_time="ms", buckets=2, **checkpoint)


def test_three_partitions_one_silent_with_tombstones_and_malformed_values(spark, broker, topic, sender, tmp_path):
    name = topic(3)
    first = 1_700_000_000_000
    sender.send(name, *[value(n % 10, first + 1000 * n, n) for n in range(100)], key=b"-")
    sender.send(name, *[value(10 + n % 10, first + 500 * n, n) for n in range(100)], partition=1, key=b"-")
    sender.send(name, b"oops", b"", key=b"3")
    sender.send(name, None, key=b"3", timestamp=first + 98_500)  # deleted
    sender.send(name, None, key=b"9", timestamp=first + 98_500)  # deleted before its newest row
    sender.send(name, None, key=b"not a number", timestamp=first + 98_500)
    options = {"maxOffsetsPerTrigger": 70, "kafka.sasl.password": SECRET}
    query = run_to_end(writer(spark, broker, name, tmp_path, **options))
    newest = {n % 10: n for n in range(100)} | {10 + n % 10: n for n in range(100)}
    del newest[3]
    assert read_by_key(tmp_path / "table", "k", "n") == newest
    assert count_dead_letters(TableFolder(str(tmp_path / "checkpoint" / "dead_letters"))) == 3
    summaries = [summary for _, summary in read_summaries(str(tmp_path / "table"))]
    # The tasks looked at the times, and the last batch, without a row, told what they had seen.
    assert summaries[-1].updates == 0
    assert summaries[-1].low_watermarks == {f"{name}/0": first + 98_000, f"{name}/1": first + 48_500}
    assert sum(summary.updates for summary in summaries) == 202
    assert sum(summary.rows for summary in summaries) < 100, "nothing was coalesced"
    reports = list((tmp_path / "checkpoint" / "upstream-times").glob("*.json"))
    assert len(reports) <= 2, "reports of older batches are left"
    versions = DeltaTable(str(tmp_path / "table")).version()
    run_to_end(writer(spark, broker, name, tmp_path, **options))
    assert DeltaTable(str(tmp_path / "table")).version() == versions
    recorded = "".join(progress.json for progress in query.recentProgress).encode()
    recorded += b"".join(path.read_bytes() for path in (tmp_path / "checkpoint").rglob("*") if path.is_file())
    with pytest.raises(Exception, match="refuses an option") as refused:
        run_to_end(writer(spark, broker, name, tmp_path / "other", **options, **{"kafka.sasl.jaas.config": SECRET}))
    assert SECRET.encode() not in recorded + str(refused.value).encode()


def test_a_broker_killed_and_restarted_and_a_partition_added_in_mid_query(spark, broker, topic, sender, tmp_path):
    name = topic(2)
    sender.send(name, *[value(n, n, 0) for n in range(50)])
    query = writer(spark, broker, name, tmp_path).start()

    def holds(expected: dict[int, int]) -> bool:
        return (tmp_path / "table" / "_delta_log").exists() and read_by_key(tmp_path / "table", "k", "n") == expected

    def until(expected: dict[int, int]) -> None:
        wait_for(lambda: holds(expected), query.exception)

    until(dict.fromkeys(range(50), 0))
    broker.kill()
    sender.send(name, *[value(n, 1000 + n, 1) for n in range(25)], partition=1, flush=False)
    # The query asks a broker that is gone.
    wait_for(lambda: "offsets" in query.status["message"], query.exception)
    broker.start()
    assert sender.producer.flush(60) == 0
    until({n: int(n < 25) for n in range(50)})
    broker.grow(name, 3)
    Sender(broker.address).send(name, *[value(n, 2000 + n, 2) for n in range(40, 60)], partition=2)
    until({n: 2 if n >= 40 else int(n < 25) for n in range(60)})
    query.stop()


def test_a_job_follows_a_database_over_a_restart_and_events_that_come_again(spark, broker, topic, sender, tmp_path):
    name, recording = topic(2), Recording()
    messages = recording.messages()
    text = f"""
        CREATE SOURCE orders FROM 'kafka://{broker.address}/{name}' WITH (format = 'debezium');
        CREATE MATERIALIZED VIEW copy AS SELECT id, customer, total FROM LATEST(orders);
        CREATE MATERIALIZED VIEW totals AS SELECT COUNT(*) AS n, SUM(total) AS total FROM LATEST(orders);
    """

    def run(*some: Any) -> Any:
        for message in some:
            part = zlib.crc32(message.key) % 2
            sender.send(name, message.value, key=message.key, partition=part, flush=False)
        sender.send(name)
        job = upstream.sql(spark, text, to=tmp_path / "lake")
        job.start(availableNow=True).awaitTermination()
        return job

    half = len(messages) // 2  # before the source adds a column
    run(*messages[:half])
    job = run(*messages[half:], *messages[: half + 5])
    rows = sorted(job.scan("copy").collect().rows())
    assert [(row[0], row[1], None if row[2] is None else float(row[2])) for row in rows] == [
        (row["id"], row["customer"], row["total"]) for row in recording.table
    ]
    totals = [row["total"] for row in recording.table if row["total"] is not None]
    ((count, total),) = job.scan("totals").collect().rows()
    assert (count, float(total)) == (len(recording.table), pytest.approx(sum(totals)))
    assert count_dead_letters(TableFolder(str(tmp_path / "lake_checkpoint" / "dead_letters"))) == 0
