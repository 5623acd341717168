"""Tables that are damaged in one way each: what check says, and that repair mends it and leaves all else."""

import itertools
import json
import os
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.transaction import AddAction

from upstream.conf.errors import OptionError, SchemaError, TableError
from upstream.conf.units import now_us
from upstream.delta_format.latest_table import BUCKET
from upstream.sink.admin import repair as repairing
from upstream.sink.admin.check import CheckReport, check_table
from upstream.sink.admin.erase import text_key
from upstream.sink.admin.repair import repair_table
from upstream.sink.merge import task_rows as spilling
from upstream.sink.table.contents import recorded_layout
from upstream.sink.table.tombstones import FOLDER

ENGINES = ("rewrite", "vectors")
KEYS = 40


@pytest.fixture
def full(sink):
    """38 rows in 4 buckets, two deleted keys; made just now, so that what the second batch replaced is kept."""
    sink.now_us = now_us()
    sink.batch(0, [sink.rows([(key, 10, f"v{key}") for key in range(KEYS)])])
    sink.batch(1, [sink.rows([(key, 11, None) for key in (3, 4)], seq=100, deleted=np.array([True, True]))])
    return sink


def texts(report: CheckReport) -> list[str]:
    return [finding.text for finding in report.findings]


def expected(*, without: set[int] = frozenset()) -> dict[int, tuple[int, str]]:  # pyright: ignore[reportArgumentType]
    return {key: (10, f"v{key}") for key in range(KEYS) if key not in {3, 4} | set(without)}


def live(sink: Any, bucket: int) -> str:
    (path,) = [path for path in sink.live_files() if path.startswith(f"{BUCKET}={bucket}/")]
    return path


def rows_of(sink: Any, bucket: int) -> pa.Table:
    rows = pq.ParquetFile(sink.path / live(sink, bucket)).read()
    deleted = pc.is_in(rows.column("k"), pa.array([3, 4]))
    return rows.filter(pc.invert(deleted))  # where they are, they are marked as dead


def add_file(sink: Any, bucket: int, rows: pa.Table) -> None:
    """What another writer might do."""
    path = f"{BUCKET}={bucket}/foreign-{bucket}.parquet"
    pq.write_table(rows, sink.path / path)
    size = os.path.getsize(sink.path / path)
    stats = json.dumps({"numRecords": rows.num_rows})
    table = DeltaTable(str(sink.path))
    adds: Any = [AddAction(path, size, {BUCKET: str(bucket)}, 0, True, stats)]
    table.create_write_transaction(adds, "append", table.schema(), [BUCKET], commit_properties=CommitProperties())


def mended(sink: Any, **options: Any) -> list[str]:
    """What a dry run announces, which changes nothing, is what is done; then the table is right."""
    path, version = str(sink.path), sink.version()
    before = sink.files()
    announced = repair_table(path, dry_run=True, **options)
    assert (sink.version(), sink.files()) == (version, before)
    repairs = repair_table(path, force=True, **options)
    same = ("done", "rows_before", "rows_after", "version_before")
    assert [getattr(repairs, name) for name in same] == [getattr(announced, name) for name in same]
    assert (repairs.rows_after, repairs.version_before) == (sink.table().num_rows, version)
    assert texts(check_table(path)) == list(repairs.left)
    assert repair_table(path).done == ()
    return list(repairs.done)


def test_a_table_that_is_right(full):
    report = check_table(str(full.path))
    assert report.healthy
    assert (report.rows, report.buckets, report.tombstones, report.version) == (38, 4, 2, 2)
    version = full.version()
    assert repair_table(str(full.path), orphans=True).done == ()
    assert full.version() == version


