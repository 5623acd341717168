"""The job that the kill test of Kafka runs and kills: a topic into a latest table.

Arguments: address of the broker, topic, table, checkpoint, `follow` or `finish`. Prints a line per finished batch.
"""

from __future__ import annotations

import sys
import time

import upstream


def main(address: str, topic: str, table: str, checkpoint: str, mode: str) -> None:
    spark = upstream.session(master="local[2]")
    options = {
        "connector": "kafka",
        "kafka.bootstrap.servers": address,
        "subscribe": topic,
        "schema": "k BIGINT, ms BIGINT, v STRING",
        "timeFormat": "epoch_ms",
        "progressDelay": "5 seconds",
        "checkpointLocation": checkpoint,
        "maxOffsetsPerTrigger": 700 if mode == "follow" else 1_000_000,
    }
    updates = upstream.latest(spark, key="k", event_time="ms", **options)
    writer = upstream.write_latest(updates, table, key="k", event_time="ms", buckets=4, checkpointLocation=checkpoint)
    if mode == "finish":
        writer.trigger(availableNow=True).start().awaitTermination()
        print("finished", flush=True)
        return
    query = writer.trigger(processingTime="0 seconds").start()
    seen = -1
    while query.isActive:
        progress = query.lastProgress
        if progress is not None and progress.batchId > seen:
            seen = progress.batchId
            print(f"batch {seen}", flush=True)
        time.sleep(0.02)
    raise query.exception() or SystemExit("the query has stopped")


if __name__ == "__main__":
    main(*sys.argv[1:])
