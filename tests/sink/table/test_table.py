"""A table that a process keeps in memory: what others do to it is seen."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from kit.sink import Sink

from upstream.delta_format.log import LogReplay, entry_place
from upstream.sink.spec.options import parse_sink_options
from upstream.sink.table import table as table_module
from upstream.sink.table.table import load_table, recorded_options, transaction_version

OURS = "pyspark-upstream"


def foreign_commit(path: Path, application: str, number: int) -> None:
    table = DeltaTable(str(path))
    properties = CommitProperties(app_transactions=[Transaction(application, number)])
    table.alter.set_table_name(f"{application} {number}", commit_properties=properties)


def written_by(path: Path) -> str:
    table = DeltaTable(str(path))
    return str(table.history(1)[0].get("engineInfo"))


def test_commits_of_others_are_seen(sink):
    sink.batch(0, [sink.rows([(1, 1, "a")])])
    target = parse_sink_options(sink.given)
    table = load_table(target)
    assert table is not None
    seen = table.version()
    assert load_table(target) is table, "it is kept"
    for number in (5, 6):
        foreign_commit(sink.path, "other", number)
        table = load_table(target)
        assert table is not None
        assert (table.version(), transaction_version(target, table, "other")) == (seen + number - 4, number)
    assert transaction_version(target, table, "nobody") is None
    assert transaction_version(target, DeltaTable(str(sink.path)), "other") == 6, "one that is not kept is asked itself"
    numbers = {name: table.transaction_version(name) for name in ("other", "upstream-query-1", "upstream.highest")}
    assert {name: transaction_version(target, table, name) for name in numbers} == numbers
    assert None not in numbers.values()


def test_a_table_made_anew_with_as_many_versions_is_another(sink):
    sink.batch(0, [sink.rows([(1, 1, "a")])])
    target = parse_sink_options(sink.given)
    first = load_table(target)
    assert first is not None
    foreign_commit(sink.path, "other", 7)
    assert transaction_version(target, load_table(target), "other") == 7  # pyright: ignore[reportArgumentType]
    shutil.rmtree(sink.path)
    for _ in range(first.version()):
        write_deltalake(str(sink.path), pa.table({"k": [2]}), mode="append")
    foreign_commit(sink.path, "another", 1)
    table = load_table(target)
    assert table is not None
    assert table.metadata().id != first.metadata().id
    assert transaction_version(target, table, "other") is None
    assert transaction_version(target, table, "another") == 1


def test_a_log_of_a_form_that_is_not_followed(make_sink, monkeypatch):
    sink = make_sink(engine="rewrite", buckets="2")
    sink.batch(0, [sink.rows([(1, 1, "a"), (2, 1, "a")])])
    sink.batch(1, [sink.rows([(1, 2, "b")], seq=10)])
    assert written_by(sink.path) == OURS
    plain = LogReplay._begin

    def refuse(log: LogReplay, version: int) -> None:
        plain(log, version)
        raise log._broken("the checkpoint refers to further files")

    table_module._cache.clear()
    with monkeypatch.context() as patched:
        patched.setattr(LogReplay, "_begin", refuse)
        sink.batch(2, [sink.rows([(2, 3, "c")], seq=20)])
        assert sink.batch(2, [sink.rows([(2, 3, "c")], seq=20)]) is None, "a repeat is known as one"
    assert written_by(sink.path) != OURS, "delta-rs has written it"
    sink.batch(3, [sink.rows([(1, 4, "d")], seq=30)])
    assert written_by(sink.path) == OURS
    assert sink.latest() == {1: (4, "d"), 2: (3, "c")}


def test_what_replaces_whole_buckets_is_reported_in_the_log(make_sink):
    sink = make_sink(engine="rewrite", buckets="1")
    sink.batch(0, [sink.rows([(1, 1, "a")])])
    (replaced,) = sink.live_files()
    sink.batch(1, [sink.rows([(1, 2, "b")], seq=10)])
    lines = (sink.path / entry_place(sink.version())).read_text().splitlines()
    actions = [json.loads(line) for line in lines]
    (removed,) = [action["remove"] for action in actions if "remove" in action]
    assert removed["path"] == replaced
    assert removed["dataChange"]
    assert removed["deletionTimestamp"] == sink.now_us // 1000
    assert [action["add"]["path"] for action in actions if "add" in action] == list(sink.live_files())


def test_key_time_and_buckets_are_the_tables(tmp_path):
    sink = Sink(tmp_path)
    sink.batch(0, [sink.rows([(1, 1, "a")])])
    found = recorded_options({"path": str(sink.path)})
    assert (found["key"], found["eventTime"], found["buckets"]) == ("k", "t", "4")
    # Late rows need a time, which is known only when the table has been read.
    given = {"path": str(sink.path), "deadLetterRows": "late,conflicts", "history": "2"}
    assert recorded_options(given)["eventTime"] == "t"
    assert recorded_options({"path": str(tmp_path / "t"), "deadLetterRows": "late"}) == {}
