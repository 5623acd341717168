"""One shard of a queue with very many pending keys, its state in files, so that the process holds what a task would
hold.

Two jobs: `fill` puts the keys there; `serve` runs batches on what is there, in a process of its own, and says what each
touches.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.harness import given_job, say
from benchmarks.memory import peak_mb
from upstream.core.rows.frames import to_frame
from upstream.core.rows.system_column import SYSTEM, system_array
from upstream.operators.queue.queue import Control, ShardPlan
from upstream.operators.queue.shard import QueueShard

_FILL_ROWS = 100_000


class FileStore:
    """A store of a file for each value, which counts.

    Attributes
    ----------
    read, written : int
        Bytes.
    calls : int
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.read = self.written = self.calls = 0

    def get(self, kind: str, page: int) -> bytes | None:
        """Return the value of a page, or None if it is missing."""
        self.calls += 1
        path = self._folder / f"{kind}-{page}"
        value = path.read_bytes() if path.exists() else None
        self.read += len(value or b"")
        return value

    def put(self, kind: str, page: int, value: bytes) -> None:
        """Keep the value from now on."""
        self.calls += 1
        self.written += len(value)
        (self._folder / f"{kind}-{page}").write_bytes(value)

    def remove(self, kind: str, page: int) -> None:
        """Remove the value of a page."""
        self.calls += 1
        (self._folder / f"{kind}-{page}").unlink()


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Fill or serve the shard."""
    began_mb = peak_mb()
    plan = ShardPlan(key=("key",), time="ms", shards=1, policy=job["policy"], cost_s=1e-4)
    keys, generator = job["keys"], np.random.default_rng(job["shard"])
    batches: list[dict[str, float]] = []
    if job["do"] == "fill":
        work = [(np.arange(at, min(at + _FILL_ROWS, keys)), at, 0) for at in range(0, keys, _FILL_ROWS)]
    else:
        rows = job["rows"]
        work = [(generator.integers(0, keys, rows), keys + rows * n, job["budget"]) for n in range(job["batches"])]
    for drawn, first, budget in work:
        store = FileStore(Path(job["out"]))
        frame = to_frame(_rows(drawn, first, text=job["text"]))
        began, cpu = time.perf_counter(), time.process_time()
        _, report = QueueShard(0, plan, store).run([frame], control=Control(first + len(drawn), budget).to_json())
        batches.append(
            {
                "seconds": time.perf_counter() - began,
                "cpu": time.process_time() - cpu,
                "waiting": report.waiting,
                "applied": report.applied,
                "row_pages_read": report.pages_read,
                "row_pages_written": report.pages_written,
                "bytes_read": store.read,
                "bytes_written": store.written,
                "calls": store.calls,
            }
        )
    return {"batches": batches, "peak_mb": peak_mb() - began_mb}


def _rows(keys: Any, first: int, *, text: bool) -> pa.Table:
    seq = first + np.arange(len(keys))
    if text:
        keys = pa.array([f"key-{key:010d}" for key in keys.tolist()])
    system = system_array(source="feed", seq=seq, arrival_us=seq)
    return pa.table({"key": keys, "ms": seq, "value": seq / 3, SYSTEM: system})


if __name__ == "__main__":
    say(main(given_job()))
