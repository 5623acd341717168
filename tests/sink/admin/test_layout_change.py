"""A table that is to keep more or fewer rows of each key: for readers, writers and followers."""

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
from upstream.sink.admin.layout_change import change_keep
from upstream.sink.table.table import recorded_options
from upstream.storage.folder import TableFolder

ENGINES = ("rewrite", "vectors")

Row = tuple[int, int]
ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(-3, 9)), min_size=1, max_size=12)


def named(count: int) -> str:
    return "latest" if count == 1 else f"latest {count}"


def keeping(sink: Any, keep: str) -> Any:
    sink.options = {**sink.options, "keep": keep}
    return sink


def held(sink: Any) -> list[tuple[Any, ...]]:
    table = sink.table()
    return sorted(zip(*(table.column(name).to_pylist() for name in ("k", "t", "v")), strict=True))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(ROWS | st.integers(1, 4), min_size=2, max_size=7), first=st.integers(1, 3))
def test_a_table_holds_the_newest_of_what_it_had_and_what_came(new_sink, steps, first):
    expected: dict[int, dict[int, str]] = {}
    sink = new_sink(keep=named(first), buckets="2")
    count = first
    for number, step in enumerate([[(0, 0)], *steps]):
        if isinstance(step, int):
            change_keep(str(sink.path), named(step))
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
    sink = grown(make_sink(keep="latest 3"))
    version, files = sink.version(), sink.live_files()
    assert change_keep(str(sink.path), "Latest") == version + 1 == sink.version()
    assert held(sink) == [(1, 7, "e"), (2, 7, "f"), (3, 5, "c")]
    assert len(files & sink.live_files()) == 1, "the bucket of the key with one row stays as it is"
    assert pl.read_delta(str(sink.path), version=version).height == 6
    assert recorded_options({"path": str(sink.path)}).get("keep") is None
    # A batch upon it is merged as upon any table of the newest row.
    summary = keeping(sink, "latest").batch(2, [sink.rows([(1, 6, "late"), (2, 8, "g")], seq=20)])
    assert (summary.delivered, summary.keys) == (1, 3)
    assert held(sink) == [(1, 7, "e"), (2, 8, "g"), (3, 5, "c")]


def test_more_rows_stay_from_then_on(sink):
    deleted = np.array([True])
    sink.batch(0, [sink.rows([(1, 5, "a"), (2, 5, "b")])])
    sink.batch(1, [sink.rows([(2, 6, None)], seq=10, deleted=deleted)])
    files, version = sink.files(), change_keep(str(sink.path), "latest 2")
    assert (sink.files(), version) == (files, sink.version()), "no file is written for it"
    assert recorded_options({"path": str(sink.path)})["keep"] == "latest 2"
    keeping(sink, "latest 2").batch(2, [sink.rows([(1, 4, "older"), (2, 5, "late"), (2, 7, "again")], seq=20)])
    assert held(sink) == [(1, 4, "older"), (1, 5, "a"), (2, 7, "again")], "deletions are known as before"
    assert check_table(str(sink.path)).healthy


@pytest.mark.parametrize("keep", ["latest 2", "latest 4"])
def test_followers_go_on(make_sink, keep):
    sink = grown(make_sink(keep="latest 3"))
    sink.batch(2, [sink.punctuation(4)])
    version = change_keep(str(sink.path), keep)
    log = TableLog(TableFolder(str(sink.path)))
    found = log.delivered(version, str(DeltaTable(sink.path).metadata().id))
    assert found is not None
    assert (found.rows, found.deletions) == ({}, {})
    assert log.last_delivered(version).low_watermark == 4


@pytest.mark.parametrize("keep", ["latest 2", "latest 4"])
def test_a_batch_under_way_is_not_committed_upon_it(make_sink, keep):
    sink = grown(make_sink(keep="latest 3"))
    results = sink.tasks([sink.rows([(1, 1, "x"), (9, 1, "x")], seq=30)])
    change_keep(str(sink.path), keep)
    before, files = held(sink), sink.live_files()
    for goes_on in (lambda: sink.commit(results, 2), sink.writer):
        with pytest.raises(TableError, match=f"has keep {keep}"):
            goes_on()
    assert (held(sink), sink.live_files()) == (before, files)
    keeping(sink, keep).batch(2, [sink.rows([(9, 1, "x")], seq=30)])
    assert held(sink) == [*before, (9, 1, "x")]


@pytest.mark.parametrize(
    ("options", "keep", "error", "message"),
    [
        ({}, "all", TableError, "keeps latest, and would have to keep all.*fill a table at another path"),
        ({"keep": "all"}, "latest", TableError, "keeps all, and would have to keep latest"),
        ({"time": ""}, "latest 2", TableError, "records no time"),
        ({"guard": "arrival"}, "latest 2", TableError, "records no time"),
        ({}, "newest", OptionError, "keep 'newest' is not among"),
    ],
)
def test_what_is_not_well_defined_is_refused(make_sink, options, keep, error, message):
    sink = make_sink(**options)
    sink.batch(0, [sink.rows([(1, 5, "a")])])
    version = sink.version()
    with pytest.raises(error, match=message):
        change_keep(str(sink.path), keep)
    assert change_keep(str(sink.path), sink.options.get("keep", "latest")) == version == sink.version()
