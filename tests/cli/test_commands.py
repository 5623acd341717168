"""`upstream latest` as a person runs it, in a process of its own; and what each command has in common."""

import json
import re
import signal
import subprocess
from contextlib import closing

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable
from kit.places import BUSES
from kit.programs import COMMAND, run_command
from kit.waiting import wait_for

from upstream.sink.figures.summary import read_summaries

from .in_process import done, refused
from .terminal import Terminal

LATEST = ["latest", "--key", "vehicle_id", "--event-time", "timestamp", "--master", "local[2]"]


@pytest.mark.spark
def test_once_gives_the_plain_answer_and_a_second_run_nothing_new(tmp_path):
    arguments = [*LATEST, "--from", BUSES, "--to", "latest", "--once"]
    more = ["--target", "max < 1 h", "--metrics", "metrics", "--expected-keys", "8500000"]
    first = run_command(*arguments, *more, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    for part in ("max < 1 h 00 min met in 100 %", "16,759 rows in ", "the table has 151 keys"):
        assert part in first.stderr
    assert "Traceback" not in first.stderr
    assert "WARN" not in first.stderr
    assert first.stdout == ""
    latest = DeltaTable(tmp_path / "latest")
    assert latest.metadata().configuration["upstream.buckets"] == "17"
    commits = [summary.batch_id for _, summary in read_summaries(str(tmp_path / "latest"))]
    assert sorted(pl.read_delta(str(tmp_path / "metrics")).get_column("batch_id").to_list()) == commits
    rows = pl.read_csv(BUSES, try_parse_dates=True).with_row_index("arrival")
    newest = rows.sort("timestamp", "arrival").group_by("vehicle_id").last().sort("vehicle_id")
    columns = ["vehicle_id", "speed", "trip_headsign"]
    assert pl.read_delta(str(tmp_path / "latest")).select(columns).sort("vehicle_id").equals(newest.select(columns))
    again = run_command(*arguments, cwd=tmp_path)
    assert again.returncode == 0
    resuming, nothing = again.stderr.splitlines()
    assert re.fullmatch(r"Resuming after batch \d+ of [0-9: -]+ UTC, 16,759 rows into the input\.", resuming)
    assert nothing == "No new rows."
    assert DeltaTable(tmp_path / "latest").version() == latest.version()


@pytest.mark.spark
def test_change_data_is_ordered_by_its_log_and_deletes(tmp_path):
    def change(op, before, after, pos):
        return json.dumps({"op": op, "before": before, "after": after, "source": {"file": "log.1", "pos": pos}}) + "\n"

    one, two = {"id": 1, "v": "a"}, {"id": 2, "v": "b"}
    (tmp_path / "0.jsonl").write_text(change("c", None, one, 1) + change("c", None, two, 2))
    select = "coalesce(after.id, before.id) AS id, after.*, op, source"
    arguments = ["latest", "--from", "*.jsonl", "--key", "id", "--sequence-by", "source", "--select", select, "--once"]
    arguments += ["--option", "selectDuplicates=first", "--to", "t", "--master", "local[1]", "--delete-when"]
    assert run_command(*arguments, "op = 'd'", cwd=tmp_path).returncode == 0
    gone = change("u", one, {"id": 1, "v": "c"}, 30) + change("u", one, {"id": 1, "v": "old"}, 4)
    (tmp_path / "1.jsonl").write_text(gone + change("d", two, None, 31))
    last = run_command(*arguments, "op = 'd'", cwd=tmp_path)
    assert (last.returncode, "malformed" in last.stderr) == (0, False), last.stderr
    assert pl.read_delta(str(tmp_path / "t")).select("id", "v").rows() == [(1, "c")]


def test_a_wrong_option_is_a_sentence_before_spark_starts(tmp_path):
    arguments = [*LATEST, "--from", BUSES, "--to", "latest", "--once", "--log", "my.log", "-o", "maxRowsPerTriger=10"]
    assert "did you mean 'maxRowsPerTrigger'?" in refused(*arguments, cwd=tmp_path)
    assert [*tmp_path.iterdir()] == [], "nothing has been started that could say more"


@pytest.mark.parametrize(
    ("more", "code", "part"),
    [
        (["--from", "nothing.csv"], 2, "no file with data at 'nothing.csv'"),
        (["--from", "kafka://127.0.0.1:1/topic"], 1, "no Kafka broker answers at 127.0.0.1:1"),
        (["--key", "vehicle"], 2, "'vehicle' is not among the columns"),
        (["--event-time", "at"], 2, "'at' is not among the columns"),
        (["--where", "spede > 1"], 2, "there is no column 'spede'"),
        (["--delete-when", "speed"], 2, "deleteWhen names the column 'speed'"),
        (["--trigger", "soon"], 2, "'soon' is not a duration"),
        (["--target", "p98 < 1 s"], 2, "'p98 < 1 s'"),
        (["--to", "taken"], 1, "taken"),
        (["--metrics", "taken"], 1, "taken"),
    ],
    ids=lambda value: value[0].strip("-") if isinstance(value, list) else "",
)
def test_wrong_input_is_a_sentence_before_spark_starts(tmp_path, more, code, part):
    (tmp_path / "taken").write_text("")
    arguments = [*LATEST, "--from", BUSES, "--to", "latest", "--once", *more]
    if more[0] == "--key":
        arguments = ["latest", *arguments[3:]]
    assert part in refused(*arguments, cwd=tmp_path, code=code, PATH=str(tmp_path), JAVA_HOME="")


def test_a_missing_table_is_not_served(tmp_path):
    found = refused("serve", "nowhere", cwd=tmp_path, code=1, PATH=str(tmp_path), JAVA_HOME="")
    assert f"there is no table in {tmp_path}/nowhere" in found


def test_no_java_is_a_sentence(tmp_path):
    """In a process of its own: in this one Spark may run already."""
    arguments = [*LATEST, "--from", BUSES, "--to", "latest"]
    failed = run_command(*arguments, cwd=tmp_path, PATH=str(tmp_path), JAVA_HOME="")
    assert failed.returncode == 1
    assert failed.stderr.startswith("There is no Java")


def test_usage(tmp_path):
    refused("latest", "--from", "x", cwd=tmp_path)
    refused("latest", "--to", "t", "--key", "k", "-o", "nonsense", cwd=tmp_path)
    for names in ((), ("latest",), ("show",)):
        assert "Usage" in done(*names, "--help")
    assert "upstream 0." in done("--version")


@pytest.mark.spark
def test_follows_a_growing_folder_and_ends_by_ctrl_c(tmp_path):
    feed = tmp_path / "feed"
    feed.mkdir()
    (feed / "1.csv").write_text("vehicle_id,timestamp,speed\n1,2016-11-24T00:00:00Z,1.0\n2,2016-11-24T00:00:00Z,2.0\n")

    def rows() -> dict[int, float]:
        terminal.shown()
        if not read_summaries(str(tmp_path / "latest")):
            return {}
        dataset = DeltaTable(tmp_path / "latest").to_pyarrow_dataset()
        with duckdb.connect() as engine:
            engine.register("latest", dataset)
            return dict(engine.sql("SELECT vehicle_id, speed FROM latest").fetchall())

    with closing(Terminal(*LATEST, "--from", str(feed), "--to", "latest", cwd=tmp_path)) as terminal:
        wait_for(lambda: rows() == {1: 1.0, 2: 2.0}, terminal.process.poll)
        with open(feed / "1.csv", "a") as file:
            file.write("1,2016-11-24T00:01:00Z,1.5\n")
        more = "vehicle_id,timestamp,speed\n3,2016-11-24T00:00:00Z,3.0\n2,2016-11-23T00:00:00Z,9.9\n"
        (feed / "2.csv").write_text(more)
        wait_for(lambda: rows() == {1: 1.5, 2: 2.0, 3: 3.0}, terminal.process.poll)
        terminal.wait_for("3 keys", "rows/s in", "staleness p50")
        terminal.interrupt()
        output = terminal.end()
    assert "the table has 3 keys" in output
    assert "Traceback" not in output


@pytest.mark.spark
def test_once_interrupted_is_not_done_and_the_next_run_ends_it_and_names_malformed_rows(tmp_path):
    """A run that was to finish and did not says so by its exit code."""
    feed = tmp_path / "feed"
    feed.mkdir()
    for number in range(12):
        rows = "".join(f"{key},{number * 1000 + key},{number}\n" for key in range(1000))
        (feed / f"{number:02d}.csv").write_text("key,ms,value\n" + rows)
    with (feed / "11.csv").open("a") as file:
        file.write(",11500,12\n")  # without a key
    arguments = ["latest", "--from", str(feed), "--to", "latest", "--key", "key", "--event-time", "ms", "--once"]
    arguments += ["-o", "timeFormat=epoch_ms", "-o", "maxRowsPerTrigger=1000", "--master", "local[2]"]
    process = subprocess.Popen([*COMMAND, *arguments], cwd=tmp_path, stderr=subprocess.PIPE, start_new_session=True)
    try:
        wait_for(lambda: len(read_summaries(str(tmp_path / "latest"))) >= 2, process.poll)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert process.returncode == 130, errors
    before = max(version for version, _ in read_summaries(str(tmp_path / "latest")))
    ended = run_command(*arguments, "--json", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.startswith("Resuming after batch ")
    commits = read_summaries(str(tmp_path / "latest"), before)
    printed = [json.loads(line) for line in ended.stdout.splitlines()]
    assert printed
    found = [(each["version"], each["batch_id"], each["rows"]) for each in printed]
    assert found == [(version, commit.batch_id, commit.rows) for version, commit in commits]
    got = pl.read_delta(str(tmp_path / "latest"))
    assert got.height == 1000
    assert set(got["value"]) == {11}
    assert "1 row is a dead letter of" in ended.stderr
    assert f"upstream show {tmp_path / 'latest_dead_letters'}" in ended.stderr
