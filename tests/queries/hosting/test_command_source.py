"""The source of commands: when it starts a batch, and whom it wakes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from upstream.queries.hosting import command_source
from upstream.queries.hosting.command_source import CommandSource
from upstream.queries.hosting.commands import TICK

LIMIT = ReadAllAvailable()


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(command_source.time, "monotonic", lambda: now[0])
    return now


def change(checkpoint, number):
    folder = checkpoint / "queries" / "changes"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{number:020d}.json").write_text("{}")


def reader_of(checkpoint):
    return CommandSource({"checkpoint": str(checkpoint), "slots": "5,-7"}).streamReader(None)


def test_the_first_batch_comes_even_without_a_query(tmp_path, clock):
    reader = reader_of(tmp_path)
    start = reader.initialOffset()
    first = reader.latestOffset(start, LIMIT)
    assert (start["version"], first["version"]) == (-1, 0)
    assert first == {"upstream_queries": str(tmp_path), "version": 0, "tick": 0, "served": None}
    clock[0] += 9
    assert reader.latestOffset(first, LIMIT) == first


def test_changes_are_looked_up_once_in_a_while(tmp_path, clock):
    reader = reader_of(tmp_path)
    first = reader.latestOffset(reader.initialOffset(), LIMIT)
    change(tmp_path, 1)
    change(tmp_path, 12)
    (tmp_path / "queries" / "changes" / ".13.json.tmp").write_text("")  # another one is being written
    clock[0] += 0.9
    assert reader.latestOffset(first, LIMIT) == first
    clock[0] += 0.2
    assert reader.latestOffset(first, LIMIT)["version"] == 12


def test_a_run_that_takes_what_is_there_ends(tmp_path, clock):
    change(tmp_path, 1)
    reader = reader_of(tmp_path)
    reader.prepareForTriggerAvailableNow()
    change(tmp_path, 2)
    clock[0] += 9
    first = reader.latestOffset(reader.initialOffset(), LIMIT)
    clock[0] += 9
    assert first["version"] == 1
    assert reader.latestOffset(first, LIMIT) == first


def test_a_moved_checkpoint_starts_no_batch_by_itself(tmp_path, clock):
    change(tmp_path, 3)
    start = {"upstream_queries": "/elsewhere", "version": 3, "tick": 2, "served": [1]}
    reader = reader_of(tmp_path)
    assert reader.latestOffset(start, LIMIT) == start
    change(tmp_path, 4)
    clock[0] += 1
    after = {"upstream_queries": str(tmp_path), "version": 4, "tick": 2, "served": None}
    assert reader.latestOffset(start, LIMIT) == after


def test_each_shard_is_woken(tmp_path):
    reader = reader_of(tmp_path)
    (part,) = reader.partitions(reader.initialOffset(), {"version": 1})
    rows = pa.Table.from_batches(list(reader.read(part))).to_pylist()
    assert rows == [{"slot": slot, "frame": None, "control": TICK} for slot in (5, -7)]
