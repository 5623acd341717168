"""What is common to all shards: they run again, restart, refuse what is not theirs, and report."""

import polars as pl
import pyarrow as pa
import pytest
from kit.shards import BATCHES, CASES
from kit.tables import read_letters
from pyspark.cloudpickle import dumps, loads
from pyspark.sql import Row

from upstream.conf.errors import CheckpointError
from upstream.core.feedback.reports import read_reports
from upstream.operators.runtime.shard import REASON, DeadLetters, OperatorProcessor
from upstream.operators.shards import shard_class
from upstream.operators.state.store import DictStore

cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def run(case, store, number):
    """A batch by a shard that has just read its state: the shard, its rows and its report."""
    shard = case.shard(store)
    left, right, control = case.inputs(number)
    return shard, *shard.run(left, right, number, control)


def copied(store):
    again = DictStore()
    again.values = dict(store.values)
    return again


@cases
def test_a_batch_that_runs_again_gives_the_same_rows_and_report(case):
    store = DictStore()
    for number in range(len(BATCHES)):
        again = copied(store)
        _, *given = run(case, store, number)
        _, *repeated = run(case, again, number)
        assert given == repeated
        assert given[1].batch_id == number
        store = again if number % 2 else store


@cases
def test_counts_and_the_clock_survive_a_restart(case):
    store, before = DictStore(), dict.fromkeys((*shard_class(case.plan, versions=case.versions).counted, "now_us"), 0)
    for number in range(len(BATCHES) + 1):
        _, _, report = run(case, store, number)
        counted = {name: getattr(report, name) for name in before}
        waits = {"held", "due"}  # these fall again
        assert all(counted[name] >= before[name] for name in before.keys() - waits)
        before = counted
    assert report.state_bytes > 0
    assert report.now_us >= 100


@cases
def test_a_state_of_another_plan_or_version_is_refused(case):
    store = DictStore()
    run(case, store, 0)
    for other in case.others:
        with pytest.raises(CheckpointError, match="with another"):
            case.shard(store, other)
    head = store.values["head", 0]
    assert b'"layout": 2' in head
    store.values["head", 0] = head.replace(b'"layout": 2', b'"layout": 7')
    with pytest.raises(CheckpointError, match=r"another version .* layout 7, now 2"):
        case.shard(store)


@cases
def test_the_adapter_gives_what_the_shard_gives_and_writes_its_report_and_its_rows_aside(case, tmp_path):
    kind, adapted, store = shard_class(case.plan, versions=case.versions), DictStore(), DictStore()
    late, malformed = (DeadLetters(str(tmp_path / kind), "rows", kind) for kind in ("late", "malformed"))
    processor = loads(dumps(OperatorProcessor(kind, case.plan, str(tmp_path / "reports"), late, malformed)))
    for number in range(len(BATCHES)):
        left, right, control = case.inputs(number)
        rows = [Row(frame=bytearray(frame), control="right") for frame in right]
        rows += [Row(frame=bytearray(frame), control="left" if right else None) for frame in left]
        rows += [] if control is None else [Row(frame=None, control=control)]
        shard = case.shard(store)
        result, report = shard.run(left, right, -1, control)
        assert processor.batch(0, adapted, iter(rows)) == result
        assert adapted.values.keys() == store.values.keys()
        assert read_reports(str(tmp_path / "reports"), kind.report) == [report]
        if shard.late is not None:
            assert pl.read_delta(str(tmp_path / "late"))["reason"].to_list() == ["late"] * shard.late.num_rows
        if shard.malformed is not None:
            found = pl.read_delta(str(tmp_path / "malformed"))
            assert found["reason"].to_list() == shard.malformed.column(REASON).to_pylist()


def test_late_rows_of_an_input_are_dead_letters_once(tmp_path):
    store, place = DictStore(), DeadLetters(str(tmp_path), "rows", "late")
    late = [each for n in range(len(BATCHES)) if (each := run(CASES["intake"], store, n)[0].late) is not None]
    for attempt in range(2):
        for number, rows in enumerate(late):
            place.write(number, 0, rows)
        (letter,) = read_letters(tmp_path)
        assert (letter["origin"], letter["reason"], letter["_upstream_deleted"]) == ("rows", "late", False), attempt
        assert letter.keys() >= set(late[0].column_names) - {"_upstream"}


def test_late_and_malformed_rows_are_among_the_batches():
    for name in ("intake", "union", "reorder", "windows", "sessions", "newest rows of windows"):
        store = DictStore()
        aside = [run(CASES[name], store, number)[0] for number in range(len(BATCHES))]
        assert sum(0 if each.late is None else each.late.num_rows for each in aside) == 1, name
        assert any(each.malformed is not None for each in aside) == (name == "intake")


def test_sequence_numbers_go_on_after_a_restart():
    store, numbers = DictStore(), []
    for number in range(len(BATCHES)):
        _, result, _ = run(CASES["join"], store, number)
        if result is not None:
            numbers += pa.compute.struct_field(result.column("_upstream"), "seq").to_pylist()
    assert len(set(numbers)) > 2


def test_a_batch_that_is_run_again_appends_nothing(tmp_path):
    letters = DeadLetters(str(tmp_path), "/cp/upstream-reorder/0", "late")
    for batch in (7, 7, 8):
        letters.write(batch, 3, pa.table({"k": [batch]}))
    assert sorted(row["k"] for row in read_letters(tmp_path)) == [7, 8]


def test_bytes_that_are_no_text_are_escapes(tmp_path):
    broken = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\3\0\0\0"), pa.py_buffer(b"a\xffb")])
    nested = pa.StructArray.from_arrays([broken], ["x"])
    DeadLetters(str(tmp_path), "rows", "late").write(1, 0, pa.table({"s": broken, "n": nested, "b": [b"\xff"]}))
    (row,) = read_letters(tmp_path)
    assert (row["s"], row["n"], row["b"]) == ("a\\xffb", {"x": "a\\xffb"}, "/w==")
