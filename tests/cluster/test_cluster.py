"""The example job through spark-submit on a standalone cluster, the package travelling in the zip; and a worker that
dies.
"""

import os
import random
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import polars as pl
import pytest
from kit.hosted_job import check_hosted, write_hosted_feed
from kit.join_pairs import expected, meet_in_job, pairs_in, write_join_feed
from kit.places import ROOT
from kit.waiting import wait_for

import upstream.conf
from upstream.sink.figures.summary import read_summaries

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

KEYS, FILES, ROWS = 2_000, 12, 4_000
DEFAULTS = Path(upstream.conf.__file__).with_name("spark-defaults.conf")


@pytest.fixture
def feed(tmp_path):
    """CSV files whose rows are out of order within and between files."""
    chance = random.Random(7)
    folder = tmp_path / "feed"
    folder.mkdir()
    for number in range(FILES):
        times = [number * ROWS + chance.randrange(-3 * ROWS, 3 * ROWS) for _ in range(ROWS)]
        rows = (f"{chance.randrange(KEYS)},{1_000_000 + time},{number}-{line}\n" for line, time in enumerate(times))
        (folder / f"{number:03d}.csv").write_text("key,ms,value\n" + "".join(rows))
    return folder


def _expected(feed: Path) -> pl.DataFrame:
    """Newest by time; of equal times, the later in file order."""
    rows = pl.concat([pl.read_csv(path) for path in sorted(feed.iterdir())]).with_row_index("arrival")
    return rows.sort("ms", "arrival").group_by("key").last().select("key", "ms", "value").sort("key")


def _updates(table: Path) -> int:
    return sum(summary.updates for _, summary in read_summaries(str(table)))


def _table(path: Path) -> pl.DataFrame:
    return pl.read_delta(str(path)).select("key", "ms", "value").sort("key")


def test_workers_of_a_session_run_this_python(cluster, tmp_path):
    """What `upstream.session` has workers run is a program that has to be told the Python: daemons on other machines do
    not know it.
    """
    script = """
        import sys
        from upstream.conf.session import session
        spark = session(master=sys.argv[1], **{"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1"})
        print(*spark.sparkContext.parallelize([0, 0], 2).map(lambda _: sys.executable).collect())
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK", "UPSTREAM"))}
    command = [sys.executable, "-c", textwrap.dedent(script), cluster.url]
    done = subprocess.run(command, env=own, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.split() == [sys.executable] * 2


@pytest.mark.long
def test_a_join_on_two_workers(cluster, pyfiles, tmp_path):
    feed, table, checkpoint, log = (tmp_path / name for name in ("join_feed", "pairs", "checkpoint", "join.log"))
    left, right = (write_join_feed(feed, name, 2) for name in ("left", "right"))
    job = cluster.submit(
        "--properties-file", DEFAULTS, "--py-files", pyfiles, ROOT / "tests" / "fault" / "jobs.py",
        "join", feed, table, checkpoint, cluster.url, log=log,
    )  # fmt: skip
    try:
        assert job.wait() == 0, log.read_text()[-4000:]
    finally:
        cluster.end(job)
    application = max(path.name for path in cluster.folder.glob("work*/app-*"))
    ran = [path.read_text() for path in cluster.folder.glob(f"work*/{application}/*/stderr")]
    assert len(ran) == 2, "each worker has an executor"
    assert all("StateStore" in each for each in ran), "shards of the join ran on both"
    assert pairs_in(pl.read_delta(str(table))) == expected(left, right, meet_in_job, "full")


@pytest.mark.long
@pytest.mark.fault
@pytest.mark.timeout(1800)
def test_continuous_queries_on_two_workers_of_which_one_is_killed(cluster, pyfiles, tmp_path):
    """Queries come and go meanwhile, with their tables, and read a stored relation that gets another version."""
    feed, lake, checkpoint, log = (tmp_path / name for name in ("feed", "lake", "checkpoint", "queries.log"))
    rows = write_hosted_feed(feed, 4)
    changes = checkpoint / "queries" / "changes"

    def dropped() -> bool:
        return any('"kind": "drop"' in file.read_text() for file in changes.glob("*.json"))

    job = cluster.submit(
        "--properties-file", DEFAULTS, "--py-files", pyfiles, ROOT / "tests" / "fault" / "hosting_job.py",
        feed, lake, checkpoint, cluster.url, log=log,
    )  # fmt: skip
    try:
        while not dropped() and job.poll() is None:  # several batches pass until then: the test's own limit holds
            time.sleep(0.1)
        assert job.poll() is None, log.read_text()[-4000:]
        cluster.kill_worker()
        assert job.wait() == 0, log.read_text()[-4000:]
    finally:
        cluster.end(job)
        cluster.add_worker()
    application = max(path.name for path in cluster.folder.glob("work*/app-*"))
    ran = [path.read_text() for path in cluster.folder.glob(f"work*/{application}/*/stderr")]
    assert len(ran) == 2, "each worker has an executor"
    assert all("StateStore" in each for each in ran), "shards of the stages ran on both"
    check_hosted(lake, checkpoint, rows)


@pytest.mark.fault
def test_a_job_with_the_package_in_a_zip_is_right_though_a_worker_is_killed_in_mid_run(
    cluster, pyfiles, feed, tmp_path
):
    table, log, whole = tmp_path / "latest", tmp_path / "driver.log", _expected(feed)
    # The second half comes after the death: the job cannot end before it.
    later = sorted(feed.iterdir())[FILES // 2 :]
    for file in later:
        file.rename(tmp_path / file.name)
    job = cluster.submit(
        "--properties-file", DEFAULTS, "--py-files", pyfiles, ROOT / "examples" / "latest_job.py",
        "--from", feed, "--key", "key", "--event-time", "ms", "--to", table, "--option", "timeFormat=epoch_ms",
        "--option", "fileFormat=csv", "--option", f"maxRowsPerTrigger={ROWS}", log=log,
    )  # fmt: skip
    try:
        wait_for(lambda: len(read_summaries(str(table))) >= 3, job.poll, "the third commit")
        # The last application is this one.
        application = max(path.name for path in cluster.folder.glob("work*/app-*"))
        workers = {path.parts[-4] for path in cluster.folder.glob(f"work*/{application}/*/stderr")}
        assert len(workers) == 2, "both took part"
        cluster.kill_worker()
        for file in later:
            (tmp_path / file.name).rename(file)
        wait_for(lambda: _updates(table) >= FILES * ROWS, job.poll, "the last commit")
    finally:
        cluster.end(job)
    assert _updates(table) == FILES * ROWS
    assert _table(table).equals(whole)
