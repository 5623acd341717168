"""A table that is to keep more or fewer rows of each key: for readers, writers and followers."""

import os
from typing import Any

import numpy as np
import polars as pl
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from upstream.conf.errors import OptionError, TableError
from upstream.datasource.connectors.latest_table.table import TableLog
from upstream.sink.admin.check import check_table
from upstream.sink.admin.layout_change import change_history, rebucket_table
from upstream.sink.spec.layout import buckets_for, buckets_outgrown
from upstream.sink.table import table
from upstream.sink.table.table import recorded_options
from upstream.storage.folder import TableFolder

ENGINES = ("rewrite", "vectors")
ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(-3, 9)), min_size=1, max_size=12)


def named(count: int) -> str:
    return "latest" if count == 1 else f"latest {count}"


def keeping(sink: Any, keep: str) -> Any:
    sink.options = {**sink.options, "history": keep}
    return sink


def held(sink: Any) -> list[tuple[Any, ...]]:
    table = sink.table()
    return sorted(zip(*(table.column(name).to_pylist() for name in ("k", "t", "v")), strict=True))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(ROWS | st.integers(1, 4), min_size=2, max_size=7), first=st.integers(1, 3))
def test_a_table_holds_the_newest_of_what_it_had_and_what_came(new_sink, steps, first):
    expected: dict[int, dict[int, str]] = {}
    sink = new_sink(history=named(first), buckets="2")
    count = first
    for number, step in enumerate([[(0, 0)], *steps]):
        if isinstance(step, int):
            change_history(str(sink.path), named(step))
            keeping(sink, named(count := step))
        else:
            rows = [(key, time, f"{number}-{at}") for at, (key, time) in enumerate(step)]
            sink.batch(number, [sink.rows(rows, seq=100 * number)])
            for key, time, value in rows:
                expected.setdefault(key, {})[time] = value
        for key, history in expected.items():
            expected[key] = {time: history[time] for time in sorted(history)[-count:]}
        expected_rows = [(key, time, value) for key, history in expected.items() for time, value in history.items()]
        assert held(sink) == sorted(expected_rows)
    report = check_table(str(sink.path))
    assert report.healthy, report.findings


def grown(sink: Any) -> Any:
    """A table of the newest three, with one, two and three rows of a key, in two versions."""
    sink.batch(0, [sink.rows([(1, 5, "a"), (2, 5, "b"), (3, 5, "c")])])
    sink.batch(1, [sink.rows([(1, 6, "d"), (1, 7, "e"), (2, 7, "f")], seq=10)])
    return sink


def test_fewer_rows_leave_at_once_and_earlier_versions_have_them(make_sink):
    sink = grown(make_sink(history="latest 3"))
    version, files = sink.version(), sink.live_files()
    assert change_history(str(sink.path), "Latest") == version + 1 == sink.version()
    assert held(sink) == [(1, 7, "e"), (2, 7, "f"), (3, 5, "c")]
    assert len(files & sink.live_files()) == 1, "the bucket of the key with one row stays as it is"
    assert pl.read_delta(str(sink.path), version=version).height == 6
    assert recorded_options({"path": str(sink.path)}).get("history") is None
    # A batch upon it is merged as upon any table of the newest row.
    summary = keeping(sink, "latest").batch(2, [sink.rows([(1, 6, "late"), (2, 8, "g")], seq=20)])
    assert (summary.applied, summary.keys) == (1, 3)
    assert held(sink) == [(1, 7, "e"), (2, 8, "g"), (3, 5, "c")]


def test_more_rows_stay_from_then_on(sink):
    deleted = np.array([True])
    sink.batch(0, [sink.rows([(1, 5, "a"), (2, 5, "b")])])
    sink.batch(1, [sink.rows([(2, 6, None)], seq=10, deleted=deleted)])
    files, version = sink.files(), change_history(str(sink.path), "latest 2")
    assert (sink.files(), version) == (files, sink.version()), "no file is written for it"
    assert recorded_options({"path": str(sink.path)})["history"] == "latest 2"
    keeping(sink, "latest 2").batch(2, [sink.rows([(1, 4, "older"), (2, 5, "late"), (2, 7, "again")], seq=20)])
    assert held(sink) == [(1, 4, "older"), (1, 5, "a"), (2, 7, "again")], "deletions are known as before"
    assert check_table(str(sink.path)).healthy


@pytest.mark.parametrize("keep", ["latest 2", "latest 4"])
def test_followers_go_on(make_sink, keep):
    sink = grown(make_sink(history="latest 3"))
    sink.batch(2, [sink.punctuation(4)])
    version = change_history(str(sink.path), keep)
    log = TableLog(TableFolder(str(sink.path)))
    found = log.applied(version, str(DeltaTable(sink.path).metadata().id))
    assert found is not None
    assert (found.rows, found.deletions) == ({}, {})
    assert log.last_applied(version).low_watermark == 4


@pytest.mark.parametrize("keep", ["latest 2", "latest 4"])
def test_a_batch_under_way_is_not_committed_upon_it(make_sink, keep):
    sink = grown(make_sink(history="latest 3"))
    results = sink.tasks([sink.rows([(1, 1, "x"), (9, 1, "x")], seq=30)])
    change_history(str(sink.path), keep)
    before, files = held(sink), sink.live_files()
    for goes_on in (lambda: sink.commit(results, 2), sink.writer):
        with pytest.raises(TableError, match=f"has history {keep}"):
            goes_on()
    assert (held(sink), sink.live_files()) == (before, files)
    keeping(sink, keep).batch(2, [sink.rows([(9, 1, "x")], seq=30)])
    assert held(sink) == [*before, (9, 1, "x")]


