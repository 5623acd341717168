"""What a small batch costs, from the moment its file appears to the commit: this project, or Spark's usual recipe.

Three things are measured in one process: the first commit of a query after the session is up; then, with a table of
many keys, batches of a given number of rows, and batches of which no row is left by the filter.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import given_job, say

_PATIENCE_SECONDS = 120
# The first batches of a kind still meet code that has not been compiled.
_NOT_COUNTED = 3


class Feed:
    """A folder that files are put into, complete from the first moment.

    Parameters
    ----------
    folder : Path
        Made if it is not there.
    keys : int
        Keys are drawn from these.
    """

    def __init__(self, folder: Path, keys: int) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._keys = keys
        self._files = 0
        self._clock_ms = 1_700_000_000_000
        self._rng = np.random.default_rng(1)

    def put(self, rows: int, *, all_keys: bool = False, pass_filter: bool = True) -> float:
        """Add a file; the moment it appeared."""
        keys = np.arange(self._keys) if all_keys else self._rng.choice(self._keys, rows, replace=False)
        value = 0.5 if pass_filter else -1.0
        self._clock_ms += 1
        lines = "".join(f"{key},{self._clock_ms},{value}\n" for key in keys)
        staged = self._folder / f".file-{self._files:06d}.csv"
        staged.write_text("key,ms,value\n" + lines)
        self._files += 1
        began = time.perf_counter()
        staged.rename(self._folder / staged.name[1:])
        return began


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Measure the first commit, then the batches."""
    start = {"upstream": UpstreamQuery, "spark recipe": RecipeQuery}[job["engine"]]
    feed = Feed(Path(job["out"] + "-feed"), job["keys"])
    feed.put(job["rows"])
    query = start(job, job["out"] + "-feed")
    began = time.perf_counter()
    query.start()
    first = query.committed(0) - began
    feed.put(job["keys"], all_keys=True)
    query.committed(1)
    batch = 1
    measured: dict[str, list[float]] = {"some": [], "none": []}
    triggers: dict[str, list[float]] = {"some": [], "none": []}
    for kind, found in measured.items():
        for number in range(job["batches"] + _NOT_COUNTED):
            appeared = feed.put(job["rows"], pass_filter=kind == "some")
            batch += 1
            seconds = query.committed(batch) - appeared
            if number >= _NOT_COUNTED:
                found.append(seconds)
        # Once: what Spark keeps of earlier batches takes longer to fetch with each.
        triggers[kind] = query.trigger_seconds(range(batch + 1 - job["batches"], batch + 1))
    last = query.last_batch_ms()
    query.stop()
    return {"first_commit": first, "file_to_commit": measured, "trigger": triggers, "last_batch_ms": last}


class Query:
    """A query that can be started, and asked what it has done.

    Parameters
    ----------
    job
        As told to this process.
    feed
        The folder to follow.
    """

    def __init__(self, job: dict[str, Any], feed: str) -> None:
        self.job = job
        self.feed = feed
        self.out: str = job["out"]
        self.checkpoint = self.out + "-checkpoint"
        self.spark = self.session()
        self.query: Any = None

    def session(self) -> Any:
        """Start the session."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the query; what this needs before counts as its time."""
        raise NotImplementedError

    def committed(self, batch: int) -> float:
        """Wait until Spark has recorded that a batch is done; the moment it was."""
        self._wait((Path(self.checkpoint) / "commits" / str(batch)).exists)
        return time.perf_counter()

    def trigger_seconds(self, batches: range) -> list[float]:
        """Return the seconds that Spark reports for some batches, from planning to its log."""
        found: dict[int, float] = {}

        def reported() -> bool:
            found.update((each.batchId, each.durationMs["triggerExecution"] / 1e3) for each in self._with_batch())
            return batches[-1] in found

        self._wait(reported)
        return [found[batch] for batch in batches]

    def last_batch_ms(self) -> dict[str, int]:
        """Return the milliseconds of each part of the last batch."""
        return dict(self._with_batch()[-1].durationMs)

    def stop(self) -> None:
        """Stop the query and the session."""
        self.query.stop()
        self.spark.stop()

    def _with_batch(self) -> list[Any]:
        return [progress for progress in self.query.recentProgress if "addBatch" in progress.durationMs]

    def _wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.perf_counter() + _PATIENCE_SECONDS
        while not condition():
            if not self.query.isActive or time.perf_counter() > deadline:
                raise SystemExit(f"the query has stopped or is stuck: {self.query.exception()}")
            time.sleep(0.002)


class UpstreamQuery(Query):
    """Our source and our sink."""

    def session(self) -> Any:
        import upstream

        return upstream.session("benchmark", master=f"local[{self.job['cores']}]")

    def start(self) -> None:
        import upstream

        options = {"timeFormat": "epoch_ms", "where": "value >= 0", "schema": "key BIGINT, ms BIGINT, value DOUBLE"}
        rows = upstream.latest(self.spark, self.feed, key="key", event_time="ms", **options)
        writer = upstream.write_latest(rows, self.out, key="key", event_time="ms", checkpoint=self.checkpoint)
        self.query = writer.start()


class RecipeQuery(Query):
    """Spark's usual recipe."""

    def session(self) -> Any:
        from benchmarks.engines.latest_spark import session

        return session(self.job["cores"])

    def start(self) -> None:
        from benchmarks.engines.latest_spark import SCHEMA, upsert

        self.spark.createDataFrame([], SCHEMA).write.format("delta").save(self.out)
        rows = self.spark.readStream.schema(SCHEMA).option("header", "true").csv(self.feed).where("value >= 0")
        writer = rows.writeStream.foreachBatch(upsert(self.spark, self.out))
        self.query = writer.option("checkpointLocation", self.checkpoint).start()


if __name__ == "__main__":
    say(main(given_job()))
