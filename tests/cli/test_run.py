"""`upstream run` and `apply` as a person uses them: a file is run, edited, applied, and run again."""

import json

import duckdb
import polars as pl
import pytest
from kit.places import BUSES
from kit.programs import run_command

from .in_process import command, done, refused

FILE = f"""
-- The fleet, by route.
CREATE SOURCE buses FROM '{BUSES}'
  WITH (key = 'vehicle_id', event_time = 'timestamp', watermark_delay = '5 minutes', max_files_per_trigger = 1);
CREATE FUNCTION twice(x DOUBLE) RETURNS DOUBLE AS 'functions:twice';
CREATE VIEW moving AS SELECT * FROM LATEST(buses) WHERE twice(speed) > 0;
CREATE MATERIALIZED VIEW fleet WITH (weight = 2) AS
  SELECT route_id, COUNT(*) AS n /* that move */ FROM moving GROUP BY route_id;
CREATE SOURCE shifts FROM 'shifts/' WITH (key = 'bus', event_time = 'day', time_zone = 'Europe/Paris');
CREATE SOURCE drivers FROM 'drivers/' WITH (key = 'bus', event_time = 'at', watermark_delay = '0 seconds',
  confirmations = 1, dead_letter_rows = 'late');
CREATE MATERIALIZED VIEW shifts_now AS
  SELECT s.bus, name, day FROM LATEST(shifts) AS s JOIN LATEST(drivers) AS d ON s.bus = d.bus;
CREATE MATERIALIZED VIEW days WITH (lateness = '1 hour') AS
  SELECT DATE_TRUNC('DAY', at) AS day, COUNT(*) AS n FROM drivers GROUP BY 1;
CREATE MATERIALIZED VIEW buses_now AS SELECT COUNT(*) AS n FROM LATEST(buses);
"""
SOURCE = f"CREATE SOURCE s FROM '{BUSES}' WITH (key = 'vehicle_id', event_time = 'timestamp');"
LATEST = f"""
SELECT * FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY NULL) AS arrival FROM read_csv('{BUSES}'))
QUALIFY ROW_NUMBER() OVER (PARTITION BY vehicle_id ORDER BY timestamp DESC, arrival DESC) = 1
"""


def expected(speed: int) -> dict[int, int]:
    return dict(
        duckdb.sql(f"SELECT route_id, COUNT(*) FROM ({LATEST}) WHERE speed > {speed} GROUP BY route_id").fetchall()
    )


def fleet(folder) -> dict[int, int]:
    return dict(pl.read_delta(str(folder / "lake" / "fleet")).select("route_id", "n").rows())


