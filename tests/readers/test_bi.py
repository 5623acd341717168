"""A BI tool's two ways to Spark's Thrift server, started by `upstream serve`: JDBC, and PyHive."""

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
import pytest
from kit.waiting import wait_for

import upstream

from .claims import check, rows_from
from .matrix import FEATURES
from .programs import DbApiClient, JdbcClient, serving
from .tables import KINDS, schema_of

KEYS = "abcdefgh"
Ask = Callable[[str], Any]


class Live:
    """A table that a query keeps committing to, with its metrics."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.feed, self.path, self.metrics = folder / "feed", folder / "live", folder / "metrics"
        self.feed.mkdir()
        self._spark, self._count = spark, 0
        self.put(1)

    def put(self, value: int) -> None:
        """One row of each key, in a file of its own: enough of them that the outlier guard believes their time."""
        at = dt.datetime(2024, 1, 1) + dt.timedelta(minutes=self._count)
        (self.feed / f".{self._count}").write_text("k,t,v\n" + "".join(f"{key},{at},{value}\n" for key in KEYS))
        (self.feed / f".{self._count}").rename(self.feed / f"{self._count:04d}.csv")
        self._count += 1

    def start(self, **trigger: Any) -> Any:
        updates = upstream.latest(self._spark, str(self.feed), key="k", event_time="t", watermark="ordered")
        places = {"metricsLocation": self.metrics, "checkpointLocation": f"{self.path}_checkpoint"}
        writer = upstream.write_latest(updates, self.path, buckets=2, key="k", event_time="t", **places)
        return writer.trigger(**trigger).start()


@pytest.fixture(scope="module")
def live(spark, tmp_path_factory):
    made = Live(spark, tmp_path_factory.mktemp("live"))
    made.start(availableNow=True).awaitTermination()
    return made


@pytest.fixture(scope="module")
def server(tables, live, tmp_path_factory):
    served = {**tables, "live": live.path}
    with serving(served, tmp_path_factory.mktemp("serve"), "--metrics", live.metrics) as started:
        yield started


@pytest.fixture(scope="module")
def clients(server, others):
    url = f"jdbc:hive2://{server.host}:{server.port}/"
    jdbc = JdbcClient(url, f"{pyspark.__path__[0]}/jars/*")
    pyhive = DbApiClient(others, "pyhive", server.port)
    yield {"jdbc": jdbc.query, "pyhive": pyhive.query}
    jdbc.end()
    pyhive.end()


@pytest.mark.parametrize("kind", FEATURES)
@pytest.mark.parametrize("client", ["jdbc", "pyhive"])
def test_tables_over_the_thrift_server(clients, client, kind):
    check(client, kind, lambda: rows_from(clients[client](f"SELECT * FROM `{kind}`"), kind))


def test_what_the_sink_keeps_for_itself_is_not_shown(clients):
    found = clients["pyhive"]("SELECT * FROM plain LIMIT 1")
    assert list(found[0]) == schema_of("plain").names
    assert {row["tableName"] for row in clients["pyhive"]("SHOW TABLES")} >= {*KINDS, "live", "live_freshness"}


def test_a_wrong_query_is_reported(clients):
    for ask in clients.values():
        error = ask("SELECT nothing FROM plain")
        assert isinstance(error, str)
        assert "UNRESOLVED_COLUMN" in error


def test_fresh_rows_while_a_query_commits(clients, live):
    query = live.start(processingTime="0 seconds")
    try:
        for value in range(2, 5):
            live.put(value)
            for ask in clients.values():
                _until_seen(ask, value)
            seen = clients["pyhive"]("SELECT * FROM live_freshness")
            complete = clients["jdbc"](
                "SELECT complete_up_to, since_commit_s >= 0 AS fresh, behind_s > 0 AS behind, keys FROM live_freshness"
            )
            assert len(seen) == 1
            assert (complete[0]["fresh"], complete[0]["behind"], complete[0]["keys"]) == (b"true", b"true", b"8")
    finally:
        query.stop()


def _until_seen(ask: Ask, value: int) -> None:
    seen = [0]

    def look() -> bool:
        rows = ask("SELECT k, v FROM live")
        keys = [row["k"].decode() if isinstance(row["k"], bytes) else row["k"] for row in rows]
        assert sorted(keys) == list(KEYS), "no key twice, none missing"
        (found,) = {int(row["v"]) for row in rows}  # a commit is seen whole
        assert found >= seen[-1], "time does not go back"
        seen.append(found)
        return found >= value

    wait_for(look)


def test_history_reports_freshness(spark, live):
    notes = [row.userMetadata for row in spark.sql(f"DESCRIBE HISTORY delta.`{live.path}`").collect()]
    noted = json.loads(next(note for note in notes if note))
    assert noted["keys"] == len(KEYS)
    assert noted["complete_up_to"].startswith("2024-01-01T00:")
    assert dt.datetime.fromisoformat(noted["committed_at"].removesuffix("Z")) > dt.datetime(2024, 1, 2)
