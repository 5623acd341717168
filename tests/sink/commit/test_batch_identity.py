"""Which batch of which writer: a repeat changes nothing, and what is taken for one by its number alone is refused."""

import shutil
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from upstream.conf.errors import OptionError, TableError
from upstream.sink.commit.batch_identity import FINGERPRINT_PREFIX, Fingerprint
from upstream.sink.commit.batch_name import WRITE_OPTION, BatchName, Calls, RunningBatch, name_in
from upstream.sink.write_batch import batch_writer

ENGINES = ("rewrite", "vectors")


def plan(sink: Any, batch_id: int, offsets: str) -> None:
    """What Spark writes before a batch begins."""
    folder = sink.checkpoint / "offsets"
    folder.mkdir(exist_ok=True)
    (folder / str(batch_id)).write_text(f'v1\n{{"batchTimestampMs":{batch_id}}}\n{offsets}')


def test_a_checkpoint_put_back_from_a_copy_is_refused(sink):
    for batch in range(3):
        plan(sink, batch, f"up to {batch}")
        sink.batch(batch, [sink.rows([(batch, 1, "x")])])
        if batch == 0:
            shutil.copytree(sink.checkpoint, sink.folder / "copy")
    shutil.rmtree(sink.checkpoint)
    shutil.move(sink.folder / "copy", sink.checkpoint)
    plan(sink, 1, "up to 7")
    before = sink.version()
    with pytest.raises(TableError, match="batch 1 comes after batch 2") as caught:
        sink.batch(1, [sink.rows([(7, 1, "new")])])
    assert "checkpointLocation" in caught.value.hint
    assert sink.version() == before
    assert not sink.files() - sink.live_files() - sink.live_files(1) - sink.live_files(2), "what was staged is gone"


def test_a_checkpoint_one_batch_old_is_refused_by_its_offsets(sink):
    plan(sink, 0, "up to 3")
    sink.batch(0, [sink.rows([(1, 1, "a")])])
    plan(sink, 1, "up to 5")
    rows = sink.rows([(2, 1, "b")], seq=3)
    sink.batch(1, [rows])
    assert sink.batch(1, [rows]) is None  # a repeat, as Spark journals what a batch reads before it begins
    journal = sink.checkpoint / "offsets" / "1"
    # Offsets alone do not tell: those of Spark's files source are numbers of batches.
    for other in ("up to 8", journal.read_text().replace('"batchTimestampMs":1', '"batchTimestampMs":9')):
        journal.write_text(other)
        with pytest.raises(TableError, match=r"batch 1 .* other input"):
            sink.batch(1, [sink.rows([(2, 1, "b"), (3, 1, "lost without this")], seq=3)])
    assert sink.latest().keys() == {1, 2}


@pytest.mark.parametrize("missing", ["when it was written", "when it is repeated"])
def test_where_there_is_nothing_to_compare_the_number_tells(sink, missing):
    if missing == "when it is repeated":
        plan(sink, 0, "up to 3")
    sink.batch(0, [sink.rows([(1, 1, "a")])])
    if missing == "when it was written":
        plan(sink, 0, "up to 3")
    else:
        (sink.checkpoint / "offsets" / "0").unlink()
    assert sink.batch(0, [sink.rows([(1, 1, "a")])]) is None


def test_a_fingerprint_of_another_batch_proves_nothing(sink):
    """An earlier release has written in between, and left the fingerprint as it was."""
    plan(sink, 0, "up to 3")
    sink.batch(0, [sink.rows([(1, 1, "a")])])
    (sink.checkpoint / "offsets" / "0").unlink()
    sink.batch(1, [sink.rows([(1, 2, "b")])])
    app = FINGERPRINT_PREFIX + "query-1"
    table = DeltaTable(str(sink.path))
    number = table.transaction_version(app)
    assert number is not None
    assert Fingerprint.of_number(number).of_batch(1)
    assert not Fingerprint.of_number(number).of_batch(0)
    plan(sink, 1, "up to 5")
    assert sink.batch(1, [sink.rows([(1, 2, "b")])]) is None


def test_numbers_of_fingerprints_fit_a_transaction():
    for batch in (0, 1, 65_535, 65_536, 2**40):
        for offsets, columns in ((None, "[]"), ("", ""), ("x" * 1000, "columns")):
            made = Fingerprint.of(batch, offsets, columns)
            assert 0 <= made.number < 2**63
            assert Fingerprint.of_number(made.number) == made
            assert made.of_batch(batch)
            assert not made.of_batch(batch + 1)
            assert (made.offsets == 0) == (offsets is None)


def write(sink: Any, name: BatchName, rows: pa.RecordBatch, **options: str) -> None:
    """One call of ``write_batch`` in a ``foreachBatch``."""
    given = {"path": str(sink.path), **sink.options, **options, **name.options()}
    writer = batch_writer(given, sink.schema, overwrite=False)
    writer.commit([writer.write(iter([rows]))])


def of_query(number: int, call: int = 0, offsets: str | None = None) -> BatchName:
    return BatchName("query", number, of_query=True, call=call, offsets=offsets)


