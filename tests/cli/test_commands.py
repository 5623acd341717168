"""The commands as a person runs them: in a process of their own."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable
from kit.places import BUSES
from kit.programs import COMMAND, run_command
from kit.waiting import wait_for

from upstream.sink.figures.summary import read_summaries

LATEST = ["latest", "--key", "vehicle_id", "--time", "timestamp", "--master", "local[2]"]


@pytest.fixture(scope="module")
def buses() -> pl.DataFrame:
    """The newest row of each bus, computed plainly."""
    rows = pl.read_csv(BUSES, try_parse_dates=True).with_row_index("arrival")
    return rows.sort("timestamp", "arrival").group_by("vehicle_id").last().drop("arrival").sort("vehicle_id")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `upstream latest --once` makes of the recording."""
    folder = tmp_path_factory.mktemp("cli")
    more = ["--target", "max < 1 h", "--metrics", "metrics", "--expected-keys", "8500000"]
    done = run_command(*LATEST, "--from", BUSES, "--to", "latest", "--once", *more, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "max < 1 h 00 min met in 100 % of batches." in done.stderr
    commits = [summary.batch_id for _, summary in read_summaries(str(folder / "latest"))]
    assert sorted(pl.read_delta(str(folder / "metrics")).get_column("batch_id").to_list()) == commits
    assert re.search(r"16,759 rows in \d+ batch", done.stderr)
    assert "the table has 151 keys" in done.stderr
    assert "Traceback" not in done.stderr
    assert "WARN" not in done.stderr
    assert done.stdout == ""
    assert DeltaTable(folder / "latest").metadata().configuration["upstream.buckets"] == "17"
    return folder / "latest"


@pytest.mark.spark
def test_once_gives_the_plain_answer_and_a_second_run_nothing_new(table: Path, buses: pl.DataFrame) -> None:
    got = pl.read_delta(str(table)).select("vehicle_id", "speed", "trip_headsign").sort("vehicle_id")
    assert got.equals(buses.select("vehicle_id", "speed", "trip_headsign"))
    version = DeltaTable(table).version()
    again = run_command(*LATEST, "--from", BUSES, "--to", table, "--once", cwd=table.parent)
    assert (again.returncode, again.stderr.strip()) == (0, "Nothing new came.")
    assert DeltaTable(table).version() == version


@pytest.mark.spark
def test_show(table: Path) -> None:
    done = run_command(
        "show", table, "--limit", "3", "--where", "speed > 10", "--order-by", "speed DESC", cwd=table.parent
    )
    assert done.returncode == 0, done.stderr
    head, *rows, foot = done.stdout.splitlines()
    assert head.split() == [
        "vehicle_id",
        "timestamp",
        "speed",
        "route_id",
        "trip_id",
        "latitude",
        "longitude",
        "trip_headsign",
    ]
    assert [row.split()[0] for row in rows] == ["2302", "5011", "2215"]
    assert re.match(r"3 of \d+ rows; version \d+, complete to 2016-11-24 2", foot)


@pytest.mark.spark
def test_show_needs_no_java(table: Path, tmp_path: Path) -> None:
    arguments = ("show", table, "--format", "json", "--columns", "vehicle_id,speed", "--limit", "0")
    done = run_command(*arguments, cwd=tmp_path, PATH=str(tmp_path), JAVA_HOME="")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 151
    assert set(rows[0]) == {"vehicle_id", "speed"}
    csv = run_command("show", table, "--format", "csv", "--all", "--limit", "1", cwd=tmp_path)
    assert "_upstream_bucket" in csv.stdout.splitlines()[0]


def test_show_opens_a_table_as_other_verbs_do(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged" / "_delta_log"
    damaged.mkdir(parents=True)
    (damaged / f"{0:020d}.json").write_text("{")
    for name, message in (
        ("nowhere", "there is no table in nowhere. Expected"),
        ("damaged", "the table in damaged cannot be opened"),
    ):
        shown, maintained = (run_command(verb, name, cwd=tmp_path) for verb in ("show", "maintain"))
        assert shown.returncode == maintained.returncode == 1
        assert shown.stderr == maintained.stderr
        assert message in shown.stderr


@pytest.mark.spark
def test_show_reports_what_is_wrong_in_a_sentence(table: Path) -> None:
    for arguments, message in (
        ((str(table), "--columns", "sped"), "no column sped; it has vehicle_id"),
        ((str(table), "--where", "sped > 1"), "cannot be asked that"),
        ((str(table), "--where", "speed >"), "cannot be asked that"),
    ):
        done = run_command("show", *arguments, cwd=table.parent)
        assert done.returncode in {1, 2}
        assert message in done.stderr
        assert "Traceback" not in done.stderr


def test_a_wrong_option_is_a_sentence_before_spark_starts(tmp_path: Path) -> None:
    arguments = [*LATEST, "--from", BUSES, "--to", "latest", "--once", "--log", "my.log", "-o", "maxRowsPerTriger=10"]
    done = run_command(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    (sentence,) = done.stderr.strip().splitlines()
    assert "unknown option 'maxRowsPerTriger', did you mean 'maxRowsPerTrigger'?" in sentence
    assert not (tmp_path / "my.log").exists(), "nothing has been started that could say more"
    assert not (tmp_path / "latest").exists()


@pytest.mark.spark
def test_a_missing_feed_is_a_sentence(tmp_path: Path) -> None:
    done = run_command(*LATEST, "--from", "nothing.csv", "--to", "latest", "--once", cwd=tmp_path)
    assert done.returncode in {1, 2}
    assert "nothing.csv" in done.stderr
    assert "Traceback" not in done.stderr
    assert "\tat " not in done.stderr


def test_no_java_is_a_sentence(tmp_path: Path) -> None:
    done = run_command(*LATEST, "--from", BUSES, "--to", "latest", cwd=tmp_path, PATH=str(tmp_path), JAVA_HOME="")
    assert done.returncode == 1
    assert done.stderr.startswith("There is no Java")


def test_usage(tmp_path: Path) -> None:
    assert run_command("latest", "--from", "x", cwd=tmp_path).returncode == 2
    assert run_command("latest", "--to", "t", "--key", "k", "-o", "nonsense", cwd=tmp_path).returncode == 2
    for command in ((), ("latest",), ("show",)):
        done = run_command(*command, "--help", cwd=tmp_path)
        assert done.returncode == 0
        assert "Usage" in done.stdout
    assert "upstream 0." in run_command("--version", cwd=tmp_path).stdout


@pytest.mark.spark
def test_follows_a_growing_folder_and_ends_by_ctrl_c(tmp_path: Path) -> None:
    """At a terminal, with the live line; Ctrl-C goes to the whole group, as a terminal sends it."""
    feed = tmp_path / "feed"
    feed.mkdir()
    (feed / "1.csv").write_text("vehicle_id,timestamp,speed\n1,2016-11-24T00:00:00Z,1.0\n2,2016-11-24T00:00:00Z,2.0\n")
    mine, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *LATEST, "--from", str(feed), "--to", "latest"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        start_new_session=True,
        env={**os.environ, "COLUMNS": "200", "TERM": "xterm"},
    )
    os.close(theirs)
    shown = bytearray()

    def rows() -> dict[int, float]:
        while select.select([mine], [], [], 0)[0]:
            shown.extend(os.read(mine, 65536))
        if not read_summaries(str(tmp_path / "latest")):
            return {}
        dataset = DeltaTable(tmp_path / "latest").to_pyarrow_dataset()
        with duckdb.connect() as engine:
            engine.register("latest", dataset)
            return dict(engine.sql("SELECT vehicle_id, speed FROM latest").fetchall())

    try:
        wait_for(lambda: rows() == {1: 1.0, 2: 2.0}, process.poll)
        with open(feed / "1.csv", "a") as file:
            file.write("1,2016-11-24T00:01:00Z,1.5\n")
        (feed / "2.csv").write_text(
            "vehicle_id,timestamp,speed\n3,2016-11-24T00:00:00Z,3.0\n2,2016-11-23T00:00:00Z,9.9\n"
        )
        wait_for(lambda: rows() == {1: 1.5, 2: 2.0, 3: 3.0}, process.poll)
        wait_for(lambda: rows() and b"3 keys" in shown, process.poll)
        os.killpg(process.pid, signal.SIGINT)
        end = time.monotonic() + 120
        while process.poll() is None:
            assert time.monotonic() < end, shown.decode()
            rows()
            time.sleep(0.05)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        os.close(mine)
    output = shown.decode()
    assert process.returncode == 0, output
    assert "rows/s in" in output
    assert "staleness p50" in output
    assert "the table has 3 keys" in output
    assert "Traceback" not in output


@pytest.mark.spark
def test_once_interrupted_is_not_done_and_the_next_run_ends_it_and_names_malformed_rows(tmp_path: Path) -> None:
    """A run that was to finish and did not says so by its exit code."""
    feed = tmp_path / "feed"
    feed.mkdir()
    for number in range(12):
        rows = "".join(f"{key},{number * 1000 + key},{number}\n" for key in range(1000))
        (feed / f"{number:02d}.csv").write_text("key,ms,value\n" + rows)
    with (feed / "11.csv").open("a") as file:
        file.write(",11500,12\n")  # without a key
    arguments = [
        "latest",
        "--from",
        str(feed),
        "--to",
        "latest",
        "--key",
        "key",
        "--time",
        "ms",
        "-o",
        "timeFormat=epoch_ms",
    ]
    arguments += ["-o", "maxRowsPerTrigger=1000", "--once", "--master", "local[2]"]
    process = subprocess.Popen([*COMMAND, *arguments], cwd=tmp_path, stderr=subprocess.PIPE, start_new_session=True)
    try:
        wait_for(lambda: len(read_summaries(str(tmp_path / "latest"))) >= 2, process.poll)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert process.returncode == 130, errors
    before = max(version for version, _ in read_summaries(str(tmp_path / "latest")))
    done = run_command(*arguments, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    commits = read_summaries(str(tmp_path / "latest"), before)
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["version"], each["batch_id"], each["rows"]) for each in printed] == [
        (version, commit.batch_id, commit.rows) for version, commit in commits
    ]
    assert printed
    got = pl.read_delta(str(tmp_path / "latest"))
    assert got.height == 1000
    assert set(got["value"]) == {11}
    assert f"1 malformed row is in {tmp_path / 'latest_quarantine'}" in done.stderr.replace("\n", "")
    assert shutil.which("java")  # it was needed
