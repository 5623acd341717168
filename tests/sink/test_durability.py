"""Power cuts at any system call, and faults of disk and log: the table holds exactly the committed batches."""

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from kit.places import ROOT
from kit.sink import Sink
from kit.tables import read_by_key

from upstream.conf.errors import OptionError, TableError, UpstreamError
from upstream.delta_format.log import entry_place
from upstream.sink.spec.options import parse_sink_options
from upstream.sink.table import table as table_module
from upstream.sink.table.log_entry import put_entry
from upstream.storage.atomic_write import write_whole
from upstream.storage.folder import TableFolder, sync_paths

from . import durable_job
from .crash_images import TRACED, Disk, moments
from .durable_job import BATCHES, table_after, write

OWN = {"key": "k", "eventTime": "t", "buckets": "2", "durability": "power"}


def traced(folder: Path, options: dict[str, str]) -> Path:
    """The system calls of a job that was let run to its end."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed (apt-get install strace)")
    trace, home = folder / "trace", folder / "home"
    home.mkdir()
    command = ["strace", "-f", "-y", "-xx", "-s", "10000000", "-e", f"trace={TRACED}", "-o", str(trace), sys.executable]
    command += [durable_job.__file__, str(home), json.dumps(options), str(folder / "acknowledged")]
    paths = os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    environment = {**os.environ, "PYTHONPATH": paths, "TMPDIR": str(folder)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if "Operation not permitted" in done.stderr and not trace.exists():
        pytest.skip("this machine lets no process be traced")
    assert done.returncode == 0, done.stderr[-3000:]
    return trace


def opened(table: Path) -> dict[int, tuple[int, str]]:
    if not (table / "_delta_log").exists() or not any((table / "_delta_log").glob("*.json")):
        return {}
    return read_by_key(table, "k", "t", "v")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["rewrite", "vectors"])
def test_a_power_cut_after_each_system_call(tmp_path, how):
    home, image_of = tmp_path / "home", tmp_path / "image"
    trace = traced(tmp_path, {**OWN, "engine": how, "indexLocation": str(tmp_path / "index")})
    seen: set[int] = set()
    acknowledged, images = 0, 0
    before: dict[str, object] = {"lost": {}, "torn": {}}
    disk = Disk(str(home))
    for disk, written in moments(trace, str(home)):
        acknowledged += len(written)
        for kind in ("lost", "torn"):
            image = disk.image(kind)
            name = hash((acknowledged, *sorted(image.items())))
            if name in seen:
                continue
            seen.add(name)
            images += 1
            disk.put(image, image_of)
            rows = opened(image_of / "table")
            assert rows in [table_after(acknowledged), table_after(acknowledged + 1)], (
                f"{kind}, {acknowledged} batches acknowledged, image {images}"
            )
            if rows != before[kind]:
                before[kind] = rows
                goes_on(image_of, {**OWN, "engine": how}, acknowledged + (rows == table_after(acknowledged + 1)))
            if acknowledged:
                kept = image.get(str(home / "query-1" / "upstream-sink" / "last-commits.json"))
                assert kept, "what the query knows of its last commit is whole"
                ((_, _, batch_id, _),) = json.loads(kept).values()
                assert batch_id >= acknowledged - 1
    assert acknowledged == BATCHES
    assert images > 10 * BATCHES
    kinds = {os.path.relpath(path, home / "table").split("/")[0] for path in disk.live}
    assert "_upstream_tombstones" in kinds, kinds
    assert ("_upstream_vectors" in kinds) is (how == "vectors")


def goes_on(folder: Path, options: dict[str, str], batches: int) -> None:
    """The query repeats the last batch that the table has, and takes the next one."""
    sink = Sink(folder, options={**options, "indexLocation": str(folder / "index")})
    for batch_id in range(max(batches - 1, 0), batches + 1):
        write(sink, batch_id)
    assert sink.latest() == table_after(batches + 1)


def test_without_it_a_power_cut_may_break_the_table(tmp_path):
    home = tmp_path / "home"
    trace = traced(tmp_path, {**OWN, "durability": "process"})
    *_, (disk, _) = moments(trace, str(home))
    disk.put(disk.image("lost"), tmp_path / "image")
    assert opened(tmp_path / "image" / "table") != table_after(BATCHES)


def test_the_disk_is_waited_for_in_order(tmp_path):
    home = tmp_path / "home"
    log = str(home / "table" / "_delta_log")
    entries: list[str] = []
    for disk, _ in moments(traced(tmp_path, OWN), str(home)):
        for path in [path for path in disk.live if path.startswith(log) and path.endswith(".json")]:
            if path in entries:
                continue
            entries.append(path)
            file = disk.live[path]
            assert file is not None
            assert file.synced == bytes(file.live), "the entry was on the disk before it had its name"
            for action in map(json.loads, file.synced.splitlines()):
                if "add" in action:
                    kept = disk.image("lost").get(str(home / "table" / action["add"]["path"]))
                    assert kept is not None
                    assert len(kept) == action["add"]["size"]
    assert len(entries) == BATCHES + 1


def test_an_entry_waits_for_the_files_that_it_names(tmp_path, monkeypatch):
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    for path in ("_delta_log", "part=1"):
        (tmp_path / path).mkdir()
    file = tmp_path / "part=1" / "a b"
    file.write_text("rows")
    assert put_entry(TableFolder(str(tmp_path), durable=True), 0, {}, [{"add": {"path": "part=1/a%20b"}}])
    assert file.stat().st_ino in synced
    assert synced.index(file.stat().st_ino) < synced.index((tmp_path / entry_place(0)).stat().st_ino)


def test_files_and_each_folder_above_them(tmp_path, monkeypatch):
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    root = tmp_path / "table"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file").write_text("")
    sync_paths(str(root), ["a/b/file"])
    expected = [root / "a" / "b" / "file", root / "a" / "b", root / "a", root, tmp_path]
    assert sorted(synced) == sorted(path.stat().st_ino for path in expected)
    assert synced[0] == expected[0].stat().st_ino, "the file first: its entry is to name what is there"
    with pytest.raises(FileNotFoundError):
        sync_paths(str(tmp_path), ["gone"])


@pytest.mark.parametrize("durable", [True, False])
def test_only_who_asks_waits(tmp_path, monkeypatch, durable):
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    folder = TableFolder(str(tmp_path), durable=durable)
    assert folder.put_new("entry", b"content")
    write_whole(folder, "value", lambda stream: stream.write(b"content"))
    folder.sync(["entry"])
    assert bool(synced) is durable
    given = {"path": str(tmp_path), "key": "k", "checkpointLocation": "/c", "durability": "power" if durable else ""}
    target = parse_sink_options({name: value for name, value in given.items() if value})
    assert target.folder.durable is target.checkpoint_folder.durable is durable
    with pytest.raises(OptionError, match="durability"):
        parse_sink_options({**given, "durability": "disk"})


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


def test_a_full_disk(tmp_path):
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
def test_permission_lost(sink, what):
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


def test_permission_lost_without_attributes(sink):
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
def test_a_corrupt_data_file(sink, spoil):
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


def test_a_corrupt_file_of_tombstones(sink):
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
        (3, lambda entry: entry.write_bytes(b""), "at version 3, does not hold the last commit of this query"),
    ],
    ids=["a gap", "an entry cut short", "an empty entry"],
)
@pytest.mark.parametrize("again", [False, True], ids=["running", "restarted"])
def test_a_broken_log(sink, version, spoil, says, again):
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
