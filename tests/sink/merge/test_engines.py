"""Both engines are one table: whatever the key, and whichever of them writes a batch, it is the table of a plain
computation.
"""

from __future__ import annotations

import json
import tempfile
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.races import commit_between

from upstream.conf.errors import TableError
from upstream.delta_format.deletion_vectors import VECTORS, copy_of
from upstream.sink.admin.check import check_table
from upstream.sink.commit import commit as commit_module
from upstream.sink.commit import entry_commit
from upstream.sink.maintenance.runner import Upkeep
from upstream.sink.spec.maintenance_rules import MaintenanceRules
from upstream.sink.table import engine_choice, key_index
from upstream.storage import folder as table_folder
from upstream.storage.folder import TableFolder

ENGINES = ("vectors",)

KEYS: dict[str, tuple[list[tuple[str, pa.DataType]], Any]] = {
    "k": ([("k", pa.int32())], lambda n: (n - 3,)),
    "text": ([("text", pa.string())], lambda n: ("é" * n,)),
    "amount": ([("amount", pa.decimal128(20, 2))], lambda n: ((Decimal(n - 4) / 4).quantize(Decimal("0.01")),)),
    "raw": ([("raw", pa.binary())], lambda n: (bytes(range(n)),)),
    "half": ([("half", pa.float64())], lambda n: (n / 2,)),
    "a,b": ([("a", pa.int64()), ("b", pa.string())], lambda n: (n % 3, str(n // 3))),
    "both": ([("both", pa.struct([("x", pa.int8()), ("y", pa.string())]))], lambda n: ({"x": n % 3, "y": str(n)},)),
}
BATCH = st.tuples(
    st.sampled_from(["vectors", "vectors", "rewrite"]),
    st.sampled_from(["done", "done", "aborted", "repeated"]),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4), st.booleans()), min_size=1, max_size=10),
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    key=st.sampled_from(sorted(KEYS)),
    batches=st.lists(BATCH, min_size=1, max_size=8),
    tasks=st.integers(1, 3),
    timed=st.booleans(),
    few_hashes=st.booleans(),
)
def test_the_table_is_that_of_a_plain_computation(
    make_sink: Any, key: str, batches: list[Any], tasks: int, timed: bool, few_hashes: bool
) -> None:
    columns, value_of = KEYS[key]
    names = [name for name, _ in columns]
    hashes = key_index.key_hashes
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        if few_hashes:
            patched.setattr(key_index, "key_hashes", lambda *given: hashes(*given) % 3)
            patched.setattr("upstream.sink.merge.vectors_engine.key_hashes", lambda *given: hashes(*given) % 3)
        schema = pa.schema([*columns, ("t", pa.int64()), ("v", pa.string())])
        sink = make_sink(schema, key=key, time="t" if timed else "", buckets="2", indexLocation=f"{folder}/index")
        sink.folder = Path(folder)
        sink.__post_init__()
        model: dict[str, tuple[int, int, str | None]] = {}
        seq = 0
        for batch_id, (engine, fate, rows) in enumerate(batches):
            sink.options = {**sink.options, "engine": engine}
            numbered = [(number, time, seq + at, gone) for at, (number, time, gone) in enumerate(rows)]
            seq += len(rows)
            given = [_as_batch(sink, value_of, numbered[task::tasks]) for task in range(tasks)]
            given = [[batch] for batch in given if batch.num_rows]
            if fate == "aborted":
                sink.writer().abort(sink.tasks(*given), batch_id)
                continue
            summary = sink.batch(batch_id, *given)
            if fate == "repeated":
                assert sink.batch(batch_id, *given) is None
            for number, time, at, gone in numbered:
                held = model.get(str(number))
                if held is None or not timed or (time, at) > held[:2]:
                    model[str(number)] = (time, at, None if gone else f"row {at}")
            live = {str(value_of(int(number))): row for number, row in model.items() if row[2] is not None}
            if summary is not None:
                assert summary.keys == len(live)
            assert _rows(sink.table(), names) == {name: (row[0], row[2]) for name, row in live.items()}
        if (sink.path / "_delta_log").exists():
            query = QueryBuilder().register("t", DeltaTable(str(sink.path))).execute("SELECT * FROM t").read_all()
            assert _rows(pa.table(query), names) == _rows(sink.table(), names)
            assert _rows(pl.read_delta(str(sink.path)).to_arrow(), names) == _rows(sink.table(), names)


