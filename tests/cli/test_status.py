import json
import os

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from kit.planned_query import PlannedQuery
from kit.sink import Sink

from upstream.conf.process_identity import Process
from upstream.conf.units import now_us
from upstream.sink.commit.lease import TableLease
from upstream.storage.folder import TableFolder

from .in_process import done, refused


@pytest.fixture
def table(tmp_path):
    """Three commits of one query, the last one without a change."""
    sink = Sink(tmp_path, options={"key": "k", "eventTime": "t", "buckets": "2", "target": "max < 1 h"})
    sink.now_us = now_us()
    for number, rows in enumerate([[(1, 10, "a"), (2, 11, "b")], [(1, 12, "c"), (1, 13, "d")], [(2, 5, "old")]]):
        sink.batch(number, [sink.rows(rows, seq=10 * number), sink.punctuation(20 + number)])
    return sink


def test_history(table):
    head, *rows = done("commits", table.path).splitlines()
    assert head.split()[:7] == ["version", "committed", "batch", "rows", "applied", "superseded", "keys"]
    found = [[*line.split()[:1], *line.split()[4:9]] for line in rows]
    assert found == [["1", "0", "2", "2", "0", "2"], ["2", "1", "2", "1", "1", "2"], ["3", "2", "1", "0", "1", "2"]]
    assert [line.split()[-1] for line in rows] == ["20", "21", "22"]
    last = json.loads(done("commits", table.path, "--limit", "1", "--json"))
    assert (last["version"], last["batch_id"], last["superseded"]) == (3, 2, 1)
    every = done("commits", table.path, "--limit", "0", "--json")
    assert [json.loads(line)["version"] for line in every.splitlines()] == [1, 2, 3]


def test_status(table, tmp_path):
    first, fresh, second, third, *_ = done("status", "table", cwd=tmp_path).splitlines()
    assert first == "table, version 3: no query writes it"
    assert "stale on average at the last change, " in fresh
    assert fresh.endswith(" ago; the target max < 1 h 00 min was missed")
    assert second.startswith("2 keys; complete to 22; last commit ")
    assert second.endswith(" ago, batch 2")
    assert third.startswith("0 keys changed, 1 updates superseded")
    TableLease(TableFolder(str(table.path))).hold("query-1", Process.of(os.getpid()), 60_000_000, now_us())
    assert "query query-1 writes it" in done("status", "table", cwd=tmp_path)
    found = json.loads(done("status", "table", "--json", cwd=tmp_path))
    assert (found["table"], found["version"], found["writer"]) == ("table", 3, "query-1")
    assert found["last_commit"]["version"] == 3
    assert found["last_commit"]["low_watermark"] == 22
    assert 0 <= found["since_commit_s"] < 600


def test_status_of_a_query_whose_batch_hangs(tmp_path):
    """The last commit met its target, and the two hours since are not in it."""
    hour = 3_600_000_000
    planned = now_us() - 2 * hour
    table = Sink(tmp_path, options={"key": "k", "eventTime": "t", "target": "max < 1 h"}, now_us=planned)
    assert table.batch(2, [table.rows([(1, 10, "a")], arrival_us=[planned])]).target_met
    part = {"feed": "f", "place": {}, "span": 5_000, "arrival_us": planned - 1_000_000}
    offset = json.dumps({"progress": {}, "now_us": planned, "ranges": [part]})
    (table.checkpoint / "offsets").mkdir()
    (table.checkpoint / "offsets" / "3").write_text(f'v1\n{{"batchTimestampMs":{planned // 1000}}}\n{offset}')
    lease, mine = TableLease(TableFolder(str(table.path))), Process.of(os.getpid())
    lease.hold("query-1", mine, 60_000_000, now_us())
    _, fresh, *_ = done("status", "table", cwd=tmp_path).splitlines()
    assert fresh == (
        "2 h 00 min stale on average; batch 3 has no commit after 2 h 00 min, and its first row has waited for "
        "2 h 00 min; the target max < 1 h 00 min is missed"
    )
    found = json.loads(done("status", "table", "--json", cwd=tmp_path))
    assert (found["target_met"], found["uncommitted_batch"], found["at_least"]) == (False, 3, False)
    assert found["staleness_now"]["p99"] > 7200
    lease.release()
    lease.hold("query-1", mine, 60_000_000, now_us() - 2 * hour)
    first, *_ = done("status", "table", cwd=tmp_path).splitlines()
    assert first.startswith(f"table, version 1: no query writes it: process {mine.pid} on {mine.host} has not renewed")


