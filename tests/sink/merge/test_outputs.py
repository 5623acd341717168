"""Late and conflicting rows: counted, and put into the table of dead letters, once, wherever a process dies."""

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.invalid_text import not_utf_8
from kit.tables import read_letters

from upstream.conf.errors import OptionError, TableError
from upstream.sink.figures.summary import last_summary, read_summaries
from upstream.sink.spec.steps import CommitStep

from ..deaths import dying_at

ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(-2, 2), st.sampled_from("xy"), st.booleans()), max_size=30)


@pytest.fixture
def declared(make_sink):
    return make_sink(deadLetterRows="late, conflicts")


def put_aside(sink: Any, reason: str) -> list[dict[str, Any]]:
    return read_letters(sink.checkpoint / "dead_letters", reason)


def as_batch(sink: Any, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    marks = np.array([row[3] for row in rows], dtype=np.bool_)
    return sink.rows([row[:3] for row in rows], seq=[row[4] for row in rows], deleted=marks)


def test_nulls_numbers_and_nested_values_are_compared_as_they_are(make_sink):
    columns = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("f", pa.float64()), ("l", pa.list_(pa.int64()))])
    sink = make_sink(columns)
    rows = [(0, 1, float("nan"), [1, None]), (1, 1, None, None), (2, 1, 0.5, []), (3, 1, 1.0, [1]), (4, 1, 1.0, [1])]
    sink.batch(0, [sink.rows(rows)])
    assert sink.batch(1, [sink.rows(rows, seq=10)]).conflicts == 0
    others = [(0, 1, 0.0, [1, None]), (1, 1, None, []), (2, 1, 0.5, [0]), (3, 1, None, [1]), (4, 1, 1.0, [2])]
    assert sink.batch(2, [sink.rows(others, seq=20)]).conflicts == 5


