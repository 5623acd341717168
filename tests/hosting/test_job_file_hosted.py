"""A file with fifty views, applied, edited and applied again while rows flow, in a job that restarts in each batch."""

import random
from collections import Counter
from datetime import timedelta

import duckdb
from kit.continuous import BUSES, EPOCH
from kit.hosting import Tables, frame, run, scanned
from kit.local_host import LocalHost

from upstream.hosting.job_file import apply, definitions
from upstream.hosting.journal import Journal, Settings
from upstream.hosting.messages import Command
from upstream.hosting.registry import registry_at, registry_now
from upstream.language.statements import script

VIEWS = 50
EDITS = (0, None, 1, 2)
"""The file that is applied before each batch, if one is."""


def query(number: int, edit: int) -> str:
    """A query of one of five kinds; an edit moves its bound, except of what only grows or reads the view."""
    bound = number + 3 * edit
    return (
        f"SELECT route_id, COUNT(*) AS n FROM LATEST(buses) WHERE speed > {bound} GROUP BY route_id",
        f"SELECT MAX(speed) AS top, COUNT(*) AS n FROM LATEST(buses) WHERE speed < {bound}",
        f"SELECT vehicle_id, speed * {bound} AS v FROM LATEST(buses) WHERE speed > {bound}",
        f"SELECT route_id, SUM(speed) AS total FROM buses WHERE speed > {number} GROUP BY route_id",
        f"SELECT COUNT(*) AS n, SUM(speed) AS total FROM fast WHERE speed > {number}",
    )[number % 5]


def job_file(edit: int) -> tuple[str, dict[str, str]]:
    """A file, and the texts of its views by name: an edit changes the view that ten read, texts, and ten names."""
    fast = f"SELECT * FROM LATEST(buses) WHERE speed > {30 + 10 * edit}"
    queries = {f"{'vwx'[edit] if each % 5 == 1 else 'v'}{each}": query(each, edit) for each in range(VIEWS)}
    views = "".join(f"CREATE MATERIALIZED VIEW {name} AS {text};\n" for name, text in queries.items())
    return f"CREATE VIEW fast AS {fast};\n{views}", {"fast": fast, **queries}


def test_each_table_is_the_answer_of_duckdb_after_edits_and_restarts(tmp_path):
    chance = random.Random(7)
    checkpoint = str(tmp_path / "checkpoint")
    Journal(checkpoint).write_settings(Settings("/lake", 3, (BUSES,)))
    host = LocalHost(lambda version: registry_at(checkpoint, version), 2)
    tables: Tables | None = None
    with duckdb.connect() as engine:
        engine.sql("CREATE TABLE buses (vehicle_id VARCHAR, route_id VARCHAR, speed DOUBLE, timestamp BIGINT)")
        engine.sql(
            "CREATE VIEW latest AS FROM buses "
            "QUALIFY ROW_NUMBER() OVER (PARTITION BY vehicle_id ORDER BY timestamp DESC) = 1"
        )
        for batch, edit in enumerate(EDITS):
            if edit is not None:
                text, queries = job_file(edit)
                apply(checkpoint, definitions([*script(text)]), {}, None, change=True)
                engine.sql(f"CREATE OR REPLACE VIEW fast AS {queries.pop('fast').replace('LATEST(buses)', 'latest')}")
            rows = [
                (f"b{chance.randrange(30)}", f"r{chance.randrange(4)}", float(chance.randrange(80)), second)
                for second in range(60 * batch, 60 * batch + 60)
            ]
            engine.executemany("INSERT INTO buses VALUES (?, ?, ?, ?)", rows)
            version = Journal(checkpoint).version()
            plan = host.plan(version)
            tables = tables or Tables(plan)
            tables.plan = plan
            moments = [(*row, EPOCH + timedelta(seconds=second)) for *row, second in rows]
            end = int((EPOCH + timedelta(minutes=batch + 1)).timestamp() * 1_000_000)
            seconds = [row[-1] + 1 for row in rows]
            came = scanned(BUSES, frame(BUSES, moments), seconds, {"f": end}, sequences=seconds)
            # As a job that dies before its commit: another process runs the batch again, and goes on.
            host = run(host, Command(batch, version), {"buses": [came]}, tables)
            assert not tables.failed
            for name, sql in queries.items():
                query_id, names = known(checkpoint, name)
                at = [tables.plan.queries[query_id].result.schema.names.index(each) for each in names]
                found = Counter({tuple(row[each] for each in at): n for row, n in tables.contents(query_id).items()})
                assert found == Counter(engine.sql(sql.replace("LATEST(buses)", "latest")).fetchall()), (batch, name)


def known(checkpoint: str, name: str) -> tuple[int, list[str]]:
    """The incarnation and the columns of a query."""
    found = registry_now(checkpoint).active[name]
    return found.id, found.query.schema.names
