"""`upstream sql` as a person runs it: a query to its end, a script, a conversation at a terminal, and changes."""

import json
import subprocess
from contextlib import closing

import polars as pl
import pytest
from kit.places import BUSES
from kit.programs import COMMAND, run_command
from kit.registries import FAST, OF_FAST, begun

from upstream.hosting.journal import Journal
from upstream.hosting.registry import registry_now

from .in_process import command, done, refused
from .terminal import Terminal

SOURCE = f"CREATE SOURCE buses FROM '{BUSES}' WITH (key = 'vehicle_id', event_time = 'timestamp');"
COUNT = "SELECT route_id, COUNT(*) AS n FROM LATEST(buses) GROUP BY route_id"


@pytest.fixture(scope="module")
def routes():
    """How many buses are on each route, of the newest rows."""
    rows = pl.read_csv(BUSES, try_parse_dates=True).with_row_index("arrival")
    latest = rows.sort("timestamp", "arrival").group_by("vehicle_id").last()
    return dict(latest.group_by("route_id").len().rows())


@pytest.mark.parametrize("arguments", [("sql", "SELECT FROM", "--once"), ("run", "job.sql", "--to", "lake")])
def test_a_text_that_cannot_be_read_waits_for_no_java(tmp_path, arguments):
    (tmp_path / "job.sql").write_text(f"{SOURCE}\nCREATE MATERIALIZED VIEW v AS SELECT FROM LATEST(buses);")
    ran = run_command(*arguments, cwd=tmp_path, PATH=str(tmp_path), JAVA_HOME="")
    assert ran.returncode == 2
    assert "'FROM' is not expected here. Expected: an expression." in ran.stderr
    assert "^^^^" in ran.stderr


