"""Tasks' rows beside the table at the commit, also if its files are put together while a batch is under way."""

import dataclasses
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.races import commit_between
from kit.sink import Sink

from upstream.conf.errors import TableError
from upstream.delta_format.log import LogReplay
from upstream.sink.admin.check import check_table
from upstream.sink.admin.layout_change import rebucket_table
from upstream.sink.commit import account
from upstream.sink.maintenance import compact as compacting
from upstream.sink.maintenance.compact import compact_bucket, compact_table
from upstream.sink.spec.options import parse_sink_options

ENGINES = ("rewrite", "vectors")


def test_without_a_time_deletions_meet_the_rows_of_other_tasks_by_arrival(make_sink):
    sink = make_sink(pa.schema([("k", pa.int64()), ("v", pa.string())]), eventTime="", buckets="1")
    for batch, (deleted_us, kept) in enumerate([(300, set()), (100, {1, 2})]):
        sink.batch(2 * batch, [sink.rows([(1, "held")], arrival_us=[10])])
        alone = sink.tasks([sink.rows([(1, None)], deleted=[True])])
        assert [merge.tombstones for result in alone for merge in result.merges] == [None]
        gone = [sink.rows([(1, None), (2, None)], arrival_us=[deleted_us] * 2, deleted=[True] * 2)]
        came = [sink.rows([(1, "came"), (2, "came")], arrival_us=[200] * 2)]
        results = sink.tasks(gone, came)
        sink.commit(results, 2 * batch + 1)
        assert sink.latest().keys() == kept
        (merge,) = results[0].merges
        assert merge.deletions is not None
        assert (merge.deletions.rows, merge.tombstones.rows) == (1, 1), "each of them once"


_SAME = ("rows", "applied", "superseded", "older", "keys", "deleted", "absent", "conflicts", "stray_buckets")


@pytest.fixture(autouse=True)
def all_written_anew(monkeypatch):
    """Files that need it or not: each becomes another one."""
    monkeypatch.setattr(compacting, "_groups", lambda held, _vectors, _small: [[path] for path in sorted(held)])


def put_together(sink: Sink, bucket: int | None = None) -> None:
    target, table = parse_sink_options(sink.given), DeltaTable(str(sink.path))
    if bucket is None:
        assert compact_table(target, table) > 0
    else:
        compact_bucket(target, table, LogReplay(target.folder), bucket, 1 << 20, 0)


def filled(make_sink: Any, query_id: str, **options: str) -> Sink:
    sink = make_sink(query_id=query_id, **options)
    sink.folder = sink.folder / query_id
    sink.folder.mkdir(exist_ok=True)
    sink.__post_init__()
    sink.batch(0, [sink.rows([(key, 10, "a") for key in range(400)])])
    sink.batch(1, [sink.rows([(key, 11, "b") for key in range(0, 400, 7)], seq=1_000)])
    return sink


def second(sink: Sink) -> list[Any]:
    """Rows of one bucket in two tasks, older ones, deletions, and ones in conflict."""
    gone = [key % 5 == 0 for key in range(20)]
    return sink.tasks(
        [sink.rows([(key, 12, "c") for key in range(20)], seq=2_000, deleted=gone)],
        [sink.rows([(key, 11 + key % 3, "d") for key in range(10, 40)], seq=3_000)],
        [sink.rows([(key, 10, "e") for key in range(300, 320)], seq=4_000)],
    )


