"""Buckets that wear are rewritten after a commit: the same rows, few dead ones, and it may end anywhere."""

import dataclasses
import itertools
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.deaths import ProcessDied
from kit.sink import Sink

from upstream.delta_format.latest_table import BUCKET
from upstream.delta_format.log import entry_actions
from upstream.sink.admin.check import check_table
from upstream.sink.figures.summary import last_summary
from upstream.sink.maintenance import compact as compacting
from upstream.sink.maintenance import compact as wear
from upstream.sink.maintenance.compact import SHARE, wear_of
from upstream.sink.spec import steps
from upstream.sink.spec.maintenance_rules import MaintenanceRules
from upstream.sink.table import files, table
from upstream.sink.table.key_index import KeyIndex
from upstream.storage.folder import TableFolder

ENGINES = ("vectors",)


@pytest.fixture(autouse=True)
def small_tables_wear_too(monkeypatch):
    monkeypatch.setattr(wear, "WORTH", 0)
    monkeypatch.setattr(wear, "FILE", 1)


def burden(sink: Sink) -> tuple[int, int]:
    worn = wear_of(sink.log()).values()
    return sum(each.burden for each in worn), sum(each.live for each in worn)


def compactions(sink: Sink) -> int:
    return sum(each.get("operation") == "OPTIMIZE" for each in DeltaTable(str(sink.path)).history())


BATCHES = st.lists(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 9), st.booleans()), min_size=1, max_size=60),
    min_size=1,
    max_size=8,
)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=BATCHES)
def test_any_batches_give_the_same_rows_and_few_dead_ones(make_sink, batches):
    with tempfile.TemporaryDirectory() as folder:
        sinks = [make_sink(maintenanceBudget="1 hour"), make_sink(maintenance="off")]
        sinks = [dataclasses.replace(sink, folder=Path(folder) / str(at)) for at, sink in enumerate(sinks)]
        for number, rows in enumerate([[(key, 0, False) for key in range(240)], *batches]):
            given_rows = [(key, t, f"{number}.{at}") for at, (key, t, _) in enumerate(rows)]
            deleted = [gone for _, _, gone in rows]
            summaries = [
                sink.batch(number, [sink.rows(given_rows, seq=number * 1000, deleted=deleted)]) for sink in sinks
            ]
            left, live = burden(sinks[0])
            assert left <= live / SHARE
            assert sinks[0].latest() == sinks[1].latest()
            assert (summaries[0].applied, summaries[0].keys) == (summaries[1].applied, summaries[1].keys)
        assert check_table(str(sinks[0].path)).healthy


def test_ended_anywhere_it_is_as_before_or_written_anew(make_sink, monkeypatch):
    """Killed before and after each step and each entry, batch after batch; the next commit goes on with it."""
    put, compact, inside, left = table.put_entry, compacting.compact_bucket, [False], [0]

    def moment(*_: Any) -> None:
        left[0] -= inside[0]
        if inside[0] and left[0] == 0:
            raise ProcessDied

    def put_or_die(*given: Any) -> bool:
        moment()
        done = put(*given)
        moment()
        return done

    def watched(*given: Any) -> Any:
        inside[0] = True
        try:
            return compact(*given)
        finally:
            inside[0] = False

    monkeypatch.setattr(table, "remove_unnamed", lambda *_: None)
    monkeypatch.setattr(table, "put_entry", put_or_die)
    monkeypatch.setattr(compacting, "compact_bucket", watched)
    monkeypatch.setattr(steps, "reached", moment)
    sink = make_sink(maintenanceBudget="1 hour")
    model: dict[int, tuple[int, str]] = dict.fromkeys(range(400), (0, "base"))
    sink.batch(0, [sink.rows([(key, *row) for key, row in model.items()])])
    died = 0
    for number in range(1, 40):
        left[0] = number % 13  # 0: not at all
        rows = [(key, number, f"v{number}") for key in range(number % 7, 400, 7)]
        model |= {key: (time, value) for key, time, value in rows}
        try:
            sink.batch(number, [sink.rows(rows, seq=number * 1000)])
        except ProcessDied:
            died += 1
        assert sink.latest() == model
        assert sink.batch(number, [sink.rows(rows, seq=number * 1000)]) is None, "a repeat: it was committed before"
    assert died > 12
    sink.batch(40, [sink.rows([(0, 40, "last")], seq=40_000)])
    remains, live = burden(sink)
    assert remains <= live / SHARE
    assert check_table(str(sink.path)).healthy


