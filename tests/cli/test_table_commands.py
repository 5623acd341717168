import json
import os
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from kit.programs import run_python
from kit.races import commit_between
from kit.registries import begun
from kit.sink import Sink

from upstream.cli.table_commands import commands
from upstream.sink.admin.check import check_table
from upstream.sink.spec.options import parse_sink_options
from upstream.sink.table.table import replay_log

from .in_process import command, done, refused

ARGUMENTS = {"rebucket": ["5"], "set-history": ["latest 2"], "erase": ["--key", "1"], "why": ["1"]}
NAMES = [each.name or each.callback.__name__ for each in commands.registered_commands if each.callback]
NAMES.sort(key=lambda name: name in ARGUMENTS)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_what_is_no_table_is_a_sentence(name, tmp_path):
    said = refused(name, "nowhere", *ARGUMENTS.get(name, []), cwd=tmp_path, code=1)
    assert re.search("there is no (table|folder) .*nowhere", said)


def test_a_file_of_a_job_is_for_another_command(tmp_path):
    (tmp_path / "job.sql").write_text("")
    assert "`upstream run job.sql --to FOLDER`" in refused("check", "job.sql", cwd=tmp_path)


def test_help_breaks_its_lines_at_the_width_of_the_terminal(tmp_path):
    said = done("run", "--help", cwd=tmp_path, COLUMNS="200")
    assert " For any other change of the file, use upstream apply." in said


@pytest.mark.parametrize("name", ["show", "maintain", "status", "commits"])
def test_a_table_that_cannot_be_opened_is_a_sentence(name, tmp_path):
    damaged = tmp_path / "damaged" / "_delta_log"
    damaged.mkdir(parents=True)
    (damaged / f"{0:020d}.json").write_text("{")
    assert "damaged cannot be opened" in refused(name, "damaged", cwd=tmp_path, code=1)


def test_none_needs_java(tmp_path):
    """In a process of their own: in this one Spark may run already."""
    assert len(NAMES) == 12
    sink = Sink(tmp_path)
    sink.batch(0, [sink.rows([(1, 10, "a"), (2, 10, "b")])])
    program = """
        import json, sys
        from typer.testing import CliRunner
        from upstream.cli.main import app
        results = [CliRunner().invoke(app, arguments) for arguments in json.loads(sys.argv[1])]
        print(json.dumps([[result.exit_code, result.output] for result in results]))
    """
    asked = [
        ["sql", "SHOW VIEWS", "--checkpoint", begun(tmp_path)],
        *([name, "table", *ARGUMENTS.get(name, [])] for name in NAMES),
    ]
    ran = run_python(program, json.dumps(asked), cwd=tmp_path, PATH=str(tmp_path), JAVA_HOME="")
    assert ran.returncode == 0, ran.stderr
    for (name, *_), (code, output) in zip(asked, json.loads(ran.stdout), strict=True):
        assert (code, bool(output.strip())) == (0, True), (name, output)
    assert sink.latest() == {2: (10, "b")}


@pytest.fixture
def sink(tmp_path):
    made = Sink(tmp_path)
    made.batch(0, [made.rows([(key, 10, "v") for key in range(40)])])
    return made


def test_from_wrong_to_right(sink, tmp_path):
    right = done("check", sink.path)
    assert "40 rows in 4 buckets, 4 files; 0 tombstones" in right
    assert right.splitlines()[-1].startswith("ok:")
    gone = min(sink.live_files())
    (sink.path / gone).unlink()
    wrong = command("check", "table", cwd=tmp_path)
    assert wrong.returncode == 1
    assert f"wrong: bucket 0: the data file {gone} cannot be read" in wrong.stdout
    assert "`upstream repair table --dry-run`" in wrong.stdout
    announced = done("repair", sink.path, "--dry-run")
    assert "--force" in refused("repair", sink.path, code=1), "rows that are lost go only if that is asked for"
    mended = done("repair", sink.path, "--force")
    found = [line.removeprefix("would be ") for line in announced.splitlines() if "done: " in line]
    assert found == [line for line in mended.splitlines() if "done: " in line]
    assert "rows: 40 before, " in announced
    assert "is at version 1" in mended, "what to restore"
    done("check", sink.path)
    assert done("repair", sink.path) == "nothing to repair\n"


def test_a_source_misuse_and_another_keep(sink, tmp_path):
    pq.write_table(pa.table({"k": [1, 2], "t": [10, 99]}), tmp_path / "input.parquet")
    found = command("check", sink.path, "--source", tmp_path / "input.parquet")
    assert found.returncode == 1
    assert "1 keys of the source are newer there, or only there (such as 2)" in found.stdout
    refused("repair", sink.path, "--retention", "soon")
    kept = done("set-history", "table", "latest 3", cwd=tmp_path)
    assert kept == f"table keeps latest 3 since version {sink.version()}\n"
    assert "keeps latest 3, and would have to keep all" in refused("set-history", sink.path, "all", code=1)


def asked(*arguments: str | Path) -> str:
    return done("maintain", *arguments)


def test_a_table_is_maintained_by_hand_and_that_of_others_is_left_alone(tmp_path):
    options = {"key": "k", "eventTime": "t", "buckets": "2", "maintenance": "off"}
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
    options = {"key": "k,w", "eventTime": "t", "buckets": "2", "maintenance": "off", "engine": "vectors"}
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
    options = {"key": "k", "eventTime": "t", "buckets": "1", "maintenance": "off", "engine": "vectors"}
    sink = Sink(tmp_path, options=options)
    sink.batch(0, [sink.rows([(key, 0, "base") for key in range(20_000)])])
    sink.batch(1, [sink.rows([(key, 1, "more") for key in range(10)], seq=30_000)])
    before, files = sink.latest(), sink.files()
    monkeypatch.setattr("upstream.sink.table.table.put_entry", lambda *_: False)
    assert "another program has written" in refused("maintain", sink.path, "--compact", code=1)
    assert sink.latest() == before
    assert sink.files() == files, "what was written for nothing is removed"
