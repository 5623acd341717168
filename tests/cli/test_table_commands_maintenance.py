import os
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from kit.races import commit_between
from kit.sink import Sink

from upstream.sink.admin.check import check_table
from upstream.sink.spec.options import parse_sink_options
from upstream.sink.table.table import replay_log

from .in_process import done, refused


def asked(*arguments: str | Path) -> str:
    return done("maintain", *arguments)


def test_a_table_is_maintained_by_hand_and_that_of_others_is_left_alone(tmp_path):
    options = {"key": "k", "time": "t", "buckets": "2", "maintenance": "off"}
    sink = Sink(tmp_path, options=options)
    for number in range(12):
        sink.batch(number, [sink.rows([(key, number, "x") for key in range(4)], seq=number * 10)])
        if number == 8:
            DeltaTable(str(sink.path)).create_checkpoint()
    rows, files = sink.latest(), sink.files()
    log = set(os.listdir(sink.path / "_delta_log"))
    assert "0 versions would be removed" in asked(sink.path, "--dry-run"), "the table records seven days"
    output = asked(sink.path, "--versions", "2", "--dry-run")
    assert "9 versions would be removed from the log, with" in output
    assert "versions 11 to 12 can be read" in output
    assert (sink.files(), set(os.listdir(sink.path / "_delta_log"))) == (files, log)
    assert "9 versions removed from the log" in asked(sink.path, "--versions", "2")
    assert sink.files() < files
    assert sink.latest() == rows
    assert "0 versions would be removed" in asked(sink.path, "--dry-run", "--versions", "1000")
    write_deltalake(str(tmp_path / "theirs"), pa.table({"a": [1]}))
    assert "was not made by this package" in refused("maintain", tmp_path / "theirs", code=1)


def dead_rows(sink: Sink) -> int:
    target = parse_sink_options(sink.given)
    table = DeltaTable(str(sink.path))
    return sum(vector.cardinality for vector in replay_log(target, table).vectors().values())


def test_compacted_it_reads_as_if_freshly_written(tmp_path, monkeypatch):
    """One file for each bucket and no dead row, whatever was there; who follows the table and who writes it goes on."""
    options = {"key": "k,w", "time": "t", "buckets": "2", "maintenance": "off", "engine": "vectors"}
    columns = pa.schema([("k", pa.int64()), ("w", pa.int64()), ("t", pa.int64()), ("v", pa.string())])
    sink = Sink(tmp_path, columns, options=options)
    sink.batch(0, [sink.rows([(key, 0, 0, "base") for key in range(24_000)])])
    for number in range(1, 10):
        more = [(key * number, number % 2, number, f"v{number}") for key in range(200)]
        sink.batch(number, [sink.rows(more, seq=30_000 + number * 1_000)])

    def rows() -> list[dict[str, object]]:
        return sorted(sink.table().to_pylist(), key=lambda row: (row["k"], row["w"]))

    before, version = rows(), sink.version()
    assert dead_rows(sink) > 0
    assert len(sink.live_files()) > 2
    output = asked(sink.path, "--compact", "--dry-run")
    assert (sink.version(), "rewritten" in output) == (version, False)
    output = asked(sink.path, "--compact")
    assert "files rewritten: merged, and without dead rows" in output
    assert dead_rows(sink) == 0
    assert len(sink.live_files()) == 2
    assert rows() == before
    assert check_table(str(sink.path)).healthy
    changed = DeltaTable(str(sink.path)).version()
    assert "rewritten" not in asked(sink.path, "--compact"), "nothing is left to do"
    assert sink.version() == changed

    # The query goes on, one that is in the midst of a batch as well.
    sink.batch(10, [sink.rows([(3, 0, 90, "newer"), (5, 0, -1, "older")], seq=60_000)])
    commit_between(monkeypatch, lambda: asked(sink.path, "--compact"))
    sink.batch(11, [sink.rows([(3, 0, 91, "newest"), (7, 0, 5, "seven")], seq=70_000)])
    found = {(row["k"], row["w"]): row["v"] for row in rows()}
    assert (found[3, 0], found[5, 0], found[7, 0]) == ("newest", "base", "seven")
    assert len(found) == len(before) == sink.table().num_rows
    assert check_table(str(sink.path)).healthy


def test_compaction_that_is_always_overtaken_is_reported(tmp_path, monkeypatch):
    options = {"key": "k", "time": "t", "buckets": "1", "maintenance": "off", "engine": "vectors"}
    sink = Sink(tmp_path, options=options)
    sink.batch(0, [sink.rows([(key, 0, "base") for key in range(20_000)])])
    sink.batch(1, [sink.rows([(key, 1, "more") for key in range(10)], seq=30_000)])
    before, files = sink.latest(), sink.files()
    monkeypatch.setattr("upstream.sink.table.table.put_entry", lambda *_: False)
    assert "another program has written" in refused("maintain", sink.path, "--compact", code=1)
    assert sink.latest() == before
    assert sink.files() == files, "what was written for nothing is removed"
