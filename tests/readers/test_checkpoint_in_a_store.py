"""Checkpoints in an object store."""

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from kit.continuous import BUSES
from kit.registries import COUNTS

from upstream.conf.errors import CheckpointError
from upstream.core.feedback.checkpoint_layout import queue_folder
from upstream.core.feedback.reports import read_values, remove_values, write_value
from upstream.hosting.edits import define_stream, opened, record
from upstream.hosting.journal import Change, Journal
from upstream.hosting.registry import registry_at
from upstream.sink.commit.last_commit import ITS_TABLE, read_last_commits
from upstream.storage.atomic_write import write_whole
from upstream.storage.folder import TableFolder

from .stored import SECRETS, StoredSink, as_printed


def begun(sink: StoredSink, query_id: str = "query-1") -> StoredSink:
    """The sink with its checkpoint beside the table, as Spark leaves it when the query starts."""
    address = f"s3a://lake/{sink.folder.name}_checkpoint"
    sink.options = {**sink.options, "checkpointLocation": address}
    TableFolder(address, sink.storage).write("metadata", json.dumps({"id": query_id}).encode())
    return sink


def checkpoint_of(sink: StoredSink) -> TableFolder:
    return TableFolder(sink.options["checkpointLocation"], sink.storage)


def test_a_query_with_its_checkpoint_in_the_store(stored):
    sink = begun(stored())
    sink.checkpoint.joinpath("metadata").unlink()
    sink.batch(0, [sink.rows([(1, 10, "a"), (2, 10, "b")])])
    assert sink.commit(sink.tasks([sink.rows([(1, 10, "a")])]), 0) is None, "a repeat"
    sink.batch(1, [sink.rows([(1, 20, "c")], seq=10)])
    assert sink.latest() == {1: (20, "c"), 2: (10, "b")}
    assert read_last_commits(checkpoint_of(sink))[ITS_TABLE].batch_id == 1
    assert not list(sink.checkpoint.iterdir())


def test_a_checkpoint_that_cannot_be_read_is_reported_with_the_options_that_count(stored):
    sink = begun(stored())
    results = sink.tasks([sink.rows([(1, 10, "a")])])
    checkpoint_of(sink).remove(["metadata"])
    with pytest.raises(CheckpointError, match=r"metadata.*storage\.") as caught:
        sink.commit(results, 0)
    assert not [secret for secret in SECRETS.values() if secret in as_printed(caught.value)]


def test_reports_are_replaced_listed_and_removed(stored, monkeypatch):
    """By the environment alone, as operators in tasks find the store."""
    sink = stored()
    for name, value in sink.storage.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)
    folder = queue_folder(f"s3a://lake/{sink.folder.name}_reports")
    assert read_values(folder, "shard-") == []
    for number in (1, 0, 2):
        write_value(folder, f"shard-{number}.json", {"n": -1})
        write_value(folder, f"shard-{number}.json", {"n": number})
    write_value(folder, "served-1.json", {"n": 9})
    assert [value["n"] for value in read_values(folder, "shard-")] == [0, 1, 2]
    remove_values(folder, "shard-", "shard-2.json")
    assert [value["n"] for value in read_values(folder, "s")] == [9, 2]


def test_a_writer_that_fails_leaves_the_last_one(stored):
    place = checkpoint_of(begun(stored()))
    write_whole(place, "a", lambda stream: stream.write(b"one"))

    def half(stream: object) -> None:
        stream.write(b"o")  # type: ignore[attr-defined]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_whole(place, "a", half)
    assert place.read("a") == b"one"


def test_the_registry_of_queries_is_in_the_store(stored, monkeypatch):
    """With several writers. The server has no TLS, which no variable of the environment permits."""
    sink = stored()
    monkeypatch.setattr("upstream.hosting.journal.TableFolder", partial(TableFolder, storage=sink.storage))
    checkpoint = f"s3a://lake/{sink.folder.name}_queries"
    with pytest.raises(CheckpointError, match="no registry"):
        registry_at(checkpoint, 0)
    opened(checkpoint, "s3a://lake/tables", None)
    define_stream(checkpoint, BUSES)

    def register(number: int) -> None:
        record(checkpoint, Change("create", f"q{number % 6}", COUNTS))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(register, range(12)))
    journal = Journal(checkpoint)
    assert journal.version() == 6
    record(checkpoint, Change("drop", "q3"))
    assert journal.version() == 7
    found = registry_at(checkpoint, 7)
    assert found.active.keys() == {"q0", "q1", "q2", "q4", "q5"}
    assert found.active["q0"].location == "s3a://lake/tables/q0"
    assert not journal.started()
    TableFolder(checkpoint, sink.storage).write("offsets/0", b"v1")
    assert journal.started()
