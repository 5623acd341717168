"""Which engine writes a batch, and what a table with deletion vectors is to others."""

import dataclasses
import json
import time
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import TableError
from upstream.delta_format.deletion_vectors import VECTORS, copy_of
from upstream.sink.admin.check import check_table
from upstream.sink.commit import sink_table
from upstream.sink.maintenance.runner import TableMaintenance
from upstream.sink.merge.engines import files_to_fold
from upstream.sink.spec.maintenance_rules import MaintenanceRules
from upstream.sink.table import table as engine_choice
from upstream.sink.table.table import Snapshot
from upstream.storage import folder as table_folder
from upstream.storage.folder import TableFolder

ENGINES = ("vectors",)


def vectors_of(sink: Any) -> dict[str, int]:
    read = pa.RecordBatchReader.from_stream(DeltaTable(str(sink.path)).deletion_vectors()).read_all().to_pylist()
    return {each["filepath"].partition("table/")[2]: each["selection_vector"].count(False) for each in read}


def protocol_of(sink: Any) -> tuple[int, int]:
    protocol = DeltaTable(str(sink.path)).protocol()
    return protocol.min_reader_version, protocol.min_writer_version


def test_the_protocol_is_raised_by_the_first_commit_that_marks_a_row(make_sink):
    sink = make_sink(buckets="1")
    sink.options = {**sink.options, "engine": "rewrite"}
    sink.batch(0, [sink.rows([(key, 1, "a") for key in range(100)])])
    sink.options = {**sink.options, "engine": "vectors"}
    sink.batch(1, [sink.rows([(key, 1, "a") for key in range(100, 102)])])  # meets nothing
    assert (protocol_of(sink), vectors_of(sink)) == ((1, 2), {})
    sink.batch(2, [sink.rows([(0, 2, "b")], seq=50)])
    table = DeltaTable(str(sink.path))
    assert protocol_of(sink) == (3, 7)
    assert table.protocol().reader_features == ["deletionVectors"]
    assert sorted(table.protocol().writer_features) == ["appendOnly", "deletionVectors", "invariants"]
    assert table.metadata().configuration["delta.enableDeletionVectors"] == "true"
    assert table.metadata().configuration["upstream.key"] == '["k"]'
    assert list(vectors_of(sink).values()) == [1]
    entry = [json.loads(line) for line in (sink.path / "_delta_log" / f"{sink.version():020d}.json").open()]
    again = [each["add"] for each in entry if each.get("add", {}).get("deletionVector")]
    assert [json.loads(each["stats"])["tightBounds"] for each in again] == [False]
    assert [json.loads(each["stats"])["numRecords"] for each in again] == [100]
    sink.batch(3, [sink.rows([(1, 2, "b")], seq=60)])
    assert list(vectors_of(sink).values()) == [2]
    sink.options = {**sink.options, "engine": "rewrite"}
    sink.batch(4, [sink.rows([(2, 2, "b")], seq=70)])
    assert not vectors_of(sink), "every reader can read such files again"


def test_by_itself_it_marks_rows_in_large_buckets_of_a_table_made_for_it(make_sink, monkeypatch, caplog):
    monkeypatch.setattr(engine_choice, "WORTH_MARKING", 100)
    sink = make_sink(buckets="1", engine="auto", expectedKeys="100")
    sink.batch(0, [sink.rows([(key, 1, "a") for key in range(99)])])
    assert protocol_of(sink) == (3, 7), "who reads it sees at once what it needs"
    features = DeltaTable(str(sink.path)).protocol().writer_features or ()
    assert set(features) == {"deletionVectors", "appendOnly", "invariants"}, "and nothing else"
    assert caplog.text.count("gets deletion vectors, since expectedKeys says") == 1
    sink.batch(1, [sink.rows([(0, 2, "b"), (99, 2, "b")], seq=50)])
    assert len(sink.live_files()) == 1
    sink.batch(2, [sink.rows([(0, 3, "c")], seq=60)])
    assert (list(vectors_of(sink).values()), len(sink.live_files())) == ([1], 2)
    assert not list((sink.folder / "index").rglob("*.tmp"))
    assert caplog.text.count("deletion vectors") == 1, "it is said once"


