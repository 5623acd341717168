"""Deletions over restores and others' commits, seen by readers that know nothing of them."""

import dataclasses
import datetime as dt
import json
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from upstream.conf.errors import OptionError, TableError
from upstream.sink.admin.check import check_table
from upstream.sink.table.tombstones import APP_ID, FOLDER

ENGINES = ("rewrite", "vectors")

UTC = dt.timezone.utc


def marked(sink: Any, rows: list[tuple[Any, ...]], deleted: list[bool] | None = None, **more: Any) -> pa.RecordBatch:
    """Rows with their marks; all are tombstones unless said."""
    return sink.rows(rows, deleted=np.array([True] * len(rows) if deleted is None else deleted, dtype=np.bool_), **more)


def buried(sink: Any) -> dict[Any, Any]:
    number = DeltaTable(str(sink.path)).transaction_version(APP_ID)
    if not number:
        return {}
    listed = json.loads((sink.path / FOLDER / f"{number}.json").read_text())
    rows = [row for path in listed.values() for row in pq.read_table(sink.path / path).to_pylist()]
    assert len(rows) == len({row["k"] for row in rows})
    return {row["k"]: row["t"] for row in rows}


def hidden(sink: Any) -> set[str]:
    folder = sink.path / FOLDER
    return {str(path.relative_to(sink.path)) for path in folder.rglob("*") if path.is_file()}


def test_tombstones_are_dropped_when_a_row_has_overtaken_them(make_sink):
    sink = make_sink(buckets="1")
    sink.batch(0, [marked(sink, [(1, 10, None), (2, 10, None)])])
    sink.batch(1, [sink.rows([(1, 20, "back")], seq=10)])
    assert buried(sink) == {1: 10, 2: 10}  # a batch without deletions does not write them anew
    sink.batch(2, [marked(sink, [(3, 10, None)], seq=20)])
    assert buried(sink) == {2: 10, 3: 10}
    sink.batch(3, [marked(sink, [(2, 12, None)], seq=30)])
    assert buried(sink) == {2: 12, 3: 10}
    assert len(hidden(sink)) == 2  # the list and one file


def test_a_deletion_is_forgotten_only_when_the_low_watermark_is_far_enough_beyond(make_sink):
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


def test_no_reader_sees_a_deleted_key_and_vacuum_keeps_what_is_remembered(sink, engine):
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


@pytest.mark.parametrize("keep", ["latest", "latest 2"])
@pytest.mark.parametrize("time", [20, 15])
@pytest.mark.parametrize("tasks", [1, 2])
def test_a_replayed_deletion_takes_the_row_away_that_a_restore_brought_back(make_sink, keep, time, tasks):
    """Whatever its number: a new checkpoint may read its input in another order."""
    sink, other = (make_sink(history=keep, buckets="1", query_id=f"query-{number}") for number in (1, 2))
    sink.batch(0, [sink.rows([(1, 10, "a"), (2, 10, "b"), (3, 10, "c")])])
    sink.batch(1, [marked(sink, [(1, 20, None), (3, 20, None)], seq=10)])
    DeltaTable(str(sink.path)).restore(1)
    replayed = [[marked(other, [(1, time, None)], seq=3)], [other.rows([(5, 1, "e")], seq=4)]]
    summary = other.batch(0, *(replayed if tasks == 2 else [[*replayed[0], *replayed[1]]]))
    assert (summary.deleted, summary.applied, summary.keys) == (1, 2, 3)
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
def test_all_input_read_anew_after_a_restore_gives_what_was_there(new_sink, batches, keep, data):
    count = sum(map(len, batches))
    times = iter(data.draw(st.permutations(range(count))))
    timed_batches = [[(key, next(times), gone) for key, gone in batch] for batch in batches]
    first = new_sink(history=keep, buckets="2")
    second = dataclasses.replace(first, query_id="query-2")

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


def test_a_foreign_change_of_the_tombstones_alone_is_refused(make_sink):
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


def test_a_foreign_deletion_elsewhere_is_kept(make_sink):
    sink, other = make_sink(buckets="64"), make_sink(query_id="query-2", buckets="64")
    sink.batch(0, [sink.rows([(1, 1, "a"), (3, 1, "c")])])
    results = sink.tasks([marked(sink, [(1, 20, None)], seq=5)])
    other.batch(0, [marked(other, [(3, 30, None)])])
    assert sink.commit(results, 1).deleted == 1
    assert buried(sink) == {1: 20, 3: 30}
    assert sink.latest() == {}


@pytest.mark.parametrize("retention", ["-1", "soon", "1 hour"])
def test_a_retention_that_does_not_fit_is_refused(make_sink, retention):
    make_sink(tombstoneRetention="3600").writer()  # in the unit of the time column, which holds numbers
    with pytest.raises(OptionError, match="tombstoneRetention"):
        make_sink(tombstoneRetention=retention).writer()
