"""A query without Spark: its batches, what a plain computation makes of them, and a process that runs them and dies
where it is told to.

As a script it reads orders, one a line, and forks for each, so that a death costs milliseconds: `[folder, scenario,
deaths, wait]`. Deaths are `[batch, step, time]`: kill -9 when that step of that batch is reached for that time; `wait`,
if it is no null, is after how many seconds the process is killed wherever it is. It answers with how the process ended.
"""

import dataclasses
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kit.sink import COLUMNS, Sink

from upstream.sink.maintenance import compact
from upstream.sink.maintenance import compact as compacting
from upstream.sink.maintenance.compact import compact_table
from upstream.sink.merge import engines
from upstream.sink.merge import engines as folding
from upstream.sink.spec import steps
from upstream.sink.spec.maintenance_rules import MaintenanceRules
from upstream.sink.spec.options import parse_sink_options
from upstream.sink.spec.steps import CommitStep

BATCHES = 18
# Other tables that a query fills, below its folder.
BESIDE = dict.fromkeys(("metricsLocation", "deadLetters"), "below the folder")
Death = tuple[int, int, int]
# (key, time or None for a table without, value or None for a deletion, seq)
Row = tuple[int, int, "str | None", int]


@dataclasses.dataclass(frozen=True)
class Scenario:
    """What a query writes, in how many tasks the rows of one bucket may be, and whether all files become others while
    each batch is under way, or buckets that wear after it.
    """

    options: dict[str, str]
    columns: pa.Schema = COLUMNS
    deletions: float = 0.0
    strays: bool = False
    grows: bool = False
    moved: bool = False
    worn: bool = False
    count: int = 60

    @property
    def steps(self) -> list[CommitStep]:
        """Those that its batches go through."""
        return [step for step in CommitStep if step != CommitStep.MARKED or self.options.get("engine") == "vectors"]

    def rows(self, batch: int) -> list[Row]:
        """Rows of one batch, times out of order."""
        chance = random.Random(batch)
        made: list[Row] = []
        for at in range(self.count):
            key = (
                batch * 60 + at
                if self.grows and chance.random() < 0.9
                else chance.randrange(max(batch, 1) * 60 if self.grows else 40)
            )
            value = None if chance.random() < self.deletions else f"v{batch}-{at}"
            made.append((key, batch * 10 + chance.randrange(-30, 10), value, batch * 1000 + at))
        return made

    def expected(self, batches: int) -> dict[int, tuple[Any, ...]]:
        """The newest row per key of the first batches, by a loop over all of them."""
        newest: dict[int, Row] = {}
        for row in (row for batch in range(batches) for row in self.rows(batch)):
            order = (row[1], row[3]) if "eventTime" in self.options else (row[3],)
            best = newest.get(row[0])
            if best is None or order > ((best[1], best[3]) if "eventTime" in self.options else (best[3],)):
                newest[row[0]] = row
        return {key: (row[1], row[2]) for key, row in newest.items() if row[2] is not None}

    def sink(self, folder: Path) -> Sink:
        """The table below a folder."""
        more = {"indexLocation": str(folder / "index")}
        more |= {name: str(folder / name) for name in self.options if name in BESIDE}
        return Sink(folder, self.columns, {"key": "k", "buckets": "4", **self.options, **more})

    def tasks(self, sink: Sink, batch: int) -> list[list[pa.RecordBatch]]:
        """The rows as Spark hands them to two tasks: each has whole buckets, or rows of any."""
        parts: list[list[Row]] = [[], []]
        for row in self.rows(batch):
            parts[(row[3] if self.strays else bucket_number(row[0])) % 2].append(row)
        bound = promised(batch)
        return [
            [_arrow(sink, part, f"feed-{number}"), sink.punctuation(bound, f"feed-{number}")]
            for number, part in enumerate(parts)
        ]


def promised(batch: int) -> int:
    """The time below which a batch says that its feeds are complete; some rows of the next ones are late."""
    return batch * 10 - 10


def bucket_number(key: int) -> int:
    """The bucket of a key among four."""
    from upstream.core.rows.buckets import bucket_of

    return int(bucket_of([pa.chunked_array([pa.array([key], pa.int64())])], 4)[0])


