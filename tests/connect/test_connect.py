"""Streams and batches of a client of Spark Connect: what works, and what is refused in clear words."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from kit.connect import connect_environment
from kit.feeds import write_csv
from kit.programs import run, run_python

pytestmark = pytest.mark.spark

ROWS = [(key, f"1970-01-01T00:00:{second:02d}Z", key * 10 + second) for second in range(12) for key in (1, 2)]


@pytest.fixture(scope="module")
def gave(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each part of the job gave; one client runs them all, in a folder that is not the server's."""
    folder = tmp_path_factory.mktemp("connect")
    write_csv(folder / "feed" / "0.csv", "vehicle,at,speed", ROWS)
    job = Path(__file__).with_name("job.py")
    done = run(sys.executable, job, folder, cwd=folder, env={**os.environ, **connect_environment()}, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_the_preset_makes_a_client_that_lacks_nothing(gave: dict[str, Any]) -> None:
    assert gave["session"] == ["pyspark.sql.connect.session", [], True]


def test_steps_in_python_and_a_filter(gave: dict[str, Any]) -> None:
    assert gave["steps"] == [[1, 42], [2, 62]]


def test_a_coalesced_feed_and_deletions(gave: dict[str, Any]) -> None:
    assert gave["coalesced"] == [[1, 21]]


def test_a_window_of_each_key(gave: dict[str, Any]) -> None:
    assert gave["window"] == [[1, 17.5, 4], [2, 27.5, 4]]


def test_a_window_over_coalesced_rows_is_refused(gave: dict[str, Any]) -> None:
    kind, text = gave["window_of_coalesced_rows"]
    assert kind == "SchemaError"
    assert "the source coalesces" in text


def test_a_queue_without_rocksdb_is_refused_before_the_query_starts(gave: dict[str, Any]) -> None:
    kind, text = gave["queue_without_rocksdb"]
    assert kind == "EnvironmentMissingError"
    assert "HDFSBackedStateStoreProvider, and this step cannot: queue" in text
    assert "call spark.conf.set(" in text


def test_merge_is_refused(gave: dict[str, Any]) -> None:
    kind, text = gave["merge"]
    assert kind == "EnvironmentMissingError"
    assert text.startswith("this Spark session is a client of Spark Connect.")


def test_a_batch_is_written(gave: dict[str, Any]) -> None:
    assert gave["batch"] == [[1, 10]]


def test_in_foreach_batch_a_write_has_to_have_a_name(gave: dict[str, Any]) -> None:
    assert gave["named_batches"] == [[1, 12], [2, 12]]
    kind, text = gave["batches_without_a_name"]
    assert kind == "StreamingQueryException"
    assert "a write without a name inside a foreachBatch of Spark Connect" in text
    assert 'add queryId="…"' in text


def test_a_client_without_its_packages_is_refused() -> None:
    done = run_python("import upstream; upstream.session(**{'spark.remote': 'local'})", PYTHONPATH=None)
    assert "EnvironmentMissingError: Spark Connect needs grpc, grpc_status, zstandard" in done.stderr
    assert 'install "pyspark-upstream[connect]"' in done.stderr
