"""Exactly once on Spark: the job dies at steps of the sink, tasks fail after they have written, or run twice."""

import contextlib
import dataclasses
import os
import random
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from deltalake import DeltaTable
from kit.jobs import Job, kill_session

from upstream.sink.figures.summary import CommitSummary, read_summaries
from upstream.sink.spec.steps import CommitStep

JOB = Path(__file__).with_name("steps_job.py")
FILES = 8

pytestmark = pytest.mark.fault


@dataclasses.dataclass
class Run:
    """A feed, and the job over it."""

    folder: Path

    def __post_init__(self) -> None:
        self.rows: list[tuple[int, int, str]] = []
        chance = random.Random(FILES)
        (self.folder / "feed").mkdir()
        for number in range(FILES):
            rows = [
                (chance.randrange(50), number * 100 + chance.randrange(-200, 100), f"v{number}-{at}")
                for at in range(80)
            ]
            self.rows += rows
            file = self.folder / "feed" / f"part-{number:03d}.csv"
            file.write_text("\n".join(["k,ms,v", *(",".join(map(str, row)) for row in rows)]) + "\n")
            os.utime(file, (1_600_000_000 + number, 1_600_000_000 + number))

    @property
    def job(self) -> Job:
        places = (self.folder / name for name in ("feed", "table", "checkpoint"))
        return Job(JOB, self.folder / "log", (*places,))

    def commits(self) -> list[CommitSummary]:
        return [summary for _, summary in read_summaries(str(self.folder / "table"))]

    def check(self) -> None:
        """The table is the plain computation's, by the time alone where two rows of a key have one."""
        found = DeltaTable(str(self.folder / "table")).to_pyarrow_table(columns=["k", "ms", "v"]).to_pylist()
        newest: dict[int, int] = {}
        for key, ms, _ in self.rows:
            newest[key] = max(ms, newest.get(key, ms))
        assert len(found) == len(newest)
        assert {row["k"]: row["ms"] for row in found} == newest
        assert {(row["k"], row["ms"], row["v"]) for row in found} <= set(self.rows)
        commits = self.commits()
        assert [each.batch_id for each in commits] == list(range(FILES)), "a batch was committed twice, or not"
        assert sum(each.rows for each in commits) == len(self.rows)


def kill_at(run: Run, steps: list[CommitStep]) -> None:
    for step in steps:
        run.job.kill_at(step, "local[2]")
        committed = len(run.commits())
        noted = len(list((run.folder / "checkpoint" / "commits").glob("[0-9]*")))
        # Of the batch at hand, and of it alone, Spark knows less than the table.
        assert committed - noted == (step >= CommitStep.COMMITTED), step


def test_killed_in_a_worker_in_the_commit_and_before_spark_notes_it_then_tasks_fail(tmp_path):
    """In the job that goes on from there a worker is killed with a file half handed over, and a task fails when all is
    written; and rows of each bucket are in both tasks.
    """
    run = Run(tmp_path)
    kill_at(run, [CommitStep.STAGED, CommitStep.COMMITTED, CommitStep.MEASURED])
    killed, left_by_then = len(run.commits()), unnamed(run)
    run.job.arm(CommitStep.STAGED, "die")
    run.job.arm(CommitStep.HANDED_OVER, "fail")
    run.job.finish("local[2,4]", "apart")
    assert run.job.reached(CommitStep.STAGED)
    assert run.job.reached(CommitStep.HANDED_OVER)
    run.check()
    assert all(each.stray_buckets > 0 for each in run.commits()[killed:])
    assert unnamed(run) > left_by_then, "what the failed attempts had written lies there"


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_killed_at_each_step_on_spark(tmp_path):
    run = Run(tmp_path)
    kill_at(run, [step for step in CommitStep if step != CommitStep.MARKED])
    run.job.finish("local[2]")
    run.check()


def unnamed(run: Run) -> set[str]:
    """Data files that no version of the table names."""
    table = run.folder / "table"
    versions = range(DeltaTable(str(table)).version() + 1)
    named = {path for version in versions for path in DeltaTable(str(table), version).file_uris()}
    return {str(file) for file in table.glob("_upstream_bucket=*/*.parquet")} - named


@contextlib.contextmanager
def two_machines(folder: Path) -> Iterator[str]:
    """The address of a cluster: Spark starts a second attempt of a task on another machine only, so its workers have
    two names.
    """
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    started: list[subprocess.Popen[bytes]] = []

    def daemon(kind: str, host: str, *more: str, says: str) -> str:
        log = folder / f"{kind}-{host}.log"
        command = [spark_class, f"org.apache.spark.deploy.{kind}", "--host", host, "--webui-port", "0", *more]
        with log.open("wb") as output:
            started.append(subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True))
        while (found := re.search(says, log.read_text())) is None:
            assert started[-1].poll() is None, log.read_text()
            time.sleep(0.1)
        return found.group(0)

    try:
        url = daemon("master.Master", "127.0.0.1", "--port", "0", says=r"spark://127\.0\.0\.1:\d+")
        for host in ("127.0.0.1", "127.0.0.2"):
            place = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / host))
            daemon("worker.Worker", host, *place, url, says="Successfully registered with master")
        yield url
    finally:
        for process in started:
            kill_session(process)


@pytest.mark.long
def test_a_task_that_runs_twice_at_once(tmp_path):
    """By speculation: the first attempt hangs with all written, the second one wins."""
    run = Run(tmp_path)
    run.job.arm(CommitStep.HANDED_OVER, "wait")
    with two_machines(tmp_path) as url:
        run.job.finish(url)
    assert run.job.reached(CommitStep.HANDED_OVER)
    run.check()
    assert unnamed(run)
