"""Trino, as a server: each kind of table, over its Python client and over JDBC, and while a writer commits."""

from pathlib import Path

import pyarrow as pa
import pytest
from kit.concurrent_readers import attack, maintain_often
from kit.concurrent_readers import check as check_readers
from kit.sink import Sink

from upstream.conf.jars import fetch

from .claims import check, rows_from
from .matrix import FEATURES
from .programs import ROOT, DbApiClient, JdbcClient
from .tables import MARKED, schema_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def trino_tool(tool_module):
    """The module `tools/trino.py`."""
    return tool_module("trino")


@pytest.fixture(scope="module")
def server(trino_tool, tables, large, tmp_path_factory):
    try:
        trino_tool.trino_java()
        trino_tool.trino_server()
    except RuntimeError as error:
        pytest.skip(str(error))
    with trino_tool.Trino(tmp_path_factory.mktemp("trino"), tables) as started:
        yield started


@pytest.fixture(scope="module")
def client(server, large):
    made = DbApiClient(large, "trino", server.port)
    yield made
    made.end()


@pytest.fixture(scope="module")
def jdbc(server, trino_tool):
    home = ROOT / ".cache" / "trino"
    output = fetch(home, [f"io.trino:trino-jdbc:{trino_tool.VERSION}"])
    found = sorted(home.glob("jars/io.trino_trino-jdbc-*.jar"))
    if not found:
        pytest.skip(f"Trino's driver could not be fetched:\n{output[-2000:]}")
    made = JdbcClient(f"jdbc:trino://127.0.0.1:{server.port}/delta/default?user=test", found[-1])
    yield made
    made.end()


def selected(feature: str) -> str:
    """All of a table; a time that would round up into the year 10000, beyond every client, becomes the last before."""
    if feature != "zoned":
        return f"SELECT * FROM {feature}"
    return "SELECT k, t, least(at, TIMESTAMP '9999-12-31 23:59:59.999 UTC') AS at FROM zoned"


@pytest.mark.parametrize("feature", FEATURES)
def test_tables_by_its_client_in_python(client, feature):
    check("trino", feature, lambda: rows_from(client.query(selected(feature)), feature))


@pytest.mark.parametrize("feature", FEATURES)
def test_tables_over_jdbc(jdbc, feature):
    columns = ", ".join(
        f'json_format(CAST("{field.name}" AS JSON)) AS "{field.name}"'
        if pa.types.is_nested(field.type)
        else f'"{field.name}"'
        for field in schema_of(feature)
    )
    query = selected(feature).replace("*", columns)
    check("trino_jdbc", feature, lambda: rows_from(jdbc.query(query), feature))


def test_rows_that_are_marked_as_dead_are_not_counted(client):
    for where in ("true", "k >= 100", "k IN (1, 150, 250)", "_upstream_bucket = 0"):
        counted = client.query(f"SELECT count(*) AS n FROM {MARKED} WHERE {where}")
        listed = client.query(f"SELECT k FROM {MARKED} WHERE {where}")
        assert counted == [{"n": len(listed)}]


def test_reading_while_a_writer_commits_and_cleans_up(client, server, tmp_path, monkeypatch):
    """Each read sees whole batches, and none that is older than what was committed when it began."""
    maintain_often(monkeypatch)
    sink = Sink(tmp_path, options={"key": "k", "eventTime": "t", "buckets": "4", "retentionVersions": "100"})
    registered: list[Path] = []

    def read(path):
        if not registered:
            server.register("written", sink.path)
            registered.append(sink.path)
        found = client.query("SELECT k, t FROM written")
        assert not isinstance(found, str), found
        return pa.Table.from_pylist(found)

    check_readers(sink, attack(sink, {"trino": read}, batches=220, seconds=0))
