"""`upstream check`, `upstream repair` and `upstream keep` as a person runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from written import Sink

COMMAND = [sys.executable, "-c", "import sys; sys.argv[0] = 'upstream'; from upstream.cli.main import main; main()"]


def upstream(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=dict(os.environ), capture_output=True, text=True, check=False)


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    made = Sink(tmp_path)
    made.batch(0, [made.rows([(key, 10, "v") for key in range(40)])])
    return made


def test_from_wrong_to_right(sink: Sink, tmp_path: Path) -> None:
    right = upstream("check", "table", cwd=tmp_path)
    assert right.returncode == 0, right.stderr
    assert "40 rows in 4 buckets, 4 files; 0 deletions are remembered" in right.stdout
    assert right.stdout.splitlines()[-1].startswith("right: one row per key")
    gone = min(sink.live_files())
    (sink.path / gone).unlink()
    wrong = upstream("check", "table", cwd=tmp_path)
    assert wrong.returncode == 1
    assert f"wrong: bucket 0: the data file {gone} cannot be read: it is not there" in wrong.stdout
    assert "`upstream repair table --dry-run` says what can be mended" in wrong.stdout
    announced = upstream("repair", "table", "--dry-run", cwd=tmp_path)
    refused = upstream("repair", "table", cwd=tmp_path)
    assert refused.returncode == 1
    assert "--force" in refused.stderr, "rows that are lost go only if that is asked for"
    done = upstream("repair", "table", "--force", cwd=tmp_path)
    assert (announced.returncode, done.returncode) == (0, 0)
    found = [line.removeprefix("would be ") for line in announced.stdout.splitlines() if "done: " in line]
    assert found == [line for line in done.stdout.splitlines() if "done: " in line]
    assert "rows: 40 before, " in announced.stdout
    assert "is at version 1" in done.stdout, "what to restore"
    assert upstream("check", "table", cwd=tmp_path).returncode == 0
    assert upstream("repair", "table", cwd=tmp_path).stdout == "nothing to mend\n"


def test_a_source_and_misuse(sink: Sink, tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": [1, 2], "t": [10, 99]}), tmp_path / "input.parquet")
    found = upstream("check", "table", "--source", "input.parquet", cwd=tmp_path)
    assert found.returncode == 1
    assert "1 keys of the source are newer there, or only there (such as 2); repair does not mend this" in found.stdout
    none = upstream("check", "nothing", cwd=tmp_path)
    assert none.returncode == 1
    assert "there is no table at" in none.stderr
    assert "Traceback" not in none.stderr
    assert upstream("repair", "table", "--retention", "soon", cwd=tmp_path).returncode == 2


def test_another_keep(sink: Sink, tmp_path: Path) -> None:
    changed = upstream("keep", "table", "latest 3", cwd=tmp_path)
    assert (changed.returncode, changed.stdout) == (0, f"table keeps latest 3 from version {sink.version()} on\n")
    refused = upstream("keep", "table", "all", cwd=tmp_path)
    assert refused.returncode != 0
    assert "keeps latest 3, and would have to keep all" in refused.stderr
    assert "Traceback" not in refused.stderr