def test_keys_that_are_there_twice(full):
    held = rows_of(full, 2)
    older = held.set_column(1, "t", pa.array([5] * held.num_rows, pa.int64()))
    newer = held.slice(0, 1).set_column(1, "t", pa.array([12], pa.int64()))
    add_file(full, 2, pa.concat_tables([older, newer]))
    found = texts(check_table(str(full.path)))
    assert f"bucket 2: {held.num_rows + 1} rows more than the table keeps of their keys" in found
    assert "counts 38 rows" in found[-1]
    (done,) = mended(full)
    assert f"{held.num_rows + 1} rows go" in done
    key = held.column("k")[0].as_py()
    assert full.latest() == expected() | {key: (12, f"v{key}")}


def test_rows_in_a_bucket_that_is_not_theirs(full):
    moved = rows_of(full, 1)
    newer = moved.slice(0, 2).set_column(1, "t", pa.array([20, 20], pa.int64()))
    add_file(full, 3, pa.concat_tables([newer, moved.slice(2)]))
    report = check_table(str(full.path))
    assert f"bucket 3: {moved.num_rows} rows belong to other buckets (such as 1)" in texts(report)
    assert f"{moved.num_rows} rows are moved to their buckets" in mended(full)[0]
    keys = newer.column("k").to_pylist()
    assert full.latest() == expected() | {key: (20, f"v{key}") for key in keys}


def remove(path: Path) -> None:
    path.unlink()


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def exchange(path: Path) -> None:
    pq.write_table(pq.ParquetFile(path).read().slice(1), path)


@pytest.mark.parametrize(
    ("damage", "says"),
    [(remove, "it is not there"), (cut_short, "cannot be read"), (exchange, "bytes, and the log says")],
)
@pytest.mark.parametrize("more", [False, True], ids=["alone", "beside others"])
def test_a_file_that_is_damaged(full, damage, says, more):
    path = full.path / live(full, 0)
    lost = set(rows_of(full, 0).column("k").to_pylist())
    damage(path)
    (text,) = texts(check_table(str(full.path)))
    assert says in text
    if more:
        add_file(full, 1, rows_of(full, 2))  # misplaced, and there twice
    assert f"{len(lost)} rows are lost with it" in "".join(mended(full))
    assert path.exists() == (damage is not remove), "what is in it may be of use"
    assert full.latest() == expected(without=lost)
    # And what was lost can be written again.
    full.batch(2, [full.rows([(key, 10, f"v{key}") for key in range(KEYS)], seq=500)])
    assert full.latest() == expected()


@pytest.mark.parametrize("failing", range(1, 14))
@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), pa.ArrowInvalid("Timeout was reached")])
def test_a_file_that_cannot_be_read_for_a_moment_is_not_dropped(full, monkeypatch, failing, error):
    """One key is there twice, so there is something to mend; whichever file fails to open, once, no other row goes."""
    add_file(full, 2, rows_of(full, 2).slice(0, 1).set_column(1, "t", pa.array([5], pa.int64())))
    opened = pq.ParquetFile.__init__
    count = itertools.count(1)

    def once(self: Any, *given: Any, **more: Any) -> None:
        if next(count) == failing:
            raise error
        opened(self, *given, **more)

    version, message = full.version(), ""
    with monkeypatch.context() as patched:
        patched.setattr(pq.ParquetFile, "__init__", once)
        try:
            repair_table(str(full.path), force=True)
        except TableError as refused:
            message = str(refused)
    if full.version() == version:
        assert "nothing shows that it is damaged" in message
        assert "1 rows go" in mended(full)[0]
    assert full.latest() == expected()


def test_damage_that_nothing_proves_is_not_repaired(full):
    """Bytes in the middle of a file of the right size, with a whole footer: the disk may give others next time."""
    path = full.path / live(full, 0)
    content = bytearray(path.read_bytes())
    content[4:60] = b"\xff" * 56
    path.write_bytes(content)
    assert "cannot be read" in texts(check_table(str(full.path)))[0]
    with pytest.raises(TableError, match="nothing shows that it is damaged") as caught:
        repair_table(str(full.path), force=True)
    assert "move it away" in caught.value.hint
    path.unlink()
    assert "rows are lost with it" in mended(full)[1]