@pytest.mark.parametrize(
    ("options", "some"),
    [
        ({"maintenanceBudget": "1 hour"}, True),
        ({"maintenanceBudget": "0 s"}, False),
        ({"maintenance": "off"}, False),
        ({"engine": "rewrite"}, False),  # which marks no rows
    ],
)
def test_the_summary_reports_it_and_options_end_it(make_sink, options, some):
    sink = make_sink(**options)
    for number in range(4):
        sink.batch(number, [sink.rows([(key, number, "v") for key in range(0, 400, number + 1)], seq=number * 1000)])
    assert (compactions(sink) > 0) == some
    summary = last_summary(DeltaTable(str(sink.path)), sink.query_id)
    assert summary is not None
    assert (summary.maintained is not None and summary.maintained.compacted > 0) == some


def test_what_fails_is_reported_and_the_rest_of_maintenance_is_done(make_sink, monkeypatch):
    sink = make_sink(maintenanceBudget="1 hour")
    sink.batch(0, [sink.rows([(key, 0, "v") for key in range(400)])])

    def broken(*_: Any) -> None:
        raise OSError("disk on fire")

    monkeypatch.setattr(compacting, "compact_bucket", broken)
    monkeypatch.setattr(MaintenanceRules, "due", lambda *_: True)
    for number in range(1, 4):
        sink.batch(number, [sink.rows([(key, number, "v") for key in range(60)], seq=number * 1000)])
    summary = last_summary(DeltaTable(str(sink.path)), sink.query_id)
    assert summary is not None
    assert summary.maintained is not None
    assert (summary.maintained.failed, summary.maintained.checkpoint) == ("disk on fire", True)
    assert sink.latest()[0][0] == 3


@pytest.mark.parametrize("kind", ["number", "text", "two columns", "time"])
def test_rows_lie_by_key_so_that_few_row_groups_can_have_one(make_sink, monkeypatch, kind):
    monkeypatch.setattr(files, "ROW_GROUP", 16)
    types = {"text": pa.string(), "time": pa.timestamp("us", "UTC")}
    columns = pa.schema([("k", types.get(kind, pa.int64())), ("w", pa.int64()), ("t", pa.int64()), ("v", pa.string())])
    sink = make_sink(columns, key="k,w" if kind == "two columns" else "k", buckets="1")

    def row(number: int, time: int) -> tuple[Any, ...]:
        key = number * 7919 % 400
        return (f"{key:05d}" if kind == "text" else key, key % 3, time, f"v{time % 2}")

    sink.batch(0, [sink.rows([row(number, 0) for number in range(400)])])
    before = compactions(sink)
    for number in range(1, 3):
        sink.batch(number, [sink.rows([row(at, number) for at in range(60)], seq=number * 1000)])
    assert compactions(sink) > before
    (path,) = sink.live_files()
    with pq.ParquetFile(sink.path / path) as file:
        keys = file.read(columns=["k"]).column("k").to_pylist()
        assert keys == sorted(keys)
        bounds = [file.metadata.row_group(at).column(0).statistics for at in range(file.metadata.num_row_groups)]
        assert len(bounds) == 25
        assert all(one.max <= other.min for one, other in itertools.pairwise(bounds))
        first = [file.metadata.row_group(0).column(at) for at in range(file.metadata.num_columns)]
        listed = {column.path_in_schema: column.has_dictionary_page for column in first}
        assert (listed["v"], listed["t"], listed["k"]) == (True, False, False), "keys of text are many"


def test_an_index_follows_where_there_was_one(make_sink):
    sink = make_sink(buckets="1")
    sink.batch(0, [sink.rows([(key, 0, "v") for key in range(400)])])
    home = Path(KeyIndex(str(sink.path), ["k"], sink.given["indexLocation"], 1 << 30).home)
    for number, kept_here in ((1, True), (2, False)):
        before = compactions(sink)
        results = sink.tasks([sink.rows([(key, number, "v") for key in range(60)], seq=number * 1000)])
        assert len(list(home.iterdir())) == 2, "of the bucket's file, and of the one that awaits its commit"
        for found in [] if kept_here else list(home.iterdir()):
            found.unlink()
        sink.commit(results, number)
        assert compactions(sink) == before + 1
        assert len(list(home.iterdir())) == int(kept_here)


def test_each_entry_reports_that_no_row_changed(make_sink):
    sink = make_sink(buckets="1")
    for number, keys in enumerate((400, 60, 60)):
        sink.batch(number, [sink.rows([(key, number, "v") for key in range(keys)], seq=number * 1000)])
    log = sink.log()
    optimized = [each["version"] for each in DeltaTable(str(sink.path)).history() if each["operation"] == "OPTIMIZE"]
    assert optimized
    for version in optimized:
        actions = entry_actions(TableFolder(str(sink.path)), version)
        changes = {action[kind]["dataChange"] for action in actions for kind in ("add", "remove") if kind in action}
        assert changes == {False}
        assert not any("upstreamApplied" in action.get("commitInfo", {}) for action in actions)
    assert all(add["partitionValues"] == {BUCKET: "0"} for add in log.files.values())
