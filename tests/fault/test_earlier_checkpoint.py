"""A checkpoint and tables that an earlier commit has made: the job resumes, or is refused in words."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kit.places import ROOT

PROGRAM = Path(__file__).with_name("earlier_job.py")
EARLIER_S = 3 * 3600
"""So much older than the head: an earlier state, not a step on the way to this one."""


def git(*command: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *command], capture_output=True, text=True, check=False)
    return done.stdout.strip()


@pytest.fixture
def earlier(tmp_path):
    """A folder whose `upstream` is the package as an earlier commit has it."""
    head_s = git("log", "-1", "--format=%ct")
    commit = head_s and git("rev-list", "-1", f"--before={int(head_s) - EARLIER_S}", "HEAD")
    if not commit:
        pytest.skip("the checkout has no commit that is three hours older than its head")
    package = tmp_path / "earlier" / "upstream"
    package.mkdir(parents=True)
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(package), "--exclude=tests", "--exclude=docs"], input=archive, check=True)
    (package / "pyspark_upstream").rename(package.parent / "pyspark_upstream")
    return package.parent


def results(folder: Path, path: Path | None = None) -> dict[str, object]:
    given = {**os.environ, **({} if path is None else {"PYTHONPATH": str(path)})}
    done = subprocess.run([sys.executable, PROGRAM], cwd=folder, env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def write(feed: Path, minutes: range) -> None:
    lines = [f"{minute % 3},2024-01-01T00:{minute:02}:00Z,{minute}" for minute in minutes]
    (feed / f"{minutes.start}.csv").write_text("\n".join(["k,t,v", *lines, ""]))


@pytest.mark.spark
@pytest.mark.fault
def test_a_job_of_an_earlier_commit_resumes_or_is_refused_in_words(tmp_path, earlier):
    feed = tmp_path / "feed"
    feed.mkdir()
    write(feed, range(30))
    assert results(tmp_path, earlier) == {
        "queue": [[0, 27], [1, 28], [2, 29]],
        "windows": [[key, n, "2024-01-01 00:00:00+00:00"] for key, n in ((0, 4), (1, 3), (2, 3))],
        "sql": [[0, 27], [1, 28], [2, 29], [0, 10], [1, 9]],
    }
    write(feed, range(30, 60))
    right = {
        "queue": [[0, 57], [1, 58], [2, 59]],
        "windows": [[key, n, "2024-01-01 00:30:00+00:00"] for key, n in ((0, 4), (1, 3), (2, 3))],
        "sql": [[0, 57], [1, 58], [2, 59], [0, 25], [1, 24]],
    }
    for part, result in results(tmp_path).items():
        assert result == right[part] or "What to do:" in str(result), f"{part}: {result}"