@pytest.mark.spark
def test_once_prints_the_result_keeps_its_table_and_a_second_run_goes_on(tmp_path, routes):
    arguments = ("sql", SOURCE + COUNT, "--to", "lake", "--name", "routes", "--once", "--master", "local[2]")
    first = run_command(*arguments, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    names, *lines = [line.split() for line in first.stdout.splitlines()]
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
    # The checkpoint has the source's statement.
    again = run_command("sql", COUNT, *arguments[2:], cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert pl.read_delta(str(tmp_path / "lake" / "routes")).height == len(routes)


@pytest.mark.spark
def test_a_script_of_statements_ends_at_the_first_error(tmp_path, routes):
    script = f"{SOURCE} CREATE VIEW moving AS SELECT * FROM LATEST(buses) WHERE speed > 0; \\d moving\n{COUNT};"
    script += "SELECT spede FROM LATEST(buses); \\?"
    command = [*COMMAND, "sql", "--once", "--master", "local[2]"]
    ran = subprocess.run(command, cwd=tmp_path, input=script, capture_output=True, text=True, check=False)
    assert ran.returncode == 2, ran.stderr
    assert "vehicle_id" in ran.stdout
    come = [line.split() for line in ran.stdout.splitlines() if line.startswith("+")]
    assert {int(route): int(n) for _, route, n in come} == routes
    assert "EXPLAIN" not in ran.stdout, "nothing runs after the error"
    assert "Line 1, column 8" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert list(tmp_path.iterdir()) == [], "without --to nothing is left"


@pytest.mark.spark
def test_a_conversation_at_a_terminal(tmp_path):
    feed = tmp_path / "feed"
    feed.mkdir()
    (feed / "1.csv").write_text("vehicle_id,timestamp,speed\n1,2016-11-24T00:00:00Z,1.0\n2,2016-11-24T00:00:00Z,2.0\n")
    with closing(Terminal("sql", "--to", "lake", cwd=tmp_path, typing=True)) as terminal:
        terminal.wait_for("upstream=>")
        terminal.type("CREATE SOURCE buses FROM 'feed/' WITH (key = 'vehicle_id', event_time = 'timestamp');")
        terminal.wait_for("Created source buses")
        terminal.type("CREATE MATERIALIZED VIEW fast AS SELECT vehicle_id, speed FROM LATEST(buses) WHERE speed > 1.5;")
        terminal.wait_for("Created materialized view fast")
        terminal.type("SELECT nothing FROM LATEST(buses);")
        terminal.wait_for("nothing", "upstream=>")
        terminal.type("SELECT COUNT(*) AS buses_now FROM LATEST(buses);")
        terminal.wait_for("buses_now", "2")
        (feed / "2.csv").write_text("vehicle_id,timestamp,speed\n3,2016-11-24T00:00:10Z,3.0\n")
        terminal.wait_for("3")
        terminal.interrupt()
        terminal.wait_for("upstream=>")
        terminal.type("\\d")
        terminal.wait_for("fast", "upstream=>")
        assert "select_1" not in terminal.shown()
        terminal.type("\\q")
        terminal.end()
    assert dict(pl.read_delta(str(tmp_path / "lake" / "fast")).select("vehicle_id", "speed").rows()) == {2: 2.0, 3: 3.0}
    assert sorted(each.name for each in (tmp_path / "lake").iterdir()) == ["fast"]


ZONE = "spark.sql.session.timeZone"
HOURS = "SELECT vehicle_id, HOUR(timestamp) AS h FROM LATEST(buses)"


def test_statements_without_rows_change_a_job_that_runs_elsewhere(tmp_path):
    checkpoint = begun(tmp_path, str(tmp_path / "lake"))
    job = ("--to", tmp_path / "lake", "--checkpoint", checkpoint)
    made = f"CREATE VIEW fast AS {FAST}; CREATE MATERIALIZED VIEW q WITH (weight = 2) AS {OF_FAST}"
    done("sql", made, "--checkpoint", checkpoint)
    assert done("sql", "SHOW CREATE q", *job) == f"CREATE MATERIALIZED VIEW q WITH (weight = 2) AS {OF_FAST};\n"
    done("sql", *job, given=f"CREATE MATERIALIZED VIEW h AS {HOURS};", cwd=tmp_path)
    done("sql", f"ALTER MATERIALIZED VIEW h AS {HOURS} WHERE speed > 1", *job, "--conf", f"{ZONE}=Europe/Berlin")
    done("sql", "ALTER MATERIALIZED VIEW q PAUSE", *job)
    found = registry_now(checkpoint).queries
    assert [(each.name, each.weight, each.active, each.time_zone) for each in found.values()] == [
        ("q", 2.0, False, "UTC"),
        ("h", 1.0, True, "Europe/Berlin"),
    ]
    assert "'Europe/Berlin'" in done("sql", "EXPLAIN h", *job)
    assert [line.split()[0] for line in done("sql", "\\d", *job).splitlines()[-3:]] == ["fast", "q", "h"]
    assert json.loads(done("status", checkpoint, "--json").splitlines()[0]) == {
        "name": "q", "text": OF_FAST, "weight": 2.0, "active": False, "reason": None,
        "complete_from": None, "late": 0, "staleness": None, "committed_at": None, "waiting": None,
    }  # fmt: skip
    assert done("status", checkpoint).splitlines()[2].split()[:3] == ["h", "1", "yes"]
    version = Journal(checkpoint).version()
    wrong = command("sql", "ALTER MATERIALIZED VIEW h AS SELECT speeed FROM LATEST(buses); DROP VIEW fast", *job)
    assert wrong.returncode == 2
    assert wrong.stderr.splitlines()[1:] == ["    SELECT speeed FROM LATEST(buses)", "           ^^^^^^"]
    assert "Mars/Base" in refused("sql", "DROP MATERIALIZED VIEW h", *job, "--conf", f"{ZONE}=Mars/Base")
    assert Journal(checkpoint).version() == version
    assert "has no registry of queries" in refused("sql", "SHOW VIEWS", "--to", tmp_path / "other", code=1)


def test_what_is_no_statement_is_a_sentence_before_spark_starts(tmp_path):
    assert "has no key" in refused("sql", "CREATE SOURCE buses FROM 'feed/'; SELECT 1", cwd=tmp_path)
    no_java = {"PATH": str(tmp_path), "JAVA_HOME": ""}
    assert "there is no column 'spede'" in refused("sql", SOURCE + "SELECT spede FROM LATEST(buses)", **no_java)
    assert list(tmp_path.iterdir()) == []
