"""A table that is laid out in another number of buckets: for readers, writers and followers."""

import os
from typing import Any

import numpy as np
import pytest
from deltalake import DeltaTable

from upstream.conf.errors import OptionError, TableError
from upstream.datasource.connectors.latest_table.table import TableLog
from upstream.sink.admin.check import check_table
from upstream.sink.admin.layout_change import rebucket_table
from upstream.sink.spec.placement import buckets_for, buckets_outgrown
from upstream.sink.table import table
from upstream.sink.table.table import recorded_options
from upstream.storage.folder import TableFolder

ENGINES = ("rewrite", "vectors")
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


def test_a_batch_under_way_is_not_committed_upon_it(sink):
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
    found = TableLog(TableFolder(str(sink.path))).delivered(version, str(DeltaTable(sink.path).metadata().id))
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
    monkeypatch.setattr("upstream.sink.spec.placement._TOO_MANY", 1)
    report = check_table(str(sink.path))
    assert (report.wanted_buckets, report.healthy) == (16, True)


def test_buckets_by_the_keys_that_are_expected():
    assert [buckets_for(keys) for keys in (None, 1, 8_000_000, 8_000_001, 50_000_000)] == [16, 16, 16, 17, 100]
