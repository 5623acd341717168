import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kit.sink import Sink

from .in_process import command, done, refused


@pytest.fixture
def sink(tmp_path):
    made = Sink(tmp_path)
    made.batch(0, [made.rows([(key, 10, "v") for key in range(40)])])
    return made


def test_from_wrong_to_right(sink, tmp_path):
    right = done("check", sink.path)
    assert "40 rows in 4 buckets, 4 files; 0 deletions" in right
    assert right.splitlines()[-1].startswith("right:")
    gone = min(sink.live_files())
    (sink.path / gone).unlink()
    wrong = command("check", "table", cwd=tmp_path)
    assert wrong.returncode == 1
    assert f"wrong: bucket 0: the data file {gone} cannot be read" in wrong.stdout
    assert "`upstream repair table --dry-run`" in wrong.stdout
    announced = done("repair", sink.path, "--dry-run")
    assert "--force" in refused("repair", sink.path, code=1), "rows that are lost go only if that is asked for"
    mended = done("repair", sink.path, "--force")
    found = [line.removeprefix("would be ") for line in announced.splitlines() if "done: " in line]
    assert found == [line for line in mended.splitlines() if "done: " in line]
    assert "rows: 40 before, " in announced
    assert "is at version 1" in mended, "what to restore"
    done("check", sink.path)
    assert done("repair", sink.path) == "nothing to mend\n"


def test_a_source_misuse_and_another_keep(sink, tmp_path):
    pq.write_table(pa.table({"k": [1, 2], "t": [10, 99]}), tmp_path / "input.parquet")
    found = command("check", sink.path, "--source", tmp_path / "input.parquet")
    assert found.returncode == 1
    assert "1 keys of the source are newer there, or only there (such as 2)" in found.stdout
    refused("repair", sink.path, "--retention", "soon")
    kept = done("keep", "table", "latest 3", cwd=tmp_path)
    assert kept == f"table keeps latest 3 from version {sink.version()} on\n"
    assert "keeps latest 3, and would have to keep all" in refused("keep", sink.path, "all", code=1)