@pytest.mark.parametrize("how", ["gone", "overruled"])
def test_rows_that_are_no_duplicates_go_with_force_alone(full, how):
    if how == "gone":
        os.remove(full.path / live(full, 0))
    else:
        bucket, key = next(iter(deleted_keys(full).items()))
        add_file(full, bucket, rows_of(full, bucket).slice(0, 1).set_column(0, "k", pa.array([key], pa.int64())))
    version, files = full.version(), full.files()
    with pytest.raises(TableError, match="rows that are not duplicates") as caught:
        repair_table(str(full.path))
    assert "--force" in caught.value.expected
    assert (full.version(), full.files()) == (version, files)
    mended(full)


def test_a_repair_that_would_lose_rows_is_given_up(full, monkeypatch):
    held = rows_of(full, 2)
    add_file(full, 2, held.slice(0, 1))
    version, files = full.version(), full.files()
    monkeypatch.setattr(repairing, "_belonging", lambda *_: held.slice(0, 0))
    with pytest.raises(TableError, match=r"would leave \d+ rows, and at least 38 are right"):
        repair_table(str(full.path), force=True)
    assert (full.version(), full.files()) == (version, files)


def test_rows_that_a_deletion_overrules(full):
    bucket, key = next(iter(deleted_keys(full).items()))
    row = rows_of(full, bucket).slice(0, 1)
    add_file(full, bucket, row.set_column(0, "k", pa.array([key], pa.int64())))
    assert f"bucket {bucket}: 1 rows are older than a deletion of their key" in texts(check_table(str(full.path)))
    mended(full)
    assert full.latest() == expected()
    # A row that is newer than the deletion has every right to be there.
    full.batch(2, [full.rows([(3, 12, "alive")], seq=300)])
    assert check_table(str(full.path)).healthy


def test_deletions_that_cannot_be_read(full):
    paths = [path for path in full.files() if path.startswith(FOLDER)]
    os.remove(full.path / paths[0])
    found = texts(check_table(str(full.path)))
    assert "older rows could bring deleted keys back" in found[0]
    assert "are forgotten" in mended(full)[0]
    assert full.latest() == expected()
    for path in (full.path / FOLDER).glob("*.json"):
        path.unlink()
    with pytest.raises(TableError, match="list of the table's deletions is gone"):
        check_table(str(full.path))


def test_a_count_that_is_wrong(full):
    DeltaTable(str(full.path)).delete("k = 7")
    found = texts(check_table(str(full.path)))
    assert found == ["the summary of version 2 counts 38 rows, and the table has 37; commits since then: DELETE"]
    assert mended(full) == ["a count of 37 rows is recorded in place of 38"]


def test_a_log_that_is_damaged(full):
    table = DeltaTable(str(full.path))
    table.create_checkpoint()
    log = full.path / "_delta_log"
    (log / "_last_checkpoint").write_text("{")
    assert "_last_checkpoint cannot be read" in texts(check_table(str(full.path)))[0]
    assert mended(full) == ["a checkpoint of the log is written"]
    full.batch(2, [full.rows([(1, 99, "x")], seq=700)])
    os.remove(log / f"{0:020d}.json")
    os.remove(log / f"{2:020d}.json")
    (text,) = texts(check_table(str(full.path)))
    assert "the log lacks the entries of version 2: the table is whole" in text
    assert repair_table(str(full.path)).left == (text,)


def test_a_log_that_cannot_be_opened(full):
    os.remove(full.path / "_delta_log" / f"{1:020d}.json")
    with pytest.raises(TableError, match=r"cannot be read.*restore the missing or broken entry"):
        check_table(str(full.path))


