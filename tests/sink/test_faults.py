"""Faults of disk and log: each raises an error with a hint and leaves nothing behind; readers see what they saw."""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from kit.sink import Sink

from upstream.conf.errors import TableError, UpstreamError
from upstream.sink.table import table as table_module


def rows(sink: Any, batch: int, count: int = 40) -> Any:
    return sink.rows([(key, batch * 10, f"v{batch}") for key in range(count)], seq=batch * 1000)


def fill(sink: Any, batches: int = 3) -> None:
    for batch in range(batches):
        sink.batch(batch, [rows(sink, batch)])


def says_what_to_do(error: BaseException) -> bool:
    return isinstance(error, UpstreamError) and "What to do: " in str(error)


@contextlib.contextmanager
def mounted(folder: Path, size: str) -> Iterator[None]:
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if made.returncode != 0:
        pytest.skip("a small disk cannot be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "2m"):
        sink = Sink(tmp_path / "disk")
        fill(sink, 1)
        before, files = sink.latest(), sink.files()
        noise = random.Random(1)
        big = sink.rows([(key, 50, noise.randbytes(800_000).hex()) for key in range(8)], seq=7000)
        with pytest.raises(TableError, match=r"cannot be written .*No space left on device") as caught:
            sink.batch(1, [big])
        assert says_what_to_do(caught.value)
        assert (sink.latest(), sink.files()) == (before, files)
        # A disk on which there is no room even for an entry of the log, a list of tombstones or a lease.
        (tmp_path / "disk" / "filler").write_bytes(b"")
        with (tmp_path / "disk" / "filler").open("r+b", buffering=0) as filler, contextlib.suppress(OSError):
            while True:
                filler.write(bytes(4096))
        with pytest.raises(UpstreamError) as full:
            sink.batch(1, [sink.rows([(1, 60, "x")], seq=9000)])
        assert says_what_to_do(full.value)
        assert sink.latest() == before
        (tmp_path / "disk" / "filler").unlink()
        sink.batch(1, [sink.rows([(1, 60, "x")], seq=9000)])
        assert sink.latest() == before | {1: (60, "x")}


@contextlib.contextmanager
def immutable(folder: Path) -> Iterator[None]:
    """No right to write, for root as well."""
    made = subprocess.run(["chattr", "+i", str(folder)], capture_output=True, check=False)
    if made.returncode != 0:
        pytest.skip("a folder cannot be made immutable here")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", str(folder)], check=True)


@pytest.mark.parametrize("what", ["_upstream_bucket=0", "_delta_log", "_upstream_tombstones", "."])
def test_permission_lost(sink: Any, what: str) -> None:
    fill(sink)
    sink.batch(3, [deleted(sink, 0, 100)])
    before = sink.latest()
    with immutable(sink.path / what):
        sink.lease = "1 minute"
        with pytest.raises(TableError, match="Operation not permitted") as caught:
            sink.batch(4, [rows(sink, 40), deleted(sink, 1, 500)])
        assert says_what_to_do(caught.value)
        assert sink.latest() == before
    sink.batch(4, [rows(sink, 40), deleted(sink, 1, 500)])
    assert len(sink.latest()) == 39


def deleted(sink: Any, key: int, time: int) -> Any:
    return sink.rows([(key, time, None)], seq=time * 1000, deleted=[True])


def test_permission_lost_without_attributes(sink: Any) -> None:
    """Where no folder can be made immutable: a file in the place of a bucket's folder."""
    fill(sink, 1)
    bucket = sink.path / "_upstream_bucket=0"
    shutil.move(bucket, sink.folder / "kept")
    bucket.write_text("")
    with pytest.raises(TableError) as caught:
        sink.batch(1, [rows(sink, 1)])
    assert says_what_to_do(caught.value)
    bucket.unlink()
    shutil.move(sink.folder / "kept", bucket)
    sink.batch(1, [rows(sink, 1)])
    assert set(sink.latest().values()) == {(10, "v1")}


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def blot(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    file.write_bytes(content)


@pytest.mark.parametrize(
    "spoil", [cut, blot, lambda file: file.write_text("no Parquet at all"), lambda file: file.write_bytes(b"")]
)
def test_a_corrupt_data_file(sink: Any, spoil: Callable[[Path], Any]) -> None:
    fill(sink)
    file = min(sink.live_files())
    copy = (sink.path / file).read_bytes()
    spoil(sink.path / file)
    version, files = sink.version(), sink.files()
    with pytest.raises(TableError, match=f"{file} .* cannot be read") as caught:
        sink.batch(3, [rows(sink, 3)])
    assert says_what_to_do(caught.value)
    assert (sink.version(), sink.files()) == (version, files)
    (sink.path / file).write_bytes(copy)
    sink.batch(3, [rows(sink, 3)])
    assert set(sink.latest().values()) == {(30, "v3")}


def test_a_corrupt_file_of_tombstones(sink: Any) -> None:
    fill(sink, 1)
    sink.batch(1, [deleted(sink, 0, 100)])
    (file,) = (sink.path / "_upstream_tombstones").glob("_upstream_bucket=*/*.parquet")
    cut(file)
    with pytest.raises(TableError, match=f"{file.name} .* cannot be read"):
        sink.batch(2, [rows(sink, 2)])
    assert len(sink.latest()) == 39


def cut_entry(entry: Path) -> None:
    entry.write_text(entry.read_text().rstrip("\n")[:-40])


@pytest.mark.parametrize(
    ("version", "spoil", "says"),
    [
        (2, Path.unlink, "the log of the table at .* cannot be read: .*gap"),
        (3, cut_entry, "the log of the table at .* cannot be read"),
        # As a machine leaves it that lost power. Others take it for a commit that changed nothing; the query knows
        # better.
        (3, lambda entry: entry.write_bytes(b""), "at version 3, does not hold this query's last commit"),
    ],
    ids=["a gap", "an entry cut short", "an empty entry"],
)
@pytest.mark.parametrize("again", [False, True], ids=["running", "restarted"])
def test_a_broken_log(sink: Any, version: int, spoil: Callable[[Path], Any], says: str, again: bool) -> None:
    fill(sink)
    entry = sink.path / "_delta_log" / f"{version:020d}.json"
    copy, files, reader = entry.read_bytes(), sink.files(), DeltaTable(str(sink.path), version=1)
    spoil(entry)
    if again:
        table_module._cache.clear()  # as another process would see the table
    with pytest.raises(TableError, match=says) as caught:
        sink.batch(3, [rows(sink, 3)])
    assert says_what_to_do(caught.value)
    found = reader.to_pyarrow_table().to_pylist()
    assert {(row["t"], row["v"]) for row in found} == {(0, "v0")}, "who reads an older version is not disturbed"
    # Nothing was made worse: with the entry back, all is there.
    entry.write_bytes(copy)
    assert sink.version() == 3
    assert sink.files() == files
    sink.batch(3, [rows(sink, 3)])
    assert set(sink.latest().values()) == {(30, "v3")}
