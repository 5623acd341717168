"""Exactly once under kill -9: whatever dies whenever, the table equals the plain computation over the whole feed."""

import random
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from kit.jobs import Job, last_commit
from kit.queries import run_to_end
from pyspark.sql import SparkSession

from upstream.sink.figures.summary import read_summaries
from upstream.sink.spec.steps import CommitStep

from . import jobs

KEYS = 300
BUDGET = 60


class Feeder(threading.Thread):
    """Writes the feed while the job runs: new files, appended files, lines in two halves, times out of order."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(daemon=True)
        self._folder = folder
        self._random = random.Random(seed)
        self._told = threading.Event()
        self.rows: list[tuple[int, int, str]] = []

    def run(self) -> None:
        """Append a piece of some file ten times a second until told to stop."""
        number = 0
        while not self._told.wait(0.1):
            file = self._folder / f"part-{self._random.randrange(number // 25 + 1):03d}.csv"
            lines = "" if file.exists() else "k,ms,v\n"
            for _ in range(self._random.randrange(1, 60)):
                row = (self._random.randrange(KEYS), number * 100 - self._random.randrange(4000), f"v{len(self.rows)}")
                self.rows.append(row)
                lines += ",".join(map(str, row)) + "\n"
            cut = self._random.randrange(len(lines))
            for half in (lines[:cut], lines[cut:]):
                with file.open("a", encoding="utf-8") as out:
                    out.write(half)
            number += 1

    def stop(self) -> None:
        """Stop after the piece at hand."""
        self._told.set()
        self.join()


Point = tuple[CommitStep, int] | tuple[bool, float]
"""Where to kill: at a step so many batches after the last commit; or so many seconds after the next commit (True), or
after the start, mostly in the recovery (False).
"""


def attack(spark: SparkSession, tmp_path: Path, points: Iterable[Point], seed: int, *policy: str) -> None:
    feed, table, checkpoint, log = (tmp_path / name for name in ("feed", "table", "checkpoint", "job.log"))
    feed.mkdir()
    feeder = Feeder(feed, seed)
    feeder.start()
    job = Job(Path(jobs.__file__), log, ("latest", feed, table, checkpoint))
    for point in points:
        done = last_commit(checkpoint)
        match point:
            case CommitStep() as step, batches:
                job.kill_at(step, *policy, batch=done + batches)
            case commits, after_s:
                wanted = done if commits else -2
                job.kill_when(lambda wanted=wanted: last_commit(checkpoint) > wanted, *policy, after_s=after_s)
        assert last_commit(checkpoint) >= done, "the query went back"
    assert last_commit(checkpoint) > 0
    feeder.stop()
    run_to_end(jobs.latest(spark, str(feed), str(table), str(checkpoint), *policy, most=1_000_000))

    delta = DeltaTable(str(table))
    found = delta.to_pyarrow_table().to_pylist()
    assert len(found) == len({row["k"] for row in found}), "a key is in the table twice"
    newest: dict[int, int] = {}
    for key, ms, _ in feeder.rows:
        newest[key] = max(ms, newest.get(key, ms))
    # With a queue a filter after it takes a key out of the table by its newest row. Of rows with one time, in several
    # files, either may be it.
    leaves: dict[int, set[bool]] = {key: set() for key in newest}
    for key, ms, value in feeder.rows:
        if ms == newest[key]:
            leaves[key].add(bool(policy) and value.endswith("7"))
    there = {row["k"]: row["ms"] for row in found}
    assert {key: there.get(key, ms) for key, ms in newest.items()} == newest
    assert {key for key, outcome in leaves.items() if outcome == {False}} <= there.keys()
    assert not {key for key, outcome in leaves.items() if outcome == {True}} & there.keys()
    if policy:
        assert {True} in leaves.values(), "no key has left the table"
    written = {(key, ms, value) for key, ms, value in feeder.rows}
    assert all((row["k"], row["ms"], row["v"]) in written for row in found)
    commits = [summary for _, summary in read_summaries(delta.table_uri)]
    ids = [summary.batch_id for summary in commits]
    assert ids == sorted(set(ids)), "a batch was committed twice, or out of order"
    # The table of metrics is another table, committed after: no row of it is lost or doubled either.
    metrics = DeltaTable(f"{table}_metrics").to_pyarrow_table().column("batch_id").to_pylist()
    assert sorted(metrics) == ids
    # Each update is applied, or stood for by one that is, once: whatever waited in a queue when the process died. The
    # queue drops those that are older than what it applied of their key.
    dropped = sum(0 if summary.queue is None else summary.queue.outdated for summary in commits)
    assert sum(summary.updates for summary in commits) + dropped == len(feeder.rows)
    # Two counts of the same, by those who do not know of each other: the source's in its journal, the table's in its
    # commits.
    counts = commits[-1].sources
    assert counts is not None
    assert counts.received == len(feeder.rows)
    applied = sum(each.applied + each.superseded for each in commits)
    assert applied + dropped == counts.received, "nothing waits any more"
    assert counts.late_idle == 0
    assert counts.late + counts.suspects <= counts.received
    if policy:
        assert max(summary.rows for summary in commits) <= BUDGET


def moments(kills: int, seed: int) -> Iterator[Point]:
    """Return random moments, some during recovery, the others within the next batches."""
    chance = random.Random(seed)
    return ((kill % 5 != 4, chance.uniform(0, 2.0 if kill % 5 != 4 else 8.0)) for kill in range(kills))


@pytest.mark.fault
def test_killed_with_rows_waiting(spark, tmp_path):
    attack(spark, tmp_path, [(CommitStep.COMMITTED, 3)], 13, "in-place")


@pytest.mark.fault
@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("policy", ["in-place", "linecutting", "auto"])
def test_a_hundred_random_kills_with_rows_waiting(spark, tmp_path, policy):
    attack(spark, tmp_path, moments(100, 17), 17, policy)


@pytest.mark.fault
@pytest.mark.long
@pytest.mark.timeout(7200)
def test_two_hundred_random_kills(spark, tmp_path):
    attack(spark, tmp_path, moments(200, 11), 11)