def _arrow(sink: Sink, rows: Sequence[Row], feed: str) -> pa.RecordBatch:
    import numpy as np

    deleted = np.array([row[2] is None for row in rows], dtype=np.bool_)
    arrival = np.array([1_600_000_000_000_000 + row[3] for row in rows], dtype=np.int64)
    return sink.rows(
        [row[:3] for row in rows], seq=[row[3] for row in rows], feed=feed, arrival_us=arrival, deleted=deleted
    )


SCENARIOS = {
    "updates": Scenario({"eventTime": "t"}),
    "deletions": Scenario({"eventTime": "t"}, deletions=0.3),
    "deletions in several tasks": Scenario({"eventTime": "t"}, deletions=0.3, strays=True),
    "without a time": Scenario({}, deletions=0.2, strays=True),
    "windows": Scenario({"eventTime": "t"}, grows=True),
    "vectors": Scenario({"eventTime": "t", "engine": "vectors"}, deletions=0.3, count=12),
    "vectors in several tasks": Scenario({"eventTime": "t", "engine": "vectors"}, deletions=0.3, strays=True, count=12),
    "put together meanwhile": Scenario(
        {"eventTime": "t", "engine": "vectors"}, deletions=0.3, strays=True, moved=True, count=12
    ),
    "looked after": Scenario({"eventTime": "t", "retention": "1 ms"}, deletions=0.3),
    "buckets that wear": Scenario(
        {"eventTime": "t", "engine": "vectors", "retention": "1 ms"}, deletions=0.3, worn=True, count=12
    ),
    "with tables beside it": Scenario({"eventTime": "t", "deadLetterRows": "late,conflicts", **BESIDE}, strays=True),
}


def noted(folder: Path) -> int:
    """How many batches the query's log of commits, which is Spark's part, has noted."""
    place = folder / "noted"
    return int(place.read_text()) if place.exists() else 0


def run(folder: Path, scenario: Scenario, deaths: Sequence[Death]) -> None:
    """What Spark does with the sink, from the first batch that is not noted."""
    engines._WORTH_KEEPING = 40  # so that rows come to lie beside a bucket's files
    # Else so few rows would be put together with each batch, and none of them marked as dead.
    folding._FREE_ROWS, folding._FREE_SHARE = 0, 2
    if scenario.worn:
        compact.WORTH, compact.FILE = 0, 1
    if scenario.moved:
        compacting._groups = lambda held, _vectors, _small: [[path] for path in sorted(held)]
    if "retention" in scenario.options:
        MaintenanceRules.due = lambda _, version, checkpoint, *__: version > checkpoint + 1
    sink = scenario.sink(folder)
    for batch in range(noted(folder), BATCHES):
        waiting = [[step, times] for at, step, times in deaths if at == batch]
        steps.reached = _dying(waiting)
        writer = pickle.loads(pickle.dumps(sink.writer()))
        messages = [pickle.loads(pickle.dumps(writer.write(iter(task)))) for task in scenario.tasks(sink, batch)]
        if scenario.moved and (sink.path / "_delta_log").exists():
            compact_table(parse_sink_options(sink.given), DeltaTable(str(sink.path)))
        sink.writer().commit(messages, batch)
        (folder / ".noted").write_text(str(batch + 1))
        (folder / ".noted").rename(folder / "noted")


def _dying(waiting: list[list[int]]) -> Any:
    def reached(step: CommitStep) -> None:
        for each in waiting:
            if each[0] == step:
                each[1] -= 1
                if each[1] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

    return reached


class Runner:
    """Gives orders to a process of this script."""

    def __init__(self, log: Path) -> None:
        with log.open("a") as errors:
            self._process = subprocess.Popen(
                [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )

    def __call__(self, folder: Path, scenario: str, deaths: Sequence[Death] = (), wait: float | None = None) -> int:
        """Run the query until it ends or dies; the process's exit code, negative for a signal."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([str(folder), scenario, list(deaths), wait]), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    # What is imported here, each run has; a thread that is started here, none would have.
    import deltalake.transaction
    import pandas as pd
    import pyarrow.parquet

    del deltalake, pd, pyarrow
    for line in sys.stdin:
        folder, scenario, deaths, wait = json.loads(line)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                run(Path(folder), SCENARIOS[scenario], deaths)
                code = 0
            finally:
                sys.stderr.flush()
                if code:
                    import traceback

                    traceback.print_exc()
                os._exit(code)
        if wait is not None:
            time.sleep(wait)
            os.kill(child, signal.SIGKILL)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
