"""Trino, a server of its own: each kind of table, over its client in Python and over JDBC, and while a writer commits."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from test_reading_while_writing import attack, often  # noqa: F401 a fixture
from test_reading_while_writing import check as check_readers
from written import Sink

from upstream.conf.jars import fetch

from .matrix import FEATURES
from .programs import ROOT, DbApiClient, JdbcClient
from .test_compatibility import check
from .values import rows_from

if TYPE_CHECKING:
    from types import ModuleType

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def trino_tool() -> ModuleType:
    """The module `tools/trino.py`."""
    spec = importlib.util.spec_from_file_location("the_trino_tool", ROOT / "tools" / "trino.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def server(
    trino_tool: ModuleType, tables: dict[str, Path], large: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    try:
        trino_tool.trino_java()
        trino_tool.trino_server()
    except RuntimeError as error:
        pytest.skip(str(error))
    with trino_tool.Trino(tmp_path_factory.mktemp("trino"), tables) as started:
        yield started


@pytest.fixture(scope="module")
def client(server: Any, large: Path) -> Iterator[DbApiClient]:
    made = DbApiClient(large, "trino", server.port)
    yield made
    made.end()


@pytest.fixture(scope="module")
def jdbc(server: Any, trino_tool: ModuleType) -> Iterator[JdbcClient]:
    home = ROOT / ".cache" / "trino"
    said = fetch(home, [f"io.trino:trino-jdbc:{trino_tool.VERSION}"])
    found = sorted(home.glob("jars/io.trino_trino-jdbc-*.jar"))
    if not found:
        pytest.skip(f"Trino's driver could not be fetched:\n{said[-2000:]}")
    made = JdbcClient(f"jdbc:trino://127.0.0.1:{server.port}/delta/default?user=test", found[-1])
    yield made
    made.end()


@pytest.mark.parametrize("feature", FEATURES)
def test_tables_by_its_client_in_python(client: DbApiClient, feature: str) -> None:
    check("trino", feature, lambda: rows_from(client.query(f"SELECT * FROM {feature}"), feature))


@pytest.mark.parametrize("feature", FEATURES)
def test_tables_over_jdbc(jdbc: JdbcClient, feature: str) -> None:
    check("trino_jdbc", feature, lambda: rows_from(jdbc.query(f"SELECT * FROM {feature}"), feature))


@pytest.mark.parametrize("where", ["", "WHERE k >= 100", "WHERE k IN (1, 150, 250)", "WHERE _upstream_bucket = 0"])
def test_counts_leave_out_what_is_deleted(client: DbApiClient, where: str) -> None:
    counted = client.query(f"SELECT count(*) AS n FROM vectors {where}")
    listed = client.query(f"SELECT k FROM vectors {where}")
    assert counted == [{"n": len(listed)}]


def test_a_commit_with_deletion_vectors_is_seen_at_once(client: DbApiClient, server: Any, tmp_path: Path) -> None:
    options = {"key": "k", "time": "t", "buckets": "1", "engine": "vectors", "indexLocation": str(tmp_path / "index")}
    sink = Sink(tmp_path, options=options)
    sink.batch(0, [sink.rows([(key, 0, "x") for key in range(6000)])])
    server.register("marked", sink.path)
    chance = np.random.default_rng(5)
    newest = np.zeros(6000, dtype=np.int64)
    for number in range(1, 12):
        keys = chance.choice(6000, 40, replace=False)
        newest[keys] = number
        sink.batch(number, [sink.rows([(int(key), number, "y") for key in keys], seq=number * 10_000)])
        (found,) = client.query("SELECT count(*) AS n, count(DISTINCT k) AS keys, sum(k * t) AS total FROM marked")
        assert found == {"n": 6000, "keys": 6000, "total": int((np.arange(6000) * newest).sum())}
    assert list(sink.path.rglob("deletion_vector_*.bin"))


@pytest.mark.usefixtures("often")
def test_reading_while_a_writer_commits_and_cleans_up(client: DbApiClient, server: Any, tmp_path: Path) -> None:
    """Each read sees whole batches, and none that is older than what was committed when it began."""
    sink = Sink(tmp_path, options={"key": "k", "time": "t", "buckets": "4", "retentionVersions": "100"})
    registered: list[Path] = []

    def read(path: str) -> pa.Table:
        if not registered:
            server.register("written", sink.path)
            registered.append(sink.path)
        found = client.query("SELECT k, t FROM written")
        assert not isinstance(found, str), found
        return pa.Table.from_pylist(found)

    check_readers(sink, attack(sink, {"trino": read}, batches=220, seconds=0))