def test_orphans_go_when_they_are_old(full):
    left = f"part-{uuid.uuid4()}.parquet"
    orphan, hidden = full.path / f"{BUCKET}=0" / left, full.path / FOLDER / f"{BUCKET}=0" / left
    mine = full.path / "mine.parquet"
    for path in (orphan, hidden, mine):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        os.utime(path, (1_000_000, 1_000_000))
    young = full.path / f"{BUCKET}=0" / "part-of-a-task-that-runs.parquet"
    young.write_bytes(b"x")
    assert check_table(str(full.path)).healthy
    assert repair_table(str(full.path)).done == ()
    done = mended(full, orphans=True)
    assert len(done) == 2
    assert not orphan.exists()
    assert not hidden.exists()
    assert young.exists() and mine.exists()
    assert full.latest() == expected()


def test_nothing_newer_is_lost(full, tmp_path, monkeypatch):
    monkeypatch.setattr(spilling, "_MOST_ROWS", 5)
    keys = np.arange(KEYS)
    given = pa.table({"v": keys.astype(str), "t": np.full(KEYS, 10), "k": keys})
    pq.write_table(given, tmp_path / "a.parquet")
    report = check_table(str(full.path), source=str(tmp_path / "a.parquet"))
    assert report.healthy
    assert report.compared == KEYS
    # A key is newer in the source, one is not in the table, one is newer than its deletion, one is none.
    more = pa.table({"v": ["", "", "", ""], "t": [11, 1, 12, 1], "k": pa.array([9, 77, 3, None], pa.int64())})
    write_deltalake(str(tmp_path / "delta"), pa.concat_tables([given, more]))
    report = check_table(str(full.path), source=str(tmp_path / "delta"))
    assert sum(int(text.split(": ")[1].split()[0]) for text in texts(report)) == 3
    shown = " ".join(texts(report))
    for key in ("9", "77", "3"):
        assert key in shown
    pq.write_table(given.drop_columns("t"), tmp_path / "b.parquet")
    with pytest.raises(SchemaError, match="has no column t"):
        check_table(str(full.path), source=str(tmp_path / "b.parquet"))
    with pytest.raises(TableError, match="cannot be read"):
        check_table(str(full.path), source=str(tmp_path / "none"))


def test_a_table_of_several_rows_per_key(make_sink, tmp_path):
    sink = make_sink(history="latest 2")
    sink.batch(0, [sink.rows([(key, time, "v") for key in range(9) for time in (1, 2, 3)])])
    pq.write_table(pa.table({"k": range(9), "t": [3] * 9}), tmp_path / "a.parquet")
    assert check_table(str(sink.path), source=str(tmp_path / "a.parquet")).healthy
    bucket = int(min(sink.live_files()).split("/")[0].partition("=")[2])
    held = pq.ParquetFile(sink.path / live(sink, bucket)).read()
    keys = len(set(held.column("k").to_pylist()))
    add_file(sink, bucket, held.set_column(1, "t", pa.array([9] * held.num_rows, pa.int64())))
    found = texts(check_table(str(sink.path)))
    assert f"bucket {bucket}: {2 * keys} rows more than the table keeps of their keys" in found
    mended(sink)


def test_a_table_of_all_rows(make_sink):
    sink = make_sink(history="all", key="")
    sink.batch(0, [sink.rows([(1, 1, "a"), (1, 1, "a")])])
    assert check_table(str(sink.path)).healthy
    with pytest.raises(OptionError, match="has no key"):
        check_table(str(sink.path), source=str(sink.path))
    with pytest.raises(OptionError, match="the table at here has no key"):
        text_key(recorded_layout(str(sink.path), {})[2], "here", ["1"])
    os.remove(sink.path / min(sink.live_files()))
    assert "rows are lost with it" in mended(sink)[1]


def deleted_keys(sink: Any) -> dict[int, int]:
    found: dict[int, int] = {}
    for path in sink.files():
        if path.startswith(FOLDER):
            bucket = int(path.removeprefix(FOLDER).split("/")[0].partition("=")[2])
            found[bucket] = pq.ParquetFile(sink.path / path).read(columns=["k"]).column("k")[0].as_py()
    return found