def test_metrics_for_a_textfile_collector_and_for_what_scrapes_the_workbench(table, tmp_path):
    lines = done("status", "table", "--prometheus", cwd=tmp_path).splitlines()
    assert 'upstream_keys{table="table"} 2' in lines
    assert not [line for line in lines if line.startswith("upstream_commits")], "a sum of one moment is none"
    (tmp_path / "empty").mkdir()
    assert "no table" in refused("status", tmp_path / "empty", "--prometheus", code=1)
    assert json.loads(done("ui", "--dashboard"))["title"] == "UpStream"
    assert "alert: UpstreamTargetMissed" in done("ui", "--alerts")


def test_a_table_without_queries_and_none_at_all(table, tmp_path):
    other = tmp_path / "other"
    DeltaTable.create(str(other), DeltaTable(str(table.path)).schema())
    assert "The log has no commit of a query" in done("status", other)
    assert json.loads(done("status", other, "--json"))["last_commit"] is None
    assert "no commit of a query" in done("commits", other)
    assert done("commits", other, "--json") == ""


@pytest.mark.parametrize("noon", [pa.timestamp("us", "UTC"), pa.timestamp("us")], ids=["numbers", "features by name"])
def test_names_with_spaces(tmp_path, noon):
    """Polars refuses a table with such names, and one of a feature that it does not know."""
    columns = pa.schema([("the key", pa.int64()), ("t", pa.int64()), ("a,b", pa.string()), ("noon", noon)])
    sink = Sink(tmp_path, columns, {"key": "the key", "eventTime": "t", "buckets": "2"})
    sink.batch(0, [sink.rows([(key, 1, f"v{key}", 0) for key in range(5)])])
    asked = ("--where", "`the key` < 4", "--order-by", "`the key` % 5 DESC", "--limit", "2")
    shown = done("show", sink.path, *asked, "--format", "json")
    assert [json.loads(line)["a,b"] for line in shown.splitlines()] == ["v3", "v2"]


@pytest.fixture
def shown(tmp_path):
    sink = Sink(tmp_path)
    sink.batch(0, [sink.rows([(key, key, f"v{key}") for key in range(30)]), sink.punctuation(25)])
    return sink.path


def test_a_table_has_a_line_for_each_row_and_one_about_all(shown):
    head, *rows, foot = done("show", shown, "--limit", "3", "--where", "t > 10", "--order-by", "t DESC").splitlines()
    assert head.split() == ["k", "t", "v"]
    assert [row.split() for row in rows] == [["29", "29", "v29"], ["28", "28", "v28"], ["27", "27", "v27"]]
    assert foot.startswith("3 of 19 rows; version 1, complete to 25")


def test_all_rows_and_all_columns_in_forms_for_programs(shown):
    rows = [json.loads(line) for line in done("show", shown, "--format", "json", "--limit", "0").splitlines()]
    assert sorted(row["k"] for row in rows) == [*range(30)]
    assert rows[0].keys() == {"k", "t", "v"}
    csv = done("show", shown, "--format", "csv", "--all", "--limit", "1")
    assert "_upstream_bucket" in csv.splitlines()[0]


@pytest.mark.parametrize(
    ("option", "value", "part"),
    [
        ("--columns", "sped", "no column sped. It has k"),
        ("--where", "sped > 1", "no column 'sped'"),
        ("--where", "t >", "an expression"),
        ("--where", "1 / t > 0", "division by zero"),
        ("--order-by", "t FIRST", "'FIRST'"),
    ],
)
def test_what_is_wrong_is_a_sentence(shown, option, value, part):
    assert part in refused("show", shown, option, value)


def test_settings_are_printed_changed_and_undone(tmp_path):
    query = PlannedQuery(tmp_path)
    query.batch()
    place = query.sink.path

    def line(name):
        (found,) = (each.split() for each in done("set", place).splitlines() if each.startswith(name))
        return found[1:]

    assert line("queue/0.budget") == ["500", "rows", "a", "batch", "live"]
    assert line("sink.key")[:4] == ["k", "fixed", "The", "table's"]
    assert line("source/s1.maxBytesPerTrigger") == ["none", "live"]
    said = done("set", place, "queue.budget=20000", "sink.target = p99 < 1 s")
    assert said.splitlines() == [
        "queue/0.budget: default -> 20000, from the next batch on",
        "sink.target: default -> p99 < 1 s, from the next batch on",
    ]
    query.batch()
    assert line("queue/0.budget")[:4] == ["20000", "rows", "a", "batch"]
    assert line("queue/0.budget")[-3:] == ["since", "batch", "1"]
    assert "20000 -> default" in done("set", query.sink.checkpoint, "queue/0.budget=default")
    assert "queue.budget=20000" in refused("set", place, "queue")
    assert "a whole number of at least 1, auto" in refused("set", place, "queue.budget=soon")