def test_two_writes_of_one_batch_are_both_applied_once(make_sink):
    plain = make_sink(system=False)
    deletes = make_sink(pa.schema([*plain.columns, ("gone", pa.bool_())]), system=False, deleteWhen="gone")
    for _ in range(2):  # and repeated
        write(plain, of_query(0, 0), plain.rows([(1, 10, "a"), (2, 10, "b")]))
        write(deletes, of_query(0, 1), deletes.rows([(2, 11, None, True)]))
        assert plain.latest() == {1: (10, "a")}
    assert plain.version() == 2
    # Names of the log: a batch that was committed before an upgrade is known after it.
    table = DeltaTable(str(plain.path))
    assert [table.transaction_version(name) for name in ("upstream-query", "upstream-query/2")] == [0, 0]


def test_a_death_between_the_two(make_sink):
    plain = make_sink(system=False, history="all", eventTime="t")
    write(plain, of_query(0, 0), plain.rows([(1, 10, "first")]))
    for _ in range(2):
        write(plain, of_query(0, 0), plain.rows([(1, 10, "first")]))
        write(plain, of_query(0, 1), plain.rows([(1, 10, "second")]))
        assert sorted(plain.table().column("v").to_pylist()) == ["first", "second"]


def test_a_repeat_in_another_order_is_refused_where_it_can_be_seen(make_sink):
    plain = make_sink(system=False)
    deletes = make_sink(pa.schema([*plain.columns, ("gone", pa.bool_())]), system=False, deleteWhen="gone")
    write(plain, of_query(0, 0), plain.rows([(1, 10, "a"), (2, 10, "b")]))
    write(deletes, of_query(0, 1), deletes.rows([(2, 11, None, True)]))
    write(plain, of_query(1, 0), plain.rows([(3, 10, "c")]))
    # Dies; the repeat begins with what was the second write.
    with pytest.raises(TableError, match="another order") as caught:
        write(deletes, of_query(1, 0), deletes.rows([(1, 12, None, True)]))
    assert "queryId" in caught.value.hint
    # A program that was changed meanwhile is no other order: its batch is in the table.
    wider = make_sink(pa.schema([*plain.columns, ("w", pa.int64())]), system=False, schemaEvolution="add")
    write(wider, of_query(1, 0), wider.rows([(3, 10, "c", 1)]))
    assert plain.latest().keys() == {1, 3}


def test_an_option_of_ours_is_refused_from_others(make_sink):
    plain = make_sink(system=False)
    given = {"path": str(plain.path), **plain.options, "txnAppId": "x", "txnVersion": "1", WRITE_OPTION: "what"}
    with pytest.raises(OptionError, match=f"{WRITE_OPTION}='what'"):
        batch_writer(given, plain.schema, overwrite=False)


def test_calls_of_a_batch_are_counted_where_they_succeed():
    calls = Calls()
    first = RunningBatch(of_query(0), "run")

    def made(batch: RunningBatch, table: str = "a", *, fails: bool = False) -> int:
        with calls.call(batch, table) as call:
            if fails:
                raise RuntimeError(call)
            return call

    assert made(first) == 0
    with pytest.raises(RuntimeError, match="1"):
        made(first, fails=True)
    assert made(first) == 1  # tried again
    assert made(first, "b") == 0
    assert made(RunningBatch(of_query(1), "run")) == 0
    assert made(RunningBatch(of_query(1), "run")) == 1
    assert made(RunningBatch(of_query(1), "after a restart")) == 0
    with calls.call(first, "a"), pytest.raises(OptionError, match="two writes of batch 0"):
        made(first)
    assert made(first) == 1


def test_writes_of_one_batch_are_numbered_alike(make_sink):
    sink = make_sink()
    sink.batch(0, [sink.rows([(9, 1, "x")], seq=500)])
    running = BatchName("query", 0, of_query=True, offsets="up to 3")
    given = {"queryId": "deletions", "batchId": "0"}
    other, _ = name_in(given, running)
    assert other is not None
    write(sink, running, sink.rows([(1, 10, "a")], seq=7))
    write(sink, running._replace(call=1), sink.rows([(1, 10, "earlier")], seq=6))
    write(sink, other, sink.rows([(1, 10, "earlier"), (2, 10, "b")], seq=[5, 8]))
    assert sink.latest() == {1: (10, "a"), 2: (10, "b"), 9: (1, "x")}
    assert sorted(sink.table().column("_upstream_seq").to_pylist()) == [500, 501 + 7, 501 + 8]


def test_a_batch_of_no_query_arrives_after_all_that_is_there(make_sink):
    sink = make_sink()
    sink.batch(0, [sink.rows([(1, 10, "stream")], seq=500)])
    given = {"path": str(sink.path), **sink.options}
    job = {"txnAppId": "nightly"}
    named = [("job 1", job | {"txnVersion": "1"}), ("job 2", job | {"txnVersion": "2"})]
    for value, name in [("unnamed", {}), ("again", {}), *named]:
        writer = batch_writer({**given, **name}, sink.schema, overwrite=False)
        writer.commit([writer.write(iter([sink.rows([(1, 10, value), (1, 10, "earlier")], seq=[1, 0])]))])
        assert sink.latest() == {1: (10, value)}
    sink.batch(1, [sink.rows([(1, 11, "stream")], seq=501)])
    assert sink.latest() == {1: (11, "stream")}
