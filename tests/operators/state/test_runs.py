import os
import shutil

import pyarrow as pa

from upstream.operators.state import runs
from upstream.operators.state.runs import LIMIT, RunFiles, of_worker


def run(value, rows=1000):
    return pa.table({"v": pa.array([value] * rows, pa.int64()), "s": pa.array(["x"] * rows)})


def test_another_process_maps_what_one_has_written(tmp_path):
    RunFiles(tmp_path / "runs", 1 << 20).put("a", run(1))
    other = RunFiles(tmp_path / "runs", 1 << 20)
    before = pa.total_allocated_bytes()
    found = other.get("a")
    assert found == run(1)
    assert pa.total_allocated_bytes() - before < 8000  # mapped, not copied
    assert other.get("b") is None
    assert [each.name for each in (tmp_path / "runs").iterdir()] == ["a.run"]


def test_a_dropped_file_is_gone_and_what_is_mapped_stays_valid(tmp_path):
    one, other = (RunFiles(tmp_path / "runs", 1 << 20) for _ in range(2))
    one.put("a", run(1))
    table = other.get("a")
    one.drop(["a", "b"])
    assert one.get("a") is None
    assert table == run(1)
    assert other.get("a") == run(1)


def test_files_used_longest_ago_go_when_there_are_too_many(tmp_path):
    size = run(0).nbytes
    files = RunFiles(tmp_path / "runs", 4 * size + size // 2)
    names = "abcdefg"
    for at, name in enumerate(names):
        files.put(name, run(at))
        if (tmp_path / "runs" / f"{name}.run").exists():
            os.utime(tmp_path / "runs" / f"{name}.run", (at, at))
    left = sorted(each.name for each in (tmp_path / "runs").iterdir())
    assert sum(os.path.getsize(tmp_path / "runs" / each) for each in left) <= 4 * size + size // 2
    assert "a.run" not in left
    assert "f.run" in left
    assert len(left) >= 2


def test_a_file_in_use_is_kept_for_one_that_is_not(tmp_path, monkeypatch):
    clock = [0]
    monkeypatch.setattr(runs.time, "monotonic", lambda: clock[0])
    files = RunFiles(tmp_path / "runs", 1 << 20)
    for name in "ab":
        files.put(name, run(0))
        assert files.get(name) is not None
        os.utime(tmp_path / "runs" / f"{name}.run", (1, 1))
    clock[0] = 31
    files.get("a")
    assert (tmp_path / "runs" / "a.run").stat().st_mtime > 1
    assert (tmp_path / "runs" / "b.run").stat().st_mtime == 1


def test_a_process_maps_no_more_than_the_limit(tmp_path):
    size = run(0).nbytes
    files = RunFiles(tmp_path / "runs", 2 * size)
    for at, name in enumerate("abcd"):
        RunFiles(tmp_path / "runs", 1 << 30).put(name, run(at))
        assert files.get(name) == run(at)
    assert files.get("a") == run(0)
    shutil.rmtree(tmp_path / "runs")
    assert [name for name in "abcd" if files.get(name) is not None] == ["a", "d"], "only these were mapped"


def test_without_a_disk_there_is_no_file_and_no_error(tmp_path):
    (tmp_path / "file").touch()
    files = RunFiles(tmp_path / "file" / "runs", 1 << 20)
    files.put("a", run(1))
    files.drop(["a"])
    assert files.get("a") is None


def test_a_worker_has_the_files_of_its_executor(tmp_path, monkeypatch):
    try:
        for folders, limit, there in (
            ("", None, False), (f"{tmp_path},/other", None, True), (str(tmp_path / "none"), None, False),
            (str(tmp_path), "0", False), (str(tmp_path), "3 MiB", True),
        ):  # fmt: skip
            monkeypatch.setenv("SPARK_LOCAL_DIRS", folders)
            monkeypatch.delenv(LIMIT, raising=False)
            if limit is not None:
                monkeypatch.setenv(LIMIT, limit)
            of_worker.cache_clear()
            found = of_worker()
            assert (found is not None) == there
            if found is not None:
                found.put("a", run(1))
                assert (tmp_path / "upstream_runs" / "a.run").exists()
        found.put("b", run(1, rows=1 << 20))
        assert not list((tmp_path / "upstream_runs").iterdir()), "more than 3 MiB"
    finally:
        of_worker.cache_clear()