@pytest.mark.parametrize("expected", ["", "99"])
def test_a_table_never_gets_vectors_by_itself_and_reports_once_that_they_would_pay_off(
    make_sink, monkeypatch, caplog, expected
):
    monkeypatch.setattr(engine_choice, "WORTH_MARKING", 100)
    sink = make_sink(buckets="1", engine="auto", expectedKeys=expected)
    sink.batch(0, [sink.rows([(key, 1, "a") for key in range(99)])])
    sink.batch(1, [sink.rows([(0, 2, "b")], seq=200)])
    assert "engine=vectors" not in caplog.text, "a row below the bound"
    sink.batch(2, [sink.rows([(99, 2, "b")], seq=300)])
    for number in range(3, 6):
        sink.batch(number, [sink.rows([(number, 3, "c")], seq=number * 100)])
    assert (protocol_of(sink), vectors_of(sink), len(sink.live_files())) == ((1, 2), {}, 1)
    assert caplog.text.count("With engine=vectors, once") == 1
    # Asked for once, it goes on so.
    sink.options = {**sink.options, "engine": "vectors"}
    sink.batch(6, [sink.rows([(6, 4, "d")], seq=600)])
    assert vectors_of(sink)
    sink.options = {**sink.options, "engine": "auto"}
    sink.batch(7, [sink.rows([(7, 4, "d")], seq=700)])
    assert sum(vectors_of(sink).values()) == 2


def test_a_property_of_the_table_forbids_them(make_sink, monkeypatch, caplog):
    monkeypatch.setattr(engine_choice, "WORTH_MARKING", 100)
    sink = make_sink(buckets="1", engine="auto")
    sink.batch(0, [sink.rows([(key, 1, "a") for key in range(200)])])
    DeltaTable(str(sink.path)).alter.set_table_properties({"delta.enableDeletionVectors": "false"})
    for number in (1, 2):
        sink.batch(number, [sink.rows([(number, 2, "b")], seq=number * 1000)])
    assert not vectors_of(sink)
    assert "engine=vectors" not in caplog.text
    sink.options = {**sink.options, "engine": "vectors"}
    with pytest.raises(TableError, match="forbids deletion vectors"):
        sink.batch(3, [sink.rows([(3, 2, "b")], seq=5000)])
    assert sink.latest()[3] == (1, "a")
    # Nor are entries written here for a table with a feature that they do not heed.
    properties = {"delta.enableDeletionVectors": "true", "delta.appendOnly": "true"}
    DeltaTable(str(sink.path)).alter.set_table_properties(properties)
    with pytest.raises(TableError, match=r"delta\.appendOnly.*UNSET TBLPROPERTIES"):
        sink.batch(3, [sink.rows([(3, 2, "b")], seq=5000)])