def _as_batch(sink: Any, value_of: Any, rows: list[Any]) -> pa.RecordBatch:
    return sink.rows(
        [(*value_of(number), time, None if gone else f"row {at}") for number, time, at, gone in rows],
        seq=[at for _, _, at, _ in rows],
        arrival_us=[1000 + at for _, _, at, _ in rows],
        deleted=np.array([gone for *_, gone in rows], dtype=np.bool_),
    )


def _rows(table: pa.Table, key: list[str]) -> dict[str, tuple[Any, ...]]:
    found = {
        str(tuple(row[name] for name in key)): (row["t"], row["v"])
        for row in table.select([*key, "t", "v"]).to_pylist()
    }
    assert len(found) == table.num_rows
    return found


def vectors_of(sink: Any) -> dict[str, int]:
    """Dead rows of each file that has any."""
    read = pa.RecordBatchReader.from_stream(DeltaTable(str(sink.path)).deletion_vectors()).read_all().to_pylist()
    return {each["filepath"].partition("table/")[2]: each["selection_vector"].count(False) for each in read}


def protocol_of(sink: Any) -> tuple[int, int]:
    protocol = DeltaTable(str(sink.path)).protocol()
    return protocol.min_reader_version, protocol.min_writer_version


def test_the_protocol_is_raised_by_the_first_commit_that_marks_a_row(make_sink: Any) -> None:
    """In a table that was made without them; one that is made for them has it from the start."""
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


def test_back_to_files_that_every_reader_can_read(make_sink: Any) -> None:
    sink = make_sink(buckets="1")
    sink.batch(0, [sink.rows([(key, 1, "a") for key in range(100)])])
    sink.batch(1, [sink.rows([(0, 2, "b")], seq=50)])
    assert vectors_of(sink)
    sink.options = {**sink.options, "engine": "rewrite"}
    sink.batch(2, [sink.rows([(1, 2, "b")], seq=60)])
    assert not vectors_of(sink)
    assert sink.latest() == dict.fromkeys(range(2, 100), (1, "a")) | dict.fromkeys(range(2), (2, "b"))


