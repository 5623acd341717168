"""A file with fifty views, edited and applied while rows flow, with its job killed: each table is DuckDB's answer."""

import contextlib
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from kit.jobs import Job, kill_session
from kit.programs import COMMAND, run_command
from kit.waiting import wait_for

VIEWS = 50
LAST = 4
RUN = ("run", "job.sql", "--to", "lake", "--master", "local[2]")


def query(number: int, edited: int) -> str:
    """A query of one of five kinds; an edit moves its bound."""
    bound = number + edited
    return (
        f"SELECT route, COUNT(*) AS n FROM LATEST(buses) WHERE speed > {bound} GROUP BY route",
        f"SELECT MAX(speed) AS top, COUNT(*) AS n FROM LATEST(buses) WHERE bus % {bound + 2} = 0",
        f"SELECT bus, speed * {bound} AS v FROM LATEST(buses) WHERE speed > {bound}",
        f"SELECT bus % {number + 1} AS g, SUM(speed) AS total FROM buses GROUP BY bus % {number + 1}",
        f"SELECT COUNT(*) AS n, SUM(speed) AS total FROM fast WHERE speed > {bound}",
    )[number % 5]


def job_file(*, edited: bool) -> tuple[str, dict[str, str]]:
    """The file, and its queries by name. The edit changes the view that ten read, ten texts, and ten names."""
    fast = f"SELECT * FROM LATEST(buses) WHERE speed > {7 if edited else 5}"
    queries = {f"{'w' if edited and each % 5 == 1 else 'v'}{each}": query(each, edited * 3) for each in range(VIEWS)}
    views = "".join(f"CREATE MATERIALIZED VIEW {name} AS {text};\n" for name, text in queries.items())
    options = "watermark_delay = '1 second', max_jump = '2 days', max_files_per_trigger = 1"
    source = f"WITH (key = 'bus', event_time = 't', {options})"
    return f"CREATE SOURCE buses FROM 'feed/*.csv' {source};\nCREATE VIEW fast AS {fast};\n{views}", {
        "fast": fast,
        **queries,
    }


def write(place: Path, number: int) -> None:
    """Write a file of rows, each file later than the one before."""
    chance = random.Random(number)
    (place / "feed").mkdir(exist_ok=True)
    lines = [
        f"{chance.randrange(40)},2026-01-01T00:{number:02d}:{second:02d}Z,r{chance.randrange(4)},{chance.randrange(80)}"
        for second in range(60)
    ]
    lines += ["40,2026-01-02T00:00:00Z,r0,9"] * 10 * (number == LAST)  # all others count before these
    (place / "feed" / f".{number}").write_text("\n".join(["bus,t,route,speed", *lines, ""]))
    (place / "feed" / f".{number}").rename(place / "feed" / f"{number}.csv")


def rows_of(table: Path) -> list[tuple[object, ...]]:
    frame = pl.read_delta(str(table))
    shown = [name for name in frame.columns if not name.startswith("_upstream") and name != "row_key"]
    return sorted(frame.select(shown).rows(), key=str)


def version(table: Path) -> int:
    try:
        return DeltaTable(str(table)).version()
    except TableNotFoundError:
        return -1


@contextlib.contextmanager
def answers(place: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB over all rows: those that count as `buses`, and the newest ones of keys as `latest`."""
    with duckdb.connect() as engine:
        engine.sql(f"CREATE TABLE buses AS SELECT * FROM read_csv('{place}/feed/*.csv') WHERE t < '2026-01-02'")
        engine.sql(f"CREATE TABLE every AS SELECT * FROM read_csv('{place}/feed/*.csv')")
        engine.sql("CREATE VIEW latest AS FROM every QUALIFY ROW_NUMBER() OVER (PARTITION BY bus ORDER BY t DESC) = 1")
        yield engine


@pytest.mark.fault
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_file_of_fifty_views_is_applied_edited_and_killed_while_rows_flow(tmp_path):
    write(tmp_path, 1)
    (tmp_path / "job.sql").write_text(job_file(edited=False)[0])
    with (tmp_path / "log").open("w") as log:
        job = subprocess.Popen([*COMMAND, *RUN], cwd=tmp_path, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_for(lambda: version(tmp_path / "lake" / "v49") >= 0, job.poll)
        write(tmp_path, 2)
        text, queries = job_file(edited=True)
        (tmp_path / "job.sql").write_text(text)
        applied = run_command("apply", "job.sql", "--to", "lake", "--yes", cwd=tmp_path)
        assert applied.returncode == 0, applied.stderr
        write(tmp_path, 3)
        wait_for(lambda: version(tmp_path / "lake" / "w1") >= 0, job.poll)
    finally:
        kill_session(job)  # while it commits the others' tables
    write(tmp_path, LAST)
    done = run_command(*RUN, "--once", cwd=tmp_path)
    assert done.returncode == 0, done.stderr

    with answers(tmp_path) as engine:
        engine.sql(f"CREATE VIEW fast AS {queries.pop('fast').replace('LATEST(buses)', 'latest')}")
        for name, sql in queries.items():
            expected = sorted(engine.sql(sql.replace("LATEST(buses)", "latest")).fetchall(), key=str)
            assert rows_of(tmp_path / "lake" / name) == expected, name


FUNCTION = "import pyarrow.compute as pc\n\n\ndef scored(speed, bus):\n    return pc.add(pc.multiply(speed, 2), bus)\n"
SCORED = {
    "newest": "SELECT bus, speed * 2 + bus AS s FROM latest WHERE speed * 2 + 1 > 20",
    "every": "SELECT route, COUNT(*) AS n, SUM(speed * 2 + bus) AS s FROM buses GROUP BY route",
}


@pytest.mark.fault
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_dataframe_as_source_and_a_function_in_python_are_killed_again_and_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where Spark's workers look for the function
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    (tmp_path / "functions.py").write_text(FUNCTION)
    script = Path(__file__).with_name("sql_source_job.py")
    job = Job(script, tmp_path / "log", (tmp_path / "feed", tmp_path / "lake"))
    write(tmp_path, 1)
    for number, name in ((2, "newest"), (3, "every")):
        before = version(tmp_path / "lake" / name)
        write(tmp_path, number)
        job.kill_when(lambda before=before, name=name: version(tmp_path / "lake" / name) > before)
    write(tmp_path, LAST)
    job.finish("once")

    with answers(tmp_path) as engine:
        for name, sql in SCORED.items():
            assert rows_of(tmp_path / "lake" / name) == sorted(engine.sql(sql).fetchall(), key=str), name