@pytest.mark.spark
def test_a_file_is_run_edited_applied_and_run_again(tmp_path):
    file = tmp_path / "job.sql"
    file.write_text(FILE)
    module = "import pyarrow.compute as pc\n\ndef twice(x):\n    return pc.multiply(x, 2)\n"
    (tmp_path / "functions.py").write_text(module)
    for folder in ("shifts", "drivers"):
        (tmp_path / folder).mkdir()
    (tmp_path / "shifts" / "1.csv").write_text("bus,day\n7,2026-01-02\n8,2026-07-02\n9,never\n")
    drivers = '{"bus": 7, "at": "2026-01-01T00:00:00Z", "name": "Ann"}\n'
    (tmp_path / "drivers" / "1.json").write_text(drivers + drivers.replace("7", "8"))
    run = ("run", "job.sql", "--to", "lake", "--once", "--master", "local[2]")
    first = run_command(*run, "--ui", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "The workbench is at http://127.0.0.1:" in first.stderr
    letters = f"upstream show {tmp_path / 'lake_checkpoint' / 'dead_letters'}"
    for printed in (first.stderr, done("status", tmp_path / "lake_checkpoint")):
        assert "1 row is a dead letter of" in printed
        assert letters in printed
    assert f"fleet  {len(expected(0))} rows, complete to 2016-11-24 " in first.stdout
    assert fleet(tmp_path) == expected(0)

    # A later column of a feed is none of the job's.
    (tmp_path / "shifts" / "2.csv").write_text("bus,day\n7,2026-01-03\n")
    (tmp_path / "drivers" / "2.json").write_text('{"bus": 5, "at": "2025-12-31T22:00:00Z", "name": "Late"}\n')
    later = '{"bus": 8, "at": "2026-01-02T00:00:00Z", "age": 40, "name": "Bo"}\n'
    (tmp_path / "drivers" / "0.json").write_text(later)
    edited = FILE.replace("twice(speed) > 0", "twice(speed) > 18")
    division = "SELECT SUM(route_id / (vehicle_id - vehicle_id)) AS x FROM LATEST(buses)"
    failing = f"CREATE MATERIALIZED VIEW failing AS {division};"
    file.write_text(edited.partition("CREATE MATERIALIZED VIEW buses_now")[0] + failing)
    changed = run_command(*run, cwd=tmp_path)
    assert changed.returncode == 2
    assert "~ alter view moving" in changed.stderr
    assert "upstream apply" in changed.stderr
    applied = run_command("apply", "job.sql", "--to", "lake", "--yes", cwd=tmp_path)
    assert applied.stdout.splitlines()[0].startswith("- drop materialized view buses_now")
    assert run_command("apply", "job.sql", "--to", "lake", cwd=tmp_path).stdout == "Nothing to change.\n"
    again = run_command(*run, cwd=tmp_path)
    assert again.returncode == 1
    assert "An error stopped failing." in again.stderr
    assert "failing  stopped: " in again.stdout
    assert "Resuming after batch " in again.stderr
    assert fleet(tmp_path) == expected(9)
    shown = done("show", "lake/shifts_now", "--order-by", "bus", "--format", "csv", cwd=tmp_path)
    assert shown.splitlines() == [
        "bus,name,day", "7,Ann,2026-01-02T23:00:00.000000+0000", "8,Bo,2026-07-01T22:00:00.000000+0000"
    ]  # fmt: skip
    assert done("show", "lake/fleet", "--format", "csv", cwd=tmp_path).splitlines()[0] == "route_id,n"
    assert pl.read_delta(str(tmp_path / "lake" / "days"))["n"].to_list() == [2]
    listed = [json.loads(line) for line in done("status", tmp_path / "lake_checkpoint", "--json").splitlines()]
    assert {each["name"]: (each["late"], each["complete_from"]) for each in listed}["days"] == (1, None)
    assert "2 rows are dead letters, the first of " in done("status", tmp_path / "lake_checkpoint")
    rows = pl.read_delta(str(tmp_path / "lake_checkpoint" / "dead_letters")).filter(pl.col("origin") == "drivers")
    assert rows["reason"].to_list() == ["late for days: below the low-watermark of its results"]
    assert json.loads(rows["payload"][0])["name"] == "Late"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("SELECT 1;", "CREATE statements only"),
        ("CREATE SOURCE s FROM 'nowhere/' WITH (key = 'k', event_time = 't')", "no file with data at 'nowhere/'"),
        (
            f"CREATE SOURCE s FROM '{BUSES}' WITH (key = 'id', event_time = 'timestamp')",
            "'id' is not among the columns",
        ),
        (f"CREATE SOURCE s FROM '{BUSES}' WITH (key = 'route_id')", "has no event time"),
        (f"{SOURCE} CREATE MATERIALIZED VIEW v AS SELECT spede FROM LATEST(s);", "there is no column 'spede'"),
        ("CREATE SOURCE s FROM 'feed/'", "has no key"),
        ("CREATE FUNCTION f(x INT) RETURNS INT AS 'no_module:f'", "'no_module:f' cannot be imported"),
        (None, "job.sql cannot be read"),
    ],
)
def test_a_file_that_is_wrong_is_a_sentence_before_spark_starts(tmp_path, text, part):
    if text is not None:
        (tmp_path / "job.sql").write_text(text)
    found = refused("run", str(tmp_path / "job.sql"), "--to", "lake", cwd=tmp_path, PATH=str(tmp_path), JAVA_HOME="")
    assert part in found
    assert not (tmp_path / "lake_checkpoint").exists()


def test_a_change_takes_the_time_zone_of_the_session(tmp_path):
    (tmp_path / "job.sql").write_text("CREATE VIEW v AS SELECT 1 AS n FROM s")
    zone = ("--conf", "spark.sql.session.timeZone=Mars/Olympus")
    assert "Mars/Olympus" in refused("apply", "job.sql", "--to", "lake", *zone, cwd=tmp_path)


def test_files_are_laid_out_or_checked(tmp_path):
    (tmp_path / "job.sql").write_text("create view v as select a /* one */ from s [now]")
    (tmp_path / "good.sql").write_text(good := "CREATE VIEW v AS\n  SELECT a /* one */\n  FROM s [NOW];\n")
    checked = command("fmt", "--check", "good.sql", "job.sql", cwd=tmp_path)
    assert (checked.returncode, checked.stdout.splitlines()[0]) == (1, "--- job.sql")
    assert "+CREATE VIEW v AS\n+  SELECT a /* one */\n" in checked.stdout
    done("fmt", "good.sql", "job.sql", cwd=tmp_path)
    assert (tmp_path / "job.sql").read_text() == good
    assert done("fmt", "--check", "good.sql", "job.sql", cwd=tmp_path) == ""
    assert done("fmt", "-", given="create view v as select a /* one */ from s [now]") == good
    (tmp_path / "bad.sql").write_text(wrong := "create view v as select from s")
    assert "bad.sql: Line 1, column 8" in refused("fmt", "bad.sql", cwd=tmp_path)
    assert (tmp_path / "bad.sql").read_text() == wrong
