"""The log followed step by step is the log read at once, with checkpoints or without; a gap is told."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from upstream.conf.errors import TableError
from upstream.delta_format.log import LiveFiles, LogReplay, commit_infos, entry_place
from upstream.storage.folder import TableFolder


@pytest.fixture
def table(tmp_path):
    path = str(tmp_path / "table")
    for at in range(6):
        rows = pa.table({"p": [at % 2], "n": [at]})
        properties = CommitProperties(app_transactions=[Transaction("odd" if at % 2 else "even", at)])
        write_deltalake(path, rows, mode="append", partition_by=["p"], commit_properties=properties)
    DeltaTable(path).optimize.compact()
    DeltaTable(path).delete("n = 3")
    return path


def state(path: str, version: int, log: LogReplay | None = None) -> Any:
    log = LogReplay(TableFolder(path)) if log is None else log
    log.follow(version)
    adds = {name: {key: each for key, each in add.items() if each is not None} for name, add in log.files.items()}
    return adds, log.metadata["id"], log.protocol["minReaderVersion"], dict(log.transactions)


def test_step_by_step_or_at_once_or_from_a_checkpoint(table):
    log, transactions = LogReplay(TableFolder(table)), LogReplay(TableFolder(table), transactions_only=True)
    last = DeltaTable(table).version()
    for version in range(last + 1):
        found = state(table, version, log)
        assert found == state(table, version)
        transactions.follow(version)
        assert (transactions.transactions, transactions.files) == (found[3], {})
        read = pa.RecordBatchReader.from_stream(DeltaTable(table, version).get_add_actions()).read_all()
        assert sorted(found[0]) == sorted(read.column("path").to_pylist())
        versions = {name: DeltaTable(table, version).transaction_version(name) for name in ("odd", "even")}
        assert found[3] == {name: number for name, number in versions.items() if number is not None}
    whole = {version: state(table, version) for version in (4, last)}
    DeltaTable(table, 4).create_checkpoint()
    for version in range(4):
        (Path(table) / entry_place(version)).unlink()
    assert state(table, 4) == whole[4]
    assert state(table, last) == whole[last]
    anew = LogReplay(TableFolder(table), transactions_only=True)
    anew.follow(last)
    assert (anew.transactions, anew.metadata) == (whole[last][3], {})
    DeltaTable(table).create_checkpoint()
    assert state(table, last) == whole[last]
    log.follow(4)  # backwards is from the beginning
    assert state(table, 4, log) == whole[4]


def test_a_gap_is_reported(table):
    (Path(table) / entry_place(3)).unlink()
    with pytest.raises(TableError, match="entry of version 3 is gone"):
        LogReplay(TableFolder(table)).follow(5)
    (Path(table) / entry_place(3)).write_text("{")
    with pytest.raises(TableError, match="entry of version 3 cannot be read"):
        LogReplay(TableFolder(table)).follow(5)
    shutil.rmtree(table)
    with pytest.raises(TableError, match="entry of version 0 is gone"):
        LogReplay(TableFolder(table)).follow(5)


def test_a_checkpoint_of_several_parts_counts_when_it_is_whole(table):
    last = DeltaTable(table).version()
    whole = state(table, last)
    DeltaTable(table).create_checkpoint()
    log = Path(table) / "_delta_log"
    name = log / f"{last:020d}.checkpoint.parquet"
    name.rename(log / f"{last:020d}.checkpoint.{1:010d}.{2:010d}.parquet")
    assert state(table, last) == whole
    (log / f"{0:020d}.json").unlink()
    with pytest.raises(TableError, match="version 0 is gone"):
        state(table, last)
    first = log / f"{last:020d}.checkpoint.{1:010d}.{2:010d}.parquet"
    pq.write_table(pq.read_table(first).slice(0, 0), log / f"{last:020d}.checkpoint.{2:010d}.{2:010d}.parquet")
    assert state(table, last) == whole
    first.write_bytes(b"broken")
    with pytest.raises(TableError, match=r"checkpoint .* cannot be read"):
        state(table, last)


def test_what_commits_say_is_as_it_was_written(table):
    folder, version = Path(table), DeltaTable(table).version()
    plain = [
        {name: each[name] for name in ("version", "operation", "timestamp")} for each in DeltaTable(table).history()
    ]
    found = commit_infos(DeltaTable(table))
    assert [{name: each[name] for name in ("version", "operation", "timestamp")} for each in found] == plain
    assert [each["version"] for each in commit_infos(DeltaTable(table), 2)] == [version, version - 1]
    assert [each["version"] for each in commit_infos(DeltaTable(table, 4), 2)] == [4, 3]
    exact = 15.689372150965433  # whose last digit delta-rs reads otherwise
    info = {"commitInfo": {"timestamp": 1, "operation": "WRITE", "figure": exact}}
    (folder / entry_place(version + 1)).write_text(json.dumps(info))
    assert commit_infos(DeltaTable(table), 1) == [{**info["commitInfo"], "version": version + 1}]
    DeltaTable(table, 4).create_checkpoint()
    for gone in range(4):
        (folder / entry_place(gone)).unlink()
    assert [each["version"] for each in commit_infos(DeltaTable(table))] == list(range(version + 1, 3, -1))


def test_paths_are_those_of_the_files_whatever_the_partition_is_called(tmp_path):
    rows = pa.table({"part": ["a b", "c%d", "a b"], "x": [1, 2, 3]})
    write_deltalake(str(tmp_path), rows, partition_by=["part"])
    found = LiveFiles.of(DeltaTable(str(tmp_path)))
    sizes = [(tmp_path / path).stat().st_size for path in found.paths]
    assert (found.sizes, sorted(found.rows)) == (sizes, [1, 2])
    assert sorted(found.partition("part")) == ["a b", "c%d"]


def test_a_table_without_partitions_or_files(tmp_path):
    write_deltalake(str(tmp_path), pa.table({"x": pa.array([], pa.int64())}))
    found = LiveFiles.of(DeltaTable(str(tmp_path)))
    assert (found.paths, found.sizes, found.rows) == ([], [], [])
