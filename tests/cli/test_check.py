"""`upstream check`, `upstream repair` and `upstream keep` as a person runs them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kit.programs import run_command
from kit.sink import Sink


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    made = Sink(tmp_path)
    made.batch(0, [made.rows([(key, 10, "v") for key in range(40)])])
    return made


def test_from_wrong_to_right(sink: Sink, tmp_path: Path) -> None:
    right = run_command("check", "table", cwd=tmp_path)
    assert right.returncode == 0, right.stderr
    assert "40 rows in 4 buckets, 4 files; 0 deletions are remembered" in right.stdout
    assert right.stdout.splitlines()[-1].startswith("right: one row per key")
    gone = min(sink.live_files())
    (sink.path / gone).unlink()
    wrong = run_command("check", "table", cwd=tmp_path)
    assert wrong.returncode == 1
    assert f"wrong: bucket 0: the data file {gone} cannot be read: it is not there" in wrong.stdout
    assert "`upstream repair table --dry-run` says what can be mended" in wrong.stdout
    announced = run_command("repair", "table", "--dry-run", cwd=tmp_path)
    refused = run_command("repair", "table", cwd=tmp_path)
    assert refused.returncode == 1
    assert "--force" in refused.stderr, "rows that are lost go only if that is asked for"
    done = run_command("repair", "table", "--force", cwd=tmp_path)
    assert (announced.returncode, done.returncode) == (0, 0)
    found = [line.removeprefix("would be ") for line in announced.stdout.splitlines() if "done: " in line]
    assert found == [line for line in done.stdout.splitlines() if "done: " in line]
    assert "rows: 40 before, " in announced.stdout
    assert "is at version 1" in done.stdout, "what to restore"
    assert run_command("check", "table", cwd=tmp_path).returncode == 0
    assert run_command("repair", "table", cwd=tmp_path).stdout == "nothing to mend\n"


def test_a_source_and_misuse(sink: Sink, tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": [1, 2], "t": [10, 99]}), tmp_path / "input.parquet")
    found = run_command("check", "table", "--source", "input.parquet", cwd=tmp_path)
    assert found.returncode == 1
    assert "1 keys of the source are newer there, or only there (such as 2); repair does not mend this" in found.stdout
    none = run_command("check", "nothing", cwd=tmp_path)
    assert none.returncode == 1
    assert "there is no table at" in none.stderr
    assert "Traceback" not in none.stderr
    assert run_command("repair", "table", "--retention", "soon", cwd=tmp_path).returncode == 2


def test_another_keep(sink: Sink, tmp_path: Path) -> None:
    changed = run_command("keep", "table", "latest 3", cwd=tmp_path)
    assert (changed.returncode, changed.stdout) == (0, f"table keeps latest 3 from version {sink.version()} on\n")
    refused = run_command("keep", "table", "all", cwd=tmp_path)
    assert refused.returncode != 0
    assert "keeps latest 3, and would have to keep all" in refused.stderr
    assert "Traceback" not in refused.stderr
