"""Flink SQL's interval join over Parquet. Runs in Flink's environment: imports nothing of ours.

State on the heap, no checkpoints, and pairs to CSV files as they come: the cheapest that Flink can do.
"""

from __future__ import annotations

import json
import sys
import time

from pyflink.table import EnvironmentSettings, TableEnvironment


def main(job: dict) -> dict:
    """Do the job's works one after the other; how long each took."""
    seconds = []
    for number, work in enumerate(job["work"]):
        table = environment(job)
        start = time.perf_counter()
        run(table, work, number)
        seconds.append(time.perf_counter() - start)
    return {"seconds": seconds}


def environment(job: dict) -> TableEnvironment:
    """Return the environment in which a work's query runs."""
    table = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    conf = table.get_config()
    conf.set("parallelism.default", str(job["cores"]))
    conf.set("pipeline.jars", ";".join(f"file://{jar}" for jar in (job["sink_jar"], *job["jars"])))
    conf.set("pipeline.object-reuse", "true")
    conf.set("table.local-time-zone", "UTC")
    return table


def run(table: TableEnvironment, work: dict, name: int) -> None:
    """Join everything at the work's `left` and `right` into CSV files below its `out`."""
    for side in ("left", "right"):
        table.execute_sql(f"""
            CREATE TEMPORARY TABLE {side}_{name} (
                `key` BIGINT, ms BIGINT, id BIGINT, `value` BIGINT, event_time AS TO_TIMESTAMP_LTZ(ms, 3),
                WATERMARK FOR event_time AS event_time - INTERVAL '{work["delay_s"]}' SECOND
            ) WITH ('connector' = 'filesystem', 'path' = 'file://{work[side]}', 'format' = 'parquet')
        """)
    columns = ("`key`", "id", "ms", "`value`", "id_right", "ms_right", "value_right")
    table.execute_sql(f"""
        CREATE TEMPORARY TABLE pairs_{name} ({", ".join(f"{column} BIGINT" for column in columns)})
        WITH ('connector' = 'collected', 'path' = '{work["out"]}')
    """)
    reach = f"INTERVAL '{work['reach_s']}' SECOND"
    table.execute_sql(f"""
        INSERT INTO pairs_{name} SELECT l.`key`, l.id, l.ms, l.`value`, r.id, r.ms, r.`value`
        FROM left_{name} l JOIN right_{name} r ON l.`key` = r.`key`
        AND r.event_time BETWEEN l.event_time - {reach} AND l.event_time + {reach}
    """).wait()


if __name__ == "__main__":
    print("BENCH " + json.dumps(main(json.loads(sys.argv[1]))), flush=True)
