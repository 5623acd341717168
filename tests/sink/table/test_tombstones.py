"""Deletions: against a plain model, over crashes and repeats, seen by readers that know nothing of them."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from kit.deaths import ProcessDied
from kit.splits import split

from upstream.conf.errors import OptionError, TableError
from upstream.core.rows.sort_keys import ordered
from upstream.sink.admin.check import check_table
from upstream.sink.commit.commit import BatchCommit
from upstream.sink.merge.bucket import DELETIONS
from upstream.sink.merge.feed_bounds import bound_values
from upstream.sink.spec.options import Retention
from upstream.sink.table.tombstones import APP_ID, FOLDER, forget_below

ENGINES = ("rewrite", "vectors")

UTC = dt.timezone.utc


def marked(sink: Any, rows: list[tuple[Any, ...]], deleted: list[bool] | None = None, **more: Any) -> pa.RecordBatch:
    """Rows with their marks; all are tombstones unless said."""
    return sink.rows(rows, deleted=np.array([True] * len(rows) if deleted is None else deleted, dtype=np.bool_), **more)


def buried(sink: Any) -> dict[Any, Any]:
    """Key and time of each tombstone that the table remembers."""
    number = DeltaTable(str(sink.path)).transaction_version(APP_ID)
    if not number:
        return {}
    listed = json.loads((sink.path / FOLDER / f"{number}.json").read_text())
    rows = [row for path in listed.values() for row in pq.read_table(sink.path / path).to_pylist()]
    assert len(rows) == len({row["k"] for row in rows})
    return {row["k"]: row["t"] for row in rows}


def hidden(sink: Any) -> set[str]:
    """Files below the hidden folder."""
    folder = sink.path / FOLDER
    return {str(path.relative_to(sink.path)) for path in folder.rglob("*") if path.is_file()}


ROWS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-3, 3), st.booleans()), max_size=40)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), rows=ROWS, timed=st.booleans())
def test_the_table_is_what_a_plain_model_says(
    make_sink: Any, data: st.DataObject, rows: list[tuple[str, int, bool]], timed: bool
) -> None:
    """Any order of arrival, any split into batches and tasks, batches repeated and attempts that die: deleted keys are
    not there.
    """
    numbered = [(key, time, f"{key}{seq}", seq, gone) for seq, (key, time, gone) in enumerate(rows)]
    batches = split(data, data.draw(st.permutations(numbered)) if timed else numbered)
    columns = pa.schema([("k", pa.string()), ("t", pa.int64()), ("v", pa.string())])
    with tempfile.TemporaryDirectory() as folder:
        sink = make_sink(columns, time="t" if timed else "", buckets="2")
        sink.folder = Path(folder)
        sink.__post_init__()
        model: dict[str, tuple[Any, ...]] = {}
        for batch_id, batch in enumerate(batches):
            before = {key for key, row in model.items() if not row[4]}
            for row in sorted(batch, key=lambda row: row[3]):
                order = (row[1], row[3]) if timed else row[3]
                held = model.get(row[0])
                if held is None or order > ((held[1], held[3]) if timed else held[3]):
                    model[row[0]] = row
            tasks = split(data, data.draw(st.permutations(batch)))
            given_rows = [[as_batch(sink, part) for part in split(data, task)] for task in tasks]
            died = data.draw(st.sampled_from(["not", "before the commit", "after the commit"]))
            if died != "not":
                die(sink, given_rows, batch_id, committed=died == "after the commit")
            summary = sink.batch(batch_id, *given_rows)
            assert sink.batch(batch_id, *given_rows) is None
            expected = {row[0]: row[1:3] for row in model.values() if not row[4]}
            if model:
                assert sink.latest() == expected
            if summary is not None:
                assert died != "after the commit"
                assert sink.table().num_rows == summary.keys == len(expected)
                assert summary.updates == summary.delivered + summary.superseded == len(batch)
                assert summary.deleted == len(before - set(expected))
                assert summary.delivered + summary.absent <= len({row[0] for row in batch})
            if not timed:
                assert not any(Path(path).suffix for path in hidden(sink))
        # Every other file that an attempt wrote is gone.
        if (sink.path / "_delta_log").exists():
            number = DeltaTable(str(sink.path)).transaction_version(APP_ID) or 0
            listed = json.loads((sink.path / FOLDER / f"{number}.json").read_text()) if number else {}
            assert hidden(sink) == ({f"{FOLDER}{number}.json", *listed.values()} if number else set())


def as_batch(sink: Any, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    return marked(
        sink,
        [row[:3] for row in rows],
        [row[4] for row in rows],
        seq=[row[3] for row in rows],
        arrival_us=[1_000 + row[3] for row in rows],
    )


def die(sink: Any, given_rows: list[list[pa.RecordBatch]], batch_id: int, *, committed: bool) -> None:
    """An attempt that fails at its very last step, or as soon as the commit is made."""
    made = BatchCommit._transact

    def crash(*given: Any) -> bool:
        if committed:
            assert made(*given)
        raise ProcessDied

    BatchCommit._transact = crash  # type: ignore[method-assign]
    try:
        sink.batch(batch_id, *given_rows)
    except ProcessDied:
        pass
    finally:
        BatchCommit._transact = made  # type: ignore[method-assign]


def test_a_deletion_obeys_the_order_of_times(sink: Any) -> None:
    sink.batch(0, [sink.rows([(1, 10, "a"), (2, 10, "b")])])
    summary = sink.batch(1, [marked(sink, [(1, 20, None)], seq=10)])
    assert sink.latest() == {2: (10, "b")}
    assert (summary.updates, summary.delivered, summary.deleted, summary.absent, summary.keys) == (1, 1, 1, 0, 1)
    assert summary.staleness.max == 2.0
    summary = sink.batch(2, [sink.rows([(1, 15, "older")], seq=20)])
    assert sink.latest() == {2: (10, "b")}
    assert (summary.delivered, summary.older, summary.superseded) == (0, 1, 1)
    summary = sink.batch(3, [sink.rows([(1, 21, "revived")], seq=30)])
    assert sink.latest() == {1: (21, "revived"), 2: (10, "b")}
    assert (summary.delivered, summary.deleted) == (1, 0)
    summary = sink.batch(4, [marked(sink, [(1, 20, None)], seq=40)])
    assert (summary.delivered, summary.older) == (0, 1)
    assert sink.latest() == {1: (21, "revived"), 2: (10, "b")}


def test_a_deletion_of_what_is_not_there_is_remembered(sink: Any) -> None:
    summary = sink.batch(0, [marked(sink, [(1, 20, None)])])
    assert (summary.updates, summary.delivered, summary.superseded, summary.deleted, summary.absent) == (1, 0, 1, 0, 1)
    assert summary.staleness is None
    summary = sink.batch(1, [sink.rows([(1, 19, "older"), (2, 1, "b")], seq=10)])
    assert (summary.delivered, summary.older) == (1, 1)
    assert sink.latest() == {2: (1, "b")}


def test_equal_times_go_to_the_later_arrival(sink: Any) -> None:
    sink.batch(0, [sink.rows([(1, 10, "a"), (2, 10, "b"), (3, 10, "c")], seq=[5, 6, 7])])
    sink.batch(1, [marked(sink, [(1, 10, None), (2, 10, None), (3, 10, None)], seq=[4, 9, 7])])
    assert sink.latest() == {1: (10, "a")}
    sink.batch(2, [sink.rows([(2, 10, "sooner"), (3, 10, "later")], seq=[8, 10])])
    assert sink.latest() == {1: (10, "a"), 3: (10, "later")}


def test_without_a_time_nothing_has_to_be_remembered(make_sink: Any) -> None:
    sink = make_sink(pa.schema([("k", pa.int64()), ("v", pa.string())]), time="")
    sink.batch(0, [sink.rows([(1, "a"), (2, "b")])])
    # The row of the key arrived before its tombstone, in another task.
    tasks = [sink.rows([(1, "x")], arrival_us=[400])], [marked(sink, [(1, None)], seq=1, arrival_us=[500])]
    summary = sink.batch(1, *tasks)
    assert (summary.updates, summary.delivered, summary.deleted, summary.stray_buckets) == (2, 1, 1, 1)
    assert sink.latest() == {2: ("b",)}
    assert DeltaTable(str(sink.path)).transaction_version(APP_ID) == 0
    assert hidden(sink) == set()
    sink.batch(2, [sink.rows([(1, "back")], seq=2)])
    assert sink.latest() == {1: ("back",), 2: ("b",)}


def test_a_table_without_deletions_has_no_folder_for_them(sink: Any) -> None:
    for batch_id in range(3):
        sink.batch(batch_id, [sink.rows([(1, batch_id, "a")], seq=batch_id)])
    assert not (sink.path / FOLDER).exists()


def test_a_bucket_of_which_no_row_is_left(sink: Any) -> None:
    sink.batch(0, [sink.rows([(key, 10, "a") for key in range(20)])])
    summary = sink.batch(1, [marked(sink, [(key, 11, None) for key in range(20)], seq=100)])
    assert (summary.deleted, summary.keys) == (20, 0)
    assert sink.live_files() == set()
    assert sink.latest() == {}
    summary = sink.batch(2, [sink.rows([(3, 12, "b"), (4, 10, "older")], seq=200)])
    assert (summary.keys, sink.latest()) == (1, {3: (12, "b")})


@pytest.mark.parametrize("first", [True, False])
def test_rows_and_tombstones_of_a_key_in_two_tasks(sink: Any, first: bool) -> None:
    sink.batch(0, [sink.rows([(0, 10, "base"), (1, 10, "base")])])
    rows = [sink.rows([(0, 20, "a"), (1, 40, "a"), (2, 5, "new"), (3, 5, "new")], seq=100)]
    gone = [marked(sink, [(0, 30, None), (1, 30, None), (2, 6, None), (3, 4, None)], seq=200)]
    summary = sink.batch(1, *((rows, gone) if first else (gone, rows)))
    assert sink.latest() == {1: (40, "a"), 3: (5, "new")}
    assert (summary.updates, summary.delivered, summary.deleted, summary.absent, summary.keys) == (8, 3, 1, 1, 2)
    assert buried(sink) == {0: 30, 2: 6}
    assert sink.files() >= sink.live_files()
    # Nothing is left of what the tasks wrote for the buckets that were merged once more.
    deletion_files = {path for path in sink.files() if path.startswith(DELETIONS)}
    assert len(deletion_files) == 1
    assert sink.files() - hidden(sink) - deletion_files == sink.live_files() | sink.live_files(1)


def test_tombstones_are_dropped_when_a_row_has_overtaken_them(make_sink: Any) -> None:
    sink = make_sink(buckets="1")
    sink.batch(0, [marked(sink, [(1, 10, None), (2, 10, None)])])
    sink.batch(1, [sink.rows([(1, 20, "back")], seq=10)])
    assert buried(sink) == {1: 10, 2: 10}  # a batch without deletions does not write them anew
    sink.batch(2, [marked(sink, [(3, 10, None)], seq=20)])
    assert buried(sink) == {2: 10, 3: 10}
    sink.batch(3, [marked(sink, [(2, 12, None)], seq=30)])
    assert buried(sink) == {2: 12, 3: 10}
    assert len(hidden(sink)) == 2  # the list and one file


def test_a_deletion_is_forgotten_only_when_the_low_watermark_is_far_enough_beyond(make_sink: Any) -> None:
    columns = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us", "UTC")), ("v", pa.string())])
    sink = make_sink(columns, buckets="1", tombstoneRetention="1 hour")

    def at(minute: int) -> dt.datetime:
        return dt.datetime(2024, 1, 1, tzinfo=UTC) + dt.timedelta(minutes=minute)

    sink.batch(0, [marked(sink, [(1, at(0), None), (2, at(1), None)]), sink.punctuation(at(60))])
    sink.batch(1, [marked(sink, [(3, at(70), None)], seq=10), sink.punctuation(at(61))])
    assert buried(sink) == {1: at(0), 2: at(1), 3: at(70)}  # nothing lies more than an hour behind 60
    sink.batch(2, [marked(sink, [(4, at(70), None)], seq=20)])
    assert buried(sink) == {2: at(1), 3: at(70), 4: at(70)}
    sink.batch(3, [sink.rows([(1, at(0), "older"), (2, at(0), "older")], seq=30)])
    assert sink.latest() == {1: (at(0), "older")}
    # What another query's feeds have promised says nothing of this one's.
    other = make_sink(columns, buckets="1", tombstoneRetention="1 ms", query_id="query-2")
    other.batch(0, [marked(other, [(5, at(70), None)])])
    assert buried(sink) == {2: at(1), 3: at(70), 4: at(70), 5: at(70)}


KINDS = [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32(), pa.int16(), pa.int64(), pa.float32(), pa.float64()]


@given(
    kind=st.sampled_from(KINDS),
    mark=st.integers(-20_000, 20_000),
    kept=st.integers(0, 5_000),
    time=st.integers(-25_000, 25_000),
)
@example(kind=pa.date32(), mark=0, kept=1, time=-1)
def test_how_far_back_is_remembered(kind: pa.DataType, mark: int, kept: int, time: int) -> None:
    """The unit is a day for dates, a second for instants, one for numbers."""
    unit_us = {"date32[day]": 86_400_000_000}.get(str(kind), 1_000_000)
    numeric = not (pa.types.is_timestamp(kind) or pa.types.is_date(kind))
    scale = 1_000_000 if pa.types.is_timestamp(kind) else 1
    plain = pa.array([mark * scale, time * scale], pa.int32() if kind == pa.date32() else pa.int64())
    column = pa.chunked_array([plain.cast(kind)])
    (bound, _), (_, at) = bound_values(column), ordered(column)
    edge = forget_below(bound, Retention(number=kept) if numeric else Retention(duration_us=kept * unit_us), kind)
    assert edge is not None
    assert (at < edge) == (time < mark - kept)
    assert forget_below(None, None, kind) is None
    week = forget_below(bound, None, kind)
    assert (
        week is None
        if numeric
        else week is not None and (at < week) == (time * unit_us < mark * unit_us - 7 * 86_400_000_000)
    )


@pytest.mark.parametrize(
    ("kind", "time", "given_retention", "message"),
    [
        (pa.int64(), "t", "1 hour", "is a duration"),
        (pa.timestamp("us", "UTC"), "t", "3600", "is a number"),
        (pa.int64(), "", "3600", "no time column"),
        (pa.int64(), "t", "-1", "is not a duration"),
        (pa.int64(), "t", "soon", "is not a duration"),
    ],
)
def test_a_retention_that_does_not_fit_is_refused(
    make_sink: Any, kind: pa.DataType, time: str, given_retention: str, message: str
) -> None:
    sink = make_sink(pa.schema([("k", pa.int64()), ("t", kind)]), time=time, tombstoneRetention=given_retention)
    with pytest.raises(OptionError, match=message):
        sink.writer()


def test_no_reader_sees_a_deleted_key_and_vacuum_keeps_what_is_remembered(sink: Any, engine: str) -> None:
    sink.batch(0, [sink.rows([(key, 10, "a") for key in range(8)])])
    sink.batch(1, [marked(sink, [(key, 20, None) for key in (1, 5)], seq=10)])
    path = str(sink.path)
    DeltaTable(path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    assert sink.files() - hidden(sink) == sink.live_files()
    if engine == "vectors":  # this VACUUM takes them although they are in use: no reader shows deleted rows meanwhile
        with pytest.raises(Exception, match="upstreamvectors"):
            sink.latest()
        assert check_table(path).healthy
    live = [0, 2, 3, 4, 6, 7]
    assert sorted(sink.latest()) == live
    if engine == "rewrite":
        dataset = DeltaTable(path).to_pyarrow_dataset()
        assert dataset is not None
        assert duckdb.sql("SELECT k FROM dataset ORDER BY k").fetchall() == [(key,) for key in live]
    assert pl.scan_delta(path).select("k").sort("k").collect()["k"].to_list() == live
    assert buried(sink) == {1: 20, 5: 20}
    sink.batch(2, [sink.rows([(1, 19, "older"), (5, 21, "newer")], seq=20)])
    assert sorted(sink.latest()) == sorted([*live, 5])


def test_restoring_an_earlier_version_keeps_the_deletions(make_sink: Any) -> None:
    sink, other = make_sink(), make_sink(query_id="query-2")
    sink.batch(0, [sink.rows([(1, 10, "a"), (2, 10, "b")])])
    sink.batch(1, [marked(sink, [(1, 20, None)], seq=10)])
    DeltaTable(str(sink.path)).restore(1)
    assert sorted(sink.latest()) == [1, 2]
    other.batch(0, [other.rows([(1, 19, "older"), (2, 11, "b2")], seq=20)])
    assert sink.latest() == {1: (10, "a"), 2: (11, "b2")}
    other.batch(1, [other.rows([(1, 21, "newer")], seq=30)])
    assert sink.latest() == {1: (21, "newer"), 2: (11, "b2")}


@pytest.mark.parametrize("keep", ["latest", "latest 2"])
@pytest.mark.parametrize("time", [20, 15])
@pytest.mark.parametrize("tasks", [1, 2])
def test_a_replayed_deletion_takes_the_row_away_that_a_restore_brought_back(
    make_sink: Any, keep: str, time: int, tasks: int
) -> None:
    """Whatever its number: a new checkpoint may read its input in another order. The later of two deletions stays the
    one that is remembered.
    """
    sink, other = (make_sink(keep=keep, buckets="1", query_id=f"query-{number}") for number in (1, 2))
    sink.batch(0, [sink.rows([(1, 10, "a"), (2, 10, "b"), (3, 10, "c")])])
    sink.batch(1, [marked(sink, [(1, 20, None), (3, 20, None)], seq=10)])
    DeltaTable(str(sink.path)).restore(1)
    replayed = [[marked(other, [(1, time, None)], seq=3)], [other.rows([(5, 1, "e")], seq=4)]]
    summary = other.batch(0, *(replayed if tasks == 2 else [[*replayed[0], *replayed[1]]]))
    assert (summary.deleted, summary.delivered, summary.keys) == (1, 2, 3)
    assert other.latest() == {2: (10, "b"), 3: (10, "c"), 5: (1, "e")}, "what the batch says nothing of stays as it is"
    assert buried(other) == {1: 20, 3: 20}
    assert other.batch(1, [other.rows([(1, 19, "older")], seq=30)]).older == 1
    other.batch(2, [other.rows([(3, 11, "older"), (6, 2, "f")], seq=40)])
    assert other.latest() == {2: (10, "b"), 3: (10, "c"), 5: (1, "e"), 6: (2, "f")}
    assert other.batch(3, [other.rows([(3, 21, "newer")], seq=50)]).keys == 4
    assert other.latest()[3] == (21, "newer")


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batches=st.lists(
        st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=6), min_size=2, max_size=4
    ),
    keep=st.sampled_from(["latest", "latest 2"]),
    data=st.data(),
)
def test_all_input_read_anew_after_a_restore_gives_what_was_there(
    make_sink: Any, batches: list[list[tuple[int, bool]]], keep: str, data: st.DataObject
) -> None:
    """In another order, under other numbers, cut into other batches."""
    count = sum(map(len, batches))
    times = iter(data.draw(st.permutations(range(count))))
    timed_batches = [[(key, next(times), gone) for key, gone in batch] for batch in batches]
    with tempfile.TemporaryDirectory() as folder:
        first, second = (make_sink(keep=keep, buckets="2", query_id=f"query-{number}") for number in (1, 2))
        for sink in (first, second):
            sink.folder = Path(folder)
            sink.__post_init__()

        def write(sink: Any, batch_id: int, rows: list[tuple[int, int, bool]], seq: int) -> None:
            named = [(key, time, None if gone else f"v{time}") for key, time, gone in rows]
            sink.batch(batch_id, [marked(sink, named, [gone for *_, gone in rows], seq=seq)])

        for batch_id, rows in enumerate(timed_batches):
            write(first, batch_id, rows, 1000 + 10 * batch_id)
        before = sorted(zip(*first.table().select(["k", "t", "v"]).to_pydict().values(), strict=True))
        DeltaTable(str(first.path)).restore(data.draw(st.integers(0, first.version() - 1)))
        again = data.draw(st.permutations([row for rows in timed_batches for row in rows]))
        for batch_id, at in enumerate(range(0, count, 4)):
            write(second, batch_id, again[at : at + 4], at)
        assert sorted(zip(*second.table().select(["k", "t", "v"]).to_pydict().values(), strict=True)) == before


def test_a_foreign_change_of_the_tombstones_alone_is_refused(make_sink: Any) -> None:
    """Neither batch touches a row of the other: only the tombstone tells that the row is too old."""
    sink, other = make_sink(), make_sink(query_id="query-2")
    sink.batch(0, [sink.rows([(2, 1, "b")])])
    results = sink.tasks([sink.rows([(1, 10, "mine")], seq=5)])
    other.batch(0, [marked(other, [(1, 20, None)])])
    with pytest.raises(TableError, match="changed by another writer"):
        sink.commit(results, 1)
    assert not {file.path for result in results for file in result.staged} & sink.files()
    assert sink.batch(1, [sink.rows([(1, 10, "mine")], seq=5)]).older == 1
    assert sink.latest() == {2: (1, "b")}


def test_a_foreign_deletion_elsewhere_is_kept(make_sink: Any) -> None:
    sink, other = make_sink(buckets="64"), make_sink(query_id="query-2", buckets="64")
    sink.batch(0, [sink.rows([(1, 1, "a"), (3, 1, "c")])])
    results = sink.tasks([marked(sink, [(1, 20, None)], seq=5)])
    other.batch(0, [marked(other, [(3, 30, None)])])
    assert sink.commit(results, 1).deleted == 1
    assert buried(sink) == {1: 20, 3: 30}
    assert sink.latest() == {}


def test_a_lost_folder_is_noticed(sink: Any) -> None:
    sink.batch(0, [marked(sink, [(1, 10, None)])])
    shutil.rmtree(sink.path / FOLDER)
    with pytest.raises(TableError, match="list of the table's deletions is gone"):
        sink.writer()