def test_vectors_lie_where_trino_reads_them_and_are_put_back_when_vacuum_takes_them(make_sink):
    sink = make_sink(buckets="1", maintenance="off")
    sink.batch(0, [sink.rows([(key, 1, "a") for key in range(100)])])
    sink.batch(1, [sink.rows([(0, 2, "b")], seq=500)])
    rows, live = sink.latest(), {path for path in map(str, sink.path.rglob("*.bin")) if VECTORS in path}
    assert len(live) == 1
    (stored,) = {vector.place for vector in sink.log().vectors().values()}
    assert stored[:-20].isalnum(), "as Trino wants it, before the twenty letters of the id"
    DeltaTable(str(sink.path)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert {path for path in map(str, sink.path.rglob("*.bin")) if VECTORS in path} == live, "the usual one keeps them"
    table = DeltaTable(str(sink.path))
    gone = table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert any(VECTORS in path for path in gone), "if this fails, copies are needed no more"
    assert check_table(str(sink.path)).healthy, "whoever of us reads it puts it back"
    assert sink.latest() == rows
    DeltaTable(str(sink.path)).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    TableMaintenance(TableFolder(str(sink.path)), DeltaTable(str(sink.path)), MaintenanceRules()).run()
    assert sink.latest() == rows, "and so does maintenance"
    sink.batch(2, [sink.rows([(1, 2, "b")], seq=600)])
    assert sink.latest() == rows | {1: (2, "b")}


def test_copies_go_with_their_vectors(make_sink):
    sink = make_sink(buckets="1", maintenance="off")
    sink.batch(0, [sink.rows([(key, 1, "a") for key in range(100)])])
    for number in range(1, 6):
        sink.batch(number, [sink.rows([(number, 2, "b")], seq=number * 1000)])
    later = time.time_ns() // 1000 + 30 * 86_400_000_000
    for _ in range(2):
        TableMaintenance(
            TableFolder(str(sink.path)), DeltaTable(str(sink.path)), MaintenanceRules(1_000_000), lambda: later
        ).run(whole=True)
    used = {vector.path for vector in sink.log().vectors().values()}
    assert {str(found.relative_to(sink.path)) for found in sink.path.rglob("*.bin")} == used | set(map(copy_of, used))
    assert len(sink.latest()) == 100


def test_a_log_that_cannot_be_written_leaves_the_table_as_it_was(make_sink, monkeypatch):
    sink = make_sink(buckets="1")
    sink.batch(0, [sink.rows([(key, 1, "a") for key in range(100)])])
    before, files = sink.latest(), sink.files()

    def full(*given: Any) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(table_folder.os, "link", full)
        with pytest.raises(TableError, match="No space left"):
            sink.batch(1, [sink.rows([(0, 2, "b")], seq=50)])
    assert (sink.latest(), sink.files()) == (before, files)
    assert not list((sink.path / VECTORS).iterdir())
    assert sink.batch(1, [sink.rows([(0, 2, "b")], seq=50)]) is not None
    assert sink.latest() == before | {0: (2, "b")}


def test_a_checkpoint_is_made_now_and_then_and_read(make_sink, monkeypatch):
    monkeypatch.setattr(sink_table, "_CHECKPOINT_EVERY", 4)
    sink = make_sink(buckets="2", maintenance="off")
    expected = dict.fromkeys(range(40), (1, "a"))
    sink.batch(0, [sink.rows([(key, *row) for key, row in expected.items()])])
    for batch_id in range(1, 11):
        rows = dict.fromkeys(range(batch_id, batch_id + 3), (2, f"in {batch_id}"))
        sink.batch(batch_id, [sink.rows([(key, *row) for key, row in rows.items()], seq=100 * batch_id)])
        expected |= rows
        assert sink.latest() == expected
        if batch_id % 3 == 0:
            sink_table.load_table.__globals__["_cache"].clear()  # as in a new process
    assert len(list((sink.path / "_delta_log").glob("*.checkpoint.parquet"))) == 2


FILES = st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**6)), max_size=12)


@given(FILES, st.integers(0, 10**5))
def test_without_the_turn_the_work_follows_what_comes(files, fresh):
    live, rows = [each[0] for each in files], [sum(each) for each in files]
    chosen = files_to_fold(live, rows, fresh, turn=False)
    assert sum(live[at] for at in chosen) <= 16 * fresh + 4096
    assert chosen == sorted(set(chosen))
    left = [live[at] for at in range(len(live)) if at not in chosen]
    assert not chosen or not left or min(left) >= max(live[at] for at in chosen)


@given(FILES, st.integers(1, 10**5))
def test_at_the_turn_what_remains_grows_geometrically(files, fresh):
    live, rows = [each[0] for each in files], [sum(each) for each in files]
    chosen = files_to_fold(live, rows, fresh, turn=True)
    smaller = fresh
    for at in sorted(range(len(live)), key=live.__getitem__):
        if at not in chosen:
            assert live[at] > 4 * smaller, "so a bucket has few files, however long it is written to"
            assert 4 * (rows[at] - live[at]) < rows[at]
        smaller += live[at]


def test_one_file_alone_is_not_written_for_nothing():
    assert files_to_fold([5], [5], 0, turn=True) == []
    assert files_to_fold([5], [5], 0, turn=False) == []
    assert files_to_fold([5], [7], 0, turn=True) == [0]
    assert files_to_fold([], [], 10, turn=True) == []


@pytest.mark.parametrize("buckets", [2, 16, 64, 100])
@pytest.mark.parametrize("stride", [1, 2, 15, 16, 64])
def test_each_bucket_has_its_turn_however_many_versions_others_make(buckets, stride):
    """Where another writer commits between any two batches, a query sees every second version alone."""
    turns = min(buckets, 64)
    waits = dict.fromkeys(range(buckets), 0)
    for batch in range(turns * (turns + 2)):
        seen = dataclasses.replace(Snapshot.empty(), version=7 + stride * batch)
        chosen = {bucket for bucket in range(buckets) if seen.has_turn(bucket, buckets)}
        assert len(chosen) <= -(-buckets // turns), "no batch has to do many"
        waits = {bucket: 0 if bucket in chosen else wait + 1 for bucket, wait in waits.items()}
        assert max(waits.values()) <= turns * (turns + 1)