@pytest.mark.parametrize(
    "options", [{}, {"history": "latest 3"}, {"sequenceBy": "_arrival"}], ids=["latest", "few", "arrival"]
)
@pytest.mark.parametrize("when", ["before the commit", "in the midst of it"])
def test_it_is_what_it_would_be_had_nobody_touched_the_files(make_sink, monkeypatch, options, when):
    figures: list[dict[str, Any]] = []
    tables: list[list[dict[str, Any]]] = []
    for name in ("left alone", "moved"):
        sink = filled(make_sink, name, **options)
        results = second(sink)
        if name == "moved":
            if when == "before the commit":
                put_together(sink)
            else:
                commit_between(monkeypatch, lambda: put_together(sink))  # noqa: B023 at once
        summary = sink.commit(results, 2)
        assert summary is not None
        assert sink.commit(second(sink), 2) is None, "a repeat"
        figures.append({field: dataclasses.asdict(summary)[field] for field in _SAME})
        rows = sink.table().drop_columns(["_upstream_bucket"]).to_pylist()
        tables.append(sorted(rows, key=lambda row: (row["k"], row["_upstream_seq"])))
        assert check_table(str(sink.path)).healthy
        earlier = set().union(*(sink.live_files(version) for version in range(1, sink.version() + 1)))
        assert {path for path in sink.files() if path.startswith("_upstream_bucket")} == earlier, "nothing is left over"
    assert figures[0] == figures[1]
    assert figures[0]["stray_buckets"] > 0
    assert (figures[0]["conflicts"] > 0) == ("sequenceBy" not in options)
    assert tables[0] == tables[1]


def test_a_change_of_rows_is_refused_whatever_else_was_done(make_sink):
    sink = filled(make_sink, "query-1")
    other = dataclasses.replace(sink, query_id="query-2")
    for number, by_others in enumerate(
        (
            lambda: other.batch(0, [other.rows([(1, 99, "theirs")])]),
            lambda: DeltaTable(str(sink.path)).delete("k = 1"),
            lambda: write_deltalake(str(sink.path), sink.table().slice(0, 1), mode="append"),
            lambda: DeltaTable(str(sink.path)).restore(1),
        )
    ):
        if number and sink.given["engine"] == "vectors":
            break  # delta-rs changes no rows of such a table
        results = second(sink)
        put_together(sink)
        by_others()
        put_together(sink)
        before = sink.table().num_rows
        with pytest.raises(TableError, match=r"changed by another writer|has restored it"):
            sink.commit(results, 2)
        assert sink.table().num_rows == before


def test_another_number_of_buckets_is_refused_even_where_it_is_not_looked_at(make_sink, monkeypatch):
    sink = filled(make_sink, "query-1")
    results, before = second(sink), sink.latest()
    monkeypatch.setattr("upstream.sink.spec.layout.Layout.check_recorded", lambda *_: None)
    rebucket_table(str(sink.path), 3)
    with pytest.raises(TableError, match="changed by another writer"):
        sink.commit(results, 2)
    assert sink.latest() == before


def test_what_cannot_be_followed_back_is_refused(make_sink, monkeypatch):
    sink = filled(make_sink, "query-1")
    results = second(sink)
    put_together(sink)
    monkeypatch.setattr(account, "_LOOK_BACK", 2)
    with pytest.raises(TableError, match="changed by another writer"):
        sink.commit(results, 2)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_order_of_batches_and_of_files_put_together(new_sink, data):
    sink = new_sink(buckets="3")
    model: dict[int, tuple[int, str]] = dict.fromkeys(range(60), (0, "v"))
    sink.batch(0, [sink.rows([(key, *row) for key, row in model.items()])])
    for number in range(1, data.draw(st.integers(2, 5), label="batches") + 1):
        keys = data.draw(st.lists(st.integers(0, 70), min_size=1, max_size=30), label="keys")
        times = data.draw(st.lists(st.integers(0, 9), min_size=len(keys), max_size=len(keys)), label="times")
        rows = [(key, time, f"{number}.{at}") for at, (key, time) in enumerate(zip(keys, times, strict=True))]
        cut = data.draw(st.integers(0, len(rows)), label="cut")
        parts = [(rows[:cut], 0), (rows[cut:], cut)]
        results = sink.tasks(*[[sink.rows(part, seq=number * 100 + at)] for part, at in parts if part])
        for bucket in data.draw(st.lists(st.sampled_from([None, 0, 1, 2]), max_size=4), label="put together"):
            put_together(sink, bucket)
        assert sink.commit(results, number) is not None
        for key, time, value in rows:
            if key not in model or time >= model[key][0]:
                model[key] = (time, value)
        assert sink.latest() == model
    assert check_table(str(sink.path)).healthy
    assert pa.table(DeltaTable(str(sink.path)).get_add_actions()).num_rows == len(sink.live_files())