def test_late_rows_are_counted_copied_and_take_part(declared):
    declared.write(0, [declared.rows([(1, 5, "a")]), declared.punctuation(10), declared.punctuation(3, feed="slow")])
    batch = [
        declared.rows([(2, 9, "late"), (2, 10, "in time"), (3, 1, "late, and new")], seq=10),
        declared.rows([(4, 4, "in time there"), (4, 2, "late there, too")], seq=20, feed="slow"),
        declared.rows([(5, -100, "a feed that promised nothing")], seq=30, feed="other"),
    ]
    declared.write(1, batch)
    late = put_aside(declared, "late")
    assert sorted((row["v"], row["origin"]) for row in late) == [
        ("late", "feed"),
        ("late there, too", "slow"),
        ("late, and new", "feed"),
    ]
    assert declared.latest()[3] == (1, "late, and new")
    declared.write(2, [declared.punctuation(12)])
    declared.write(3, [declared.rows([(9, 11, "late by now")], seq=40)])
    assert len(put_aside(declared, "late")) == 4


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32(), pa.float64()])
def test_late_by_any_kind_of_time(make_sink, kind):
    sink = make_sink(pa.schema([("k", pa.int64()), ("t", kind), ("v", pa.string())]), deadLetterRows="late")
    at = [
        pa.array([day], pa.int32()).cast(pa.date32()).cast(kind)[0].as_py()
        if not pa.types.is_floating(kind)
        else float(day)
        for day in (3, 5, 7)
    ]
    sink.batch(0, [sink.rows([(1, at[0], "a")]), sink.punctuation(at[1])])
    assert sink.batch(1, [sink.rows([(2, at[0], "late"), (3, at[1], "not"), (4, at[2], "not")])]).late == 1


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), rows=ROWS, keep=st.sampled_from(["latest", "latest 2"]))
def test_each_is_put_aside_once_wherever_a_process_dies(new_sink, data, rows, keep):
    numbered = [(*row, seq) for seq, row in enumerate(rows)]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    batches = [numbered[start:end] for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    sink = new_sink(history=keep, buckets="2")
    sink.options |= {"deadLetterRows": "late,conflicts", "deadLetters": f"{sink.folder}/letters"}
    bound, late = -100, Counter[tuple[Any, ...]]()
    for batch_id, batch in enumerate(batches):
        late.update((key, time, content) for key, time, content, _, _ in batch if time < bound)
        promise = data.draw(st.integers(-2, 2))
        bound = max(bound, promise)
        given_rows = [as_batch(sink, batch), sink.punctuation(promise)]
        with dying_at(
            data.draw(st.sampled_from([None, CommitStep.CHECKED, CommitStep.MAINTAINED, CommitStep.PUT_OUT]))
        ):
            sink.write(batch_id, given_rows)
        sink.write(batch_id, given_rows)
    summaries = [each for _, each in read_summaries(str(sink.path))]
    conflicts = sum(each.conflicts for each in summaries)
    found = Counter((row["k"], row["t"], row["v"]) for row in read_letters(sink.folder / "letters", "late"))
    assert found == late
    assert sum(each.late or 0 for each in summaries) == late.total()
    assert len(read_letters(sink.folder / "letters", "conflict")) == conflicts
    if keep == "latest":
        assert conflicts == modelled(batches)
    place = sink.folder / "letters"  # what died left no file
    named = len(DeltaTable(str(place)).file_uris()) if (place / "_delta_log").exists() else 0
    assert len(list(place.glob("*.parquet"))) == named


def modelled(batches: list[list[tuple[Any, ...]]]) -> int:
    """Conflicts: rows with the newest of their batch, which then meets the table's row and the table's deletion."""
    rows: dict[int, tuple[Any, ...]] = {}
    deletions: dict[int, tuple[Any, ...]] = {}
    conflicts = 0
    for batch in batches:
        for key in {row[0] for row in batch}:
            mine = [row for row in batch if row[0] == key]
            newest = max(mine, key=lambda row: (row[1], row[4]))
            conflicts += sum(conflict(newest, row) for row in mine)
            met = [held[key] for held in (rows, deletions) if key in held]
            conflicts += sum(conflict(newest, row) for row in met)
            if all((newest[1], newest[4]) > (row[1], row[4]) for row in met):
                if newest[3]:
                    rows.pop(key, None)
                    deletions[key] = newest
                else:
                    rows[key] = newest
                    deletions.pop(key, None)
    return conflicts


def conflict(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return one[1] == other[1] and (one[3] != other[3] or (not one[3] and one[2] != other[2]))


def test_an_output_given_up_still_gets_what_its_last_commit_named(declared):
    declared.write(0, [declared.rows([(1, 5, "a")]), declared.punctuation(10)])
    with dying_at(CommitStep.MAINTAINED):
        declared.write(1, [declared.rows([(2, 1, "late")], seq=10)])
    kept = declared.options
    declared.options = {name: value for name, value in kept.items() if name != "deadLetterRows"}
    declared.write(1, [declared.rows([(2, 1, "late")], seq=10)])
    declared.options = kept
    assert [row["v"] for row in put_aside(declared, "late")] == ["late"]


def test_others_append_at_the_same_moment(declared, make_sink, monkeypatch, tmp_path):
    shared = str(tmp_path / "letters")
    declared.options |= {"deadLetters": shared}
    other = make_sink(
        query_id="query-2", **{name: declared.options[name] for name in ("deadLetterRows", "deadLetters")}
    )
    other.folder /= "other"
    other.__post_init__()
    transact, raced = DeltaTable.create_write_transaction, []

    def race(*given_: Any, **more: Any) -> Any:
        if not raced:
            raced.append(True)
            other.write(0, [other.rows([(1, 5, "a"), (1, 5, "b")])])
        return transact(*given_, **more)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", race)
    declared.write(0, [declared.rows([(7, 5, "c"), (7, 5, "d")])])
    assert raced
    assert sorted(row["v"] for row in read_letters(shared, "conflict")) == ["a", "c"]


def test_a_failed_task_leaves_no_file(declared):
    with pytest.raises(Exception, match="null in the key"):
        declared.batch(0, [declared.rows([(1, 5, "a"), (1, 5, "b")]), declared.rows([(None, 5, "c")])])
    declared.write(0, [])
    assert not list((declared.checkpoint / "dead_letters").rglob("*.parquet"))


def test_outputs_that_cannot_be(make_sink, tmp_path):
    with pytest.raises(OptionError, match="path and deadLetters are both"):
        make_sink(deadLetterRows="late", deadLetters=str(tmp_path / "table")).writer()
    with pytest.raises(OptionError, match="deadLetterRows"):
        make_sink(deadLetterRows="late, or not").writer()
    DeltaTable.create(str(tmp_path / "taken"), pa.schema([("v", pa.int64())]))
    with pytest.raises(TableError, match="it is a table of others, without batch, origin, reason, payload"):
        make_sink(deadLetterRows="late", deadLetters=str(tmp_path / "taken")).writer()
    (tmp_path / "file").write_text("")
    sink = make_sink(deadLetterRows="conflicts", deadLetters=str(tmp_path / "file"))
    with pytest.raises((TableError, NotADirectoryError, OSError)):
        sink.write(0, [sink.rows([(1, 5, "a"), (1, 5, "b")])])


@pytest.mark.parametrize("column", ["k", "v"])
def test_rows_with_text_that_is_none_are_kept_out(make_sink, column):
    columns = pa.schema([("k", pa.string()), ("t", pa.int64()), ("v", pa.string())])
    sink = make_sink(columns, deadLetterRows="text", buckets="2")
    rows = [("a", 1, "x"), ("b", 1, "y"), ("c", 1, "z"), ("d", None, "no time, either")]
    sink.write(0, [not_utf_8(sink.rows(rows, deleted=np.array([False, False, True, False])), column, at=[0, 2, 3])])
    assert sink.latest() == {"b": (1, "y")}
    summary = last_summary(DeltaTable(str(sink.path)), "query-1")
    assert summary is not None
    assert (summary.rows, summary.updates, summary.applied, summary.no_text) == (4, 1, 1, 3)
    found = sorted(put_aside(sink, "text"), key=lambda row: row["_upstream_seq"])
    assert [row[column] for row in found] == ["\\xff"] * 3
    assert [(row["t"], row["_upstream_deleted"], row["origin"]) for row in found] == [
        (1, False, "feed"),
        (1, True, "feed"),
        (None, False, "feed"),
    ]
    sink.write(0, [not_utf_8(sink.rows(rows), column, at=[0, 2, 3])])  # a repeat
    sink.write(1, [not_utf_8(sink.rows([("e", 1, "x")], seq=9), column)])
    assert len(put_aside(sink, "text")) == 4
    assert sink.latest() == {"b": (1, "y")}