def test_by_itself_it_marks_rows_in_large_buckets_of_a_table_made_for_it(
    make_sink: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(engine_choice, "WORTH_MARKING", 100)
    sink = make_sink(buckets="1", engine="auto", expectedKeys="100")
    sink.batch(0, [sink.rows([(key, 1, "a") for key in range(99)])])
    assert protocol_of(sink) == (3, 7), "who reads it sees at once what it needs"
    assert features_of(sink) == {"deletionVectors", "appendOnly", "invariants"}, "and nothing else"
    assert caplog.text.count("gets deletion vectors, since expectedKeys says") == 1
    sink.batch(1, [sink.rows([(0, 2, "b"), (99, 2, "b")], seq=50)])
    assert len(sink.live_files()) == 1
    sink.batch(2, [sink.rows([(0, 3, "c")], seq=60)])
    assert (list(vectors_of(sink).values()), len(sink.live_files())) == ([1], 2)
    assert not list((sink.folder / "index").rglob("*.tmp"))
    assert caplog.text.count("deletion vectors") == 1, "it is said once"


@pytest.mark.parametrize("expected", ["", "99"])
def test_a_table_never_gets_vectors_by_itself_and_reports_once_that_they_would_pay_off(
    make_sink: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, expected: str
) -> None:
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


def test_a_property_of_the_table_forbids_them(
    make_sink: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
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


def test_vectors_lie_where_trino_reads_them_and_are_put_back_when_vacuum_takes_them(make_sink: Any) -> None:
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
    Upkeep(TableFolder(str(sink.path)), DeltaTable(str(sink.path)), MaintenanceRules()).run()
    assert sink.latest() == rows, "and so does maintenance"
    sink.batch(2, [sink.rows([(1, 2, "b")], seq=600)])
    assert sink.latest() == rows | {1: (2, "b")}


def test_copies_go_with_their_vectors(make_sink: Any) -> None:
    sink = make_sink(buckets="1", maintenance="off")
    sink.batch(0, [sink.rows([(key, 1, "a") for key in range(100)])])
    for number in range(1, 6):
        sink.batch(number, [sink.rows([(number, 2, "b")], seq=number * 1000)])
    later = time.time_ns() // 1000 + 30 * 86_400_000_000
    for _ in range(2):
        Upkeep(TableFolder(str(sink.path)), DeltaTable(str(sink.path)), MaintenanceRules(1_000_000), lambda: later).run(
            whole=True
        )
    used = {vector.path for vector in sink.log().vectors().values()}
    assert {str(found.relative_to(sink.path)) for found in sink.path.rglob("*.bin")} == used | set(map(copy_of, used))
    assert len(sink.latest()) == 100


def features_of(sink: Any) -> set[str]:
    return set(DeltaTable(str(sink.path)).protocol().writer_features or ())


@pytest.mark.parametrize("same_bucket", [True, False])
def test_an_entry_that_somebody_else_has_written_is_not_overwritten(
    make_sink: Any, monkeypatch: pytest.MonkeyPatch, same_bucket: bool
) -> None:
    """Both queries mark rows: the second to come looks again, and redoes its entry or refuses."""
    sink, other = make_sink(buckets="64"), make_sink(query_id="query-2", buckets="64")
    rows = [(key, 10, "a") for key in range(300)]
    sink.batch(0, [sink.rows(rows)])
    own, theirs = 1, 1 if same_bucket else 3
    results = sink.tasks([sink.rows([(own, 11, "mine")], seq=1000)])
    commit_between(monkeypatch, lambda: other.batch(0, [other.rows([(theirs, 12, "theirs")], seq=1000)]))
    expected = {row[0]: row[1:] for row in rows} | {theirs: (12, "theirs")}
    if same_bucket:
        with pytest.raises(TableError, match="changed by another writer"):
            sink.commit(results, 1)
    else:
        assert sink.commit(results, 1) is not None
        expected[own] = (11, "mine")
    assert sink.latest() == expected
    vectors = {place.name for place in (sink.path / VECTORS).iterdir()}
    assert len(vectors) == (1 if same_bucket else 2)  # what the lost attempt wrote is gone
    assert not list((sink.path / "_delta_log").glob(".*"))


def test_a_log_that_cannot_be_written_leaves_the_table_as_it_was(
    make_sink: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_feature_that_entries_here_do_not_heed_is_refused(make_sink: Any) -> None:
    sink = make_sink(buckets="1")
    sink.batch(0, [sink.rows([(key, 1, "a") for key in range(100)])])
    DeltaTable(str(sink.path)).alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(TableError, match=r"delta\.appendOnly.*engine=rewrite"):
        sink.batch(1, [sink.rows([(0, 2, "b")], seq=50)])


def test_a_checkpoint_is_made_now_and_then_and_read(make_sink: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_commit, "_CHECKPOINT_EVERY", 4)
    sink = make_sink(buckets="2", maintenance="off")
    expected = dict.fromkeys(range(40), (1, "a"))
    sink.batch(0, [sink.rows([(key, *row) for key, row in expected.items()])])
    for batch_id in range(1, 11):
        rows = dict.fromkeys(range(batch_id, batch_id + 3), (2, f"in {batch_id}"))
        sink.batch(batch_id, [sink.rows([(key, *row) for key, row in rows.items()], seq=100 * batch_id)])
        expected |= rows
        assert sink.latest() == expected
        if batch_id % 3 == 0:
            commit_module.load_table.__globals__["_cache"].clear()  # as in a new process
    assert len(list((sink.path / "_delta_log").glob("*.checkpoint.parquet"))) == 2