@pytest.mark.parametrize(
    ("options", "keep", "error", "message"),
    [
        ({}, "all", TableError, "keeps latest, and would have to keep all.*fill a table at another path"),
        ({"history": "all"}, "latest", TableError, "keeps all, and would have to keep latest"),
        ({"eventTime": ""}, "latest 2", TableError, "records neither eventTime nor sequenceBy"),
        ({"sequenceBy": "_arrival"}, "latest 2", TableError, "records neither eventTime nor sequenceBy"),
        ({}, "newest", OptionError, "history='newest'"),
    ],
)
def test_what_is_not_well_defined_is_refused(make_sink, options, keep, error, message):
    sink = make_sink(**options)
    sink.batch(0, [sink.rows([(1, 5, "a")])])
    version = sink.version()
    with pytest.raises(error, match=message):
        change_history(str(sink.path), keep)
    assert change_history(str(sink.path), sink.options.get("history", "latest")) == version == sink.version()


KEYS = 60
deleted = np.array([True, True])


def filled(sink: Any) -> Any:
    sink.batch(0, [sink.rows([(key, 10, f"v{key}") for key in range(KEYS)])])
    sink.batch(1, [sink.rows([(key, 11, f"w{key}") for key in range(0, KEYS, 3)], seq=100)])
    sink.batch(2, [sink.rows([(key, 12, None) for key in (3, 4)], seq=200, deleted=deleted)])
    return sink


def no_room(*_: object) -> bool:
    raise OSError(28, "No space left on device")


def with_buckets(sink: Any, buckets: int) -> Any:
    sink.options = {**sink.options, "buckets": str(buckets)}
    return sink


@pytest.mark.parametrize("buckets", [1, 3, 4, 8, 6])
def test_rows_deletions_and_counts_stay(sink, buckets):
    filled(sink)
    before, files = sink.latest(), sink.live_files()
    version = rebucket_table(str(sink.path), buckets)
    assert (version, sink.latest()) == (sink.version(), before)
    assert recorded_options({"path": str(sink.path)})["buckets"] == str(buckets)
    if buckets != 4:
        assert not set(files) & set(sink.live_files())
    report = check_table(str(sink.path))
    assert report.healthy, report.findings
    assert (report.buckets, report.rows, report.tombstones) == (buckets, KEYS - 2, 2)
    # An older row still does not bring a deleted key back, and the next batch finds each key.
    with_buckets(sink, buckets).batch(3, [sink.rows([(3, 11, "late"), (5, 20, "new"), (KEYS, 20, "first")], seq=300)])
    assert sink.latest() == before | {5: (20, "new"), KEYS: (20, "first")}
    assert check_table(str(sink.path)).healthy


def test_a_batch_under_way_is_not_committed_upon_other_buckets(sink):
    filled(sink)
    results, before = sink.tasks([sink.rows([(1, 20, "x")], seq=300)]), sink.latest()
    rebucket_table(str(sink.path), 8)
    for goes_on in (lambda: sink.commit(results, 3), lambda: sink.batch(3, [sink.rows([(1, 20, "x")], seq=300)])):
        with pytest.raises(TableError, match=r"buckets 8.*leave the option"):
            goes_on()
    assert sink.latest() == before
    with_buckets(sink, 8).batch(3, [sink.rows([(1, 20, "x")], seq=300)])
    assert sink.latest() == before | {1: (20, "x")}


def test_followers_see_that_no_row_has_changed(sink):
    filled(sink)
    version = rebucket_table(str(sink.path), 8)
    found = TableLog(TableFolder(str(sink.path))).applied(version, str(DeltaTable(sink.path).metadata().id))
    assert found is not None
    assert (found.rows, found.deletions) == ({}, {})


@pytest.mark.parametrize(
    ("put", "match"), [(lambda *_: False, "another program"), (no_room, r"cannot be committed.*No space left")]
)
def test_what_cannot_be_committed_leaves_nothing_behind(sink, monkeypatch, put, match):
    filled(sink)
    files, before = sink.files(), sink.latest()
    monkeypatch.setattr(table, "put_entry", put)
    with pytest.raises(TableError, match=match):
        rebucket_table(str(sink.path), 8)
    assert (sink.files(), sink.latest()) == (files, before)


def test_what_cannot_be_is_refused(sink):
    filled(sink)
    with pytest.raises(OptionError, match="buckets=0"):
        rebucket_table(str(sink.path), 0)
    version = sink.version()
    assert rebucket_table(str(sink.path), 4) == version
    os.remove(sink.path / next(iter(sink.live_files())))
    with pytest.raises(TableError, match="run `upstream repair"):
        rebucket_table(str(sink.path), 8)


def test_a_table_that_has_outgrown_its_buckets_is_reported(sink, monkeypatch):
    assert buckets_outgrown(16_000_000, 16) is None
    assert buckets_outgrown(16_000_001, 16) == 33
    filled(sink)
    assert check_table(str(sink.path)).wanted_buckets is None
    monkeypatch.setattr("upstream.sink.spec.layout._TOO_MANY", 1)
    report = check_table(str(sink.path))
    assert (report.wanted_buckets, report.healthy) == (16, True)


def test_buckets_by_the_keys_that_are_expected():
    assert [buckets_for(keys) for keys in (None, 1, 8_000_000, 8_000_001, 50_000_000)] == [16, 16, 16, 17, 100]
