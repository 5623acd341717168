"""Flink SQL's TUMBLE and HOP over CSV. Runs in Flink's environment: imports nothing of ours.

State on the heap, and no checkpoints unless the work asks for the whole state: the cheapest that Flink can do. All
results go to CSV files as they come; of the latest per key a map in memory does, written when the input ends.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment

CHECKPOINT_EVERY = "1 s"


class Checkpoints:
    """The sizes of a folder's checkpoints, of which Flink keeps the newest only, and none when a job has ended."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._sizes: dict[str, int] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def end(self) -> dict:
        """Stop, and return the number of checkpoints, the largest, and their mean."""
        self._done.set()
        self._thread.join()
        sizes = list(self._sizes.values())
        return {
            "batches": len(sizes),
            "state_bytes": max(sizes, default=0),
            "checkpoint_bytes_per_batch": round(sum(sizes) / len(sizes)) if sizes else 0,
        }

    def _watch(self) -> None:
        while not self._done.wait(0.05):
            for metadata in self._folder.glob("*/chk-*/_metadata"):
                try:
                    size = sum(file.stat().st_size for file in metadata.parent.iterdir())
                except OSError:  # a newer one has taken its place
                    continue
                self._sizes[str(metadata)] = max(self._sizes.get(str(metadata), 0), size)


def main(job: dict) -> dict:
    """Do the job's works one after the other; how long each took, and what its state took if there were checkpoints."""
    seconds, states = [], []
    for number, work in enumerate(job["work"]):
        table = environment(job, work)
        checkpoints = Checkpoints(work["out"] + "-checkpoint")
        start = time.perf_counter()
        run(table, work, number)
        seconds.append(time.perf_counter() - start)
        states.append(checkpoints.end())
    return {"seconds": seconds, "states": states}


def environment(job: dict, work: dict) -> TableEnvironment:
    """Return the environment in which the work's query runs."""
    table = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    conf = table.get_config()
    conf.set("parallelism.default", str(job["cores"]))
    conf.set("pipeline.jars", f"file://{job['sink_jar']}")
    conf.set("pipeline.object-reuse", "true")
    conf.set("table.local-time-zone", "UTC")
    if work["whole_state"]:
        conf.set("execution.checkpointing.interval", CHECKPOINT_EVERY)
        conf.set("execution.checkpointing.dir", f"file://{work['out']}-checkpoint")
    return table


def run(table: TableEnvironment, work: dict, name: int) -> None:
    """Read everything at the work's `data` into CSV files below its `out`."""
    if work["aggregates"] == "sums":
        columns, aggregates = "n BIGINT, total BIGINT", "COUNT(*), SUM(`value`)"
    else:
        columns = "n BIGINT, median DOUBLE, different BIGINT"
        aggregates = "COUNT(*), PERCENTILE(`value`, 0.5), COUNT(DISTINCT `value`)"
    newest = ", 'newest-per' = 'key'" if work["emit"] == "latest" else ""
    size, slide = (f"INTERVAL '{work[each]}' SECOND(4)" for each in ("range_s", "slide_s"))
    how = f"TUMBLE(TABLE feed_{name}, DESCRIPTOR(event_time), {size})"
    if work["range_s"] != work["slide_s"]:
        how = f"HOP(TABLE feed_{name}, DESCRIPTOR(event_time), {slide}, {size})"
    table.execute_sql(f"""
        CREATE TEMPORARY TABLE feed_{name} (
            `key` BIGINT, ms BIGINT, `value` BIGINT,
            event_time AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR event_time AS event_time - INTERVAL '10' SECOND
        ) WITH ('connector' = 'filesystem', 'path' = 'file://{work["data"]}', 'format' = 'csv')
    """)
    table.execute_sql(f"""
        CREATE TEMPORARY TABLE windows_{name} (`key` BIGINT, window_end TIMESTAMP(3), {columns})
        WITH ('connector' = 'collected', 'path' = '{work["out"]}'{newest})
    """)
    table.execute_sql(f"""
        INSERT INTO windows_{name} SELECT `key`, window_end, {aggregates}
        FROM TABLE({how}) GROUP BY `key`, window_start, window_end
    """).wait()


if __name__ == "__main__":
    print("BENCH " + json.dumps(main(json.loads(sys.argv[1]))), flush=True)
