"""Flink SQL's deduplicate, keep-last by event time, over Kafka. Runs in Flink's environment: imports nothing of ours.

Its connector is the newest that Maven has, made for Flink 2.0. The result goes to a sink that keeps it in memory: the
cheapest that Flink can do.
"""

from __future__ import annotations

import json
import sys
import time

from pyflink.table import EnvironmentSettings, TableEnvironment


def main(job: dict) -> dict:
    """Do the job's works one after the other, and say how long each took."""
    began = time.perf_counter()
    table = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    conf = table.get_config()
    conf.set("parallelism.default", str(job["cores"]))
    conf.set("pipeline.jars", f"file://{job['sink_jar']};file://{job['kafka_jar']}")
    conf.set("pipeline.object-reuse", "true")
    conf.set("table.exec.mini-batch.enabled", "true")
    conf.set("table.exec.mini-batch.allow-latency", "2 s")
    conf.set("table.exec.mini-batch.size", "50000")
    ready = time.perf_counter()
    seconds = []
    for number, work in enumerate(job["work"]):
        start = time.perf_counter()
        run(table, job["servers"], work["topic"], work["out"], number)
        seconds.append(time.perf_counter() - start)
    return {"setup_seconds": ready - began, "seconds": seconds}


def run(table: TableEnvironment, servers: str, topic: str, out: str, name: int) -> None:
    """Read all of a topic into CSV files below `out`."""
    table.execute_sql(f"""
        CREATE TEMPORARY TABLE feed_{name} (
            `key` BIGINT, ms BIGINT, `value` DOUBLE,
            event_time AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR event_time AS event_time - INTERVAL '10' SECOND
        ) WITH (
            'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}', 'format' = 'json',
            'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset'
        )
    """)
    table.execute_sql(f"""
        CREATE TEMPORARY TABLE latest_{name} (
            `key` BIGINT, ms BIGINT, `value` DOUBLE, PRIMARY KEY (`key`) NOT ENFORCED
        ) WITH ('connector' = 'collected', 'path' = '{out}')
    """)
    table.execute_sql(f"""
        INSERT INTO latest_{name} SELECT `key`, ms, `value` FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY `key` ORDER BY event_time DESC) AS place FROM feed_{name}
        ) WHERE place = 1
    """).wait()


if __name__ == "__main__":
    print("BENCH " + json.dumps(main(json.loads(sys.argv[1]))), flush=True)
