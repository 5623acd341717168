"""Flink SQL: all queries in one statement set over one source. Runs in Flink's environment.

State on the heap, and no checkpoints: the cheapest that Flink can do. Of each query the last window goes to CSV files.
"""

from __future__ import annotations

import json
import sys
import time

from pyflink.table import TableEnvironment

from benchmarks.engines.windows_flink import environment
from benchmarks.processor_time import processor_s


def main(job: dict) -> dict:
    """Do the job's works one after the other: seconds and processor time of each."""
    works = []
    for work in job["work"]:
        table = environment(job, {"whole_state": False})
        conf = table.get_config()  # each operator of each query needs buffers
        conf.set("taskmanager.memory.network.max", "1gb")
        conf.set("taskmanager.memory.network.min", "1gb")
        conf.set("taskmanager.memory.managed.size", "4gb")  # each window operator needs some of it
        began, began_cpu = time.perf_counter(), processor_s()
        run(table, work)
        works.append({"seconds": time.perf_counter() - began, "processor_s": processor_s() - began_cpu})
    return {"works": works}


def run(table: TableEnvironment, work: dict) -> None:
    """Run the work's queries over everything at its `data`, each into CSV files below its `out`."""
    table.execute_sql(f"""
        CREATE TEMPORARY TABLE feed (
            `key` BIGINT, ms BIGINT, `value` BIGINT,
            event_time AS TO_TIMESTAMP_LTZ(ms, 3),
            WATERMARK FOR event_time AS event_time - INTERVAL '{work["delay_s"]}' SECOND
        ) WITH ('connector' = 'filesystem', 'path' = 'file://{work["data"]}', 'format' = 'csv')
    """)
    together = table.create_statement_set()
    for query in work["queries"]:
        name = query["name"]
        size, slide = (f"INTERVAL '{query[each]}' SECOND(4)" for each in ("range_s", "slide_s"))
        how = f"TUMBLE(TABLE feed, DESCRIPTOR(event_time), {size})"
        if query["range_s"] != query["slide_s"]:
            how = f"HOP(TABLE feed, DESCRIPTOR(event_time), {slide}, {size})"
        argument = query["argument"].replace("value", "`value`")
        table.execute_sql(f"""
            CREATE TEMPORARY TABLE {name} (`key` BIGINT, v DOUBLE)
            WITH ('connector' = 'collected', 'path' = '{work["out"]}/{name}')
        """)
        value = f"CAST({argument} AS DOUBLE)" if query["function"] == "avg" else argument
        # A comparison of window_end itself makes a constant of it, and Flink no longer sees that it groups by windows.
        together.add_insert_sql(f"""
            INSERT INTO {name} SELECT `key`, CAST({query["function"]}({value}) AS DOUBLE) FROM TABLE({how})
            GROUP BY `key`, window_start, window_end
            HAVING UNIX_TIMESTAMP(CAST(window_end AS STRING)) = {query["end_ms"] // 1000}
        """)
    together.execute().wait()


if __name__ == "__main__":
    print("BENCH " + json.dumps(main(json.loads(sys.argv[1]))), flush=True)
