"""`upstream sql` as a person runs it: a query to its end, a script, and a conversation at a terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path

import polars as pl
import pytest
from kit.places import BUSES
from kit.programs import COMMAND, run_command
from kit.waiting import wait_for

STREAM = f"buses={BUSES};key=vehicle_id;time=timestamp"
COUNT = "SELECT route_id, COUNT(*) AS n FROM LATEST(buses) GROUP BY route_id"


@pytest.fixture(scope="module")
def routes() -> dict[int, int]:
    """How many buses are on each route, of the newest rows."""
    rows = pl.read_csv(BUSES, try_parse_dates=True).with_row_index("arrival")
    latest = rows.sort("timestamp", "arrival").group_by("vehicle_id").last()
    return dict(latest.group_by("route_id").len().rows())


@pytest.mark.spark
def test_once_prints_the_result_keeps_its_table_and_a_second_run_goes_on(
    tmp_path: Path, routes: dict[int, int]
) -> None:
    arguments = ("sql", "--stream", STREAM, COUNT, "--to", "lake", "--name", "routes", "--once", "--master", "local[2]")
    done = run_command(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    names, *lines = [line.split() for line in done.stdout.splitlines()]
    assert names == ["route_id", "n"]
    # Rows of earlier batches go again; what comes less what goes is the result.
    found: dict[int, int] = {}
    for sign, route, n in lines:
        if sign == "+":
            found[int(route)] = int(n)
        elif found[int(route)] == int(n):
            del found[int(route)]
    assert found == routes
    table = pl.read_delta(str(tmp_path / "lake" / "routes"))
    assert dict(table.select("route_id", "n").rows()) == routes
    again = run_command(*arguments, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert pl.read_delta(str(tmp_path / "lake" / "routes")).height == len(routes)


@pytest.mark.spark
def test_a_script_of_statements_comes_by_standard_input(tmp_path: Path, routes: dict[int, int]) -> None:
    script = f"CREATE VIEW moving AS SELECT * FROM LATEST(buses) WHERE speed > 0; \\d moving\n{COUNT};"
    command = [*COMMAND, "sql", "--stream", STREAM, "--once", "--master", "local[2]"]
    done = subprocess.run(
        command, cwd=tmp_path, input=script, capture_output=True, text=True, check=False, env={**os.environ}
    )
    assert done.returncode == 0, done.stderr
    assert "vehicle_id" in done.stdout
    come = [line.split() for line in done.stdout.splitlines() if line.startswith("+")]
    assert {int(route): int(n) for _, route, n in come} == routes
    assert list(tmp_path.iterdir()) == [], "without --to nothing is left"


@pytest.mark.spark
def test_a_conversation_at_a_terminal(tmp_path: Path) -> None:
    feed = tmp_path / "feed"
    feed.mkdir()
    (feed / "1.csv").write_text("vehicle_id,timestamp,speed\n1,2016-11-24T00:00:00Z,1.0\n2,2016-11-24T00:00:00Z,2.0\n")
    mine, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "sql", "--stream", "buses=feed/;key=vehicle_id;time=timestamp", "--to", "lake"],
        cwd=tmp_path,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**os.environ, "COLUMNS": "120", "TERM": "xterm"},
    )
    os.close(theirs)
    shown = bytearray()

    def has(text: str) -> bool:
        while select.select([mine], [], [], 0)[0]:
            shown.extend(os.read(mine, 65536))
        return text in shown.decode(errors="replace")

    def type_(line: str) -> None:
        shown.clear()
        os.write(mine, line.encode() + b"\n")

    try:
        wait_for(lambda: has("upstream=>"), process.poll)
        type_("CREATE MATERIALIZED VIEW fast AS SELECT vehicle_id, speed FROM LATEST(buses) WHERE speed > 1.5;")
        wait_for(lambda: has("fast is registered"), process.poll)
        type_("SELECT nothing FROM LATEST(buses);")
        wait_for(lambda: has("nothing") and has("upstream=>"), process.poll)
        type_("SELECT COUNT(*) AS buses_now FROM LATEST(buses);")
        wait_for(lambda: has("buses_now") and has("2"), process.poll)
        (feed / "2.csv").write_text("vehicle_id,timestamp,speed\n3,2016-11-24T00:00:10Z,3.0\n")
        wait_for(lambda: has("3"), process.poll)
        shown.clear()
        os.killpg(process.pid, signal.SIGINT)
        wait_for(lambda: has("upstream=>"), process.poll)
        type_("\\d")
        wait_for(lambda: has("fast") and has("upstream=>"), process.poll)
        assert "select_1" not in shown.decode()
        type_("\\q")
        end = time.monotonic() + 60
        while process.poll() is None:
            assert time.monotonic() < end, shown.decode()
            has("")
            time.sleep(0.05)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        os.close(mine)
    assert process.returncode == 0, shown.decode()
    assert dict(pl.read_delta(str(tmp_path / "lake" / "fast")).select("vehicle_id", "speed").rows()) == {2: 2.0, 3: 3.0}
    assert sorted(each.name for each in (tmp_path / "lake").iterdir()) == ["fast"]


def test_what_is_no_stream_is_a_sentence_before_spark_starts(tmp_path: Path) -> None:
    done = run_command("sql", "--stream", "buses=feed/", "SELECT 1", cwd=tmp_path)
    assert done.returncode == 2
    assert "has no key" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spark
def test_a_query_that_is_refused_is_a_sentence_that_points_at_the_place(tmp_path: Path) -> None:
    done = run_command(
        "sql", "--stream", STREAM, "SELECT spede FROM LATEST(buses)", "--master", "local[1]", cwd=tmp_path
    )
    assert done.returncode == 2
    assert "Line 1, column 8" in done.stderr
    assert "speed" in done.stderr
    assert "Traceback" not in done.stderr
