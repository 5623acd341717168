"""Streams and batches of a client of Spark Connect: what works, and what is refused."""

import json
import os
import sys
from pathlib import Path

import pytest
from kit.connect import connect_environment
from kit.feeds import write_csv
from kit.programs import run, run_python

pytestmark = pytest.mark.spark

ROWS = [(key, f"1970-01-01T00:00:{second:02d}Z", key * 10 + second) for second in range(12) for key in (1, 2)]


@pytest.fixture(scope="module")
def gave(tmp_path_factory):
    """What each part of the job gave; one client runs them all, in a folder that is not the server's."""
    folder = tmp_path_factory.mktemp("connect")
    write_csv(folder / "feed" / "0.csv", "vehicle,at,speed", ROWS)
    job = Path(__file__).with_name("job.py")
    done = run(sys.executable, job, folder, cwd=folder, env={**os.environ, **connect_environment()})
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("session", ["pyspark.sql.connect.session", [], True]),
        ("steps", [[1, 42], [2, 62]]),
        ("coalesced", [[1, 21]]),
        ("window", [[1, 17.5, 4], [2, 27.5, 4]]),
        ("batch", [[1, 10]]),
        ("named_batches", [[1, 12], [2, 12]]),
    ],
)
def test_what_works(gave, part, expected):
    assert gave[part] == expected


@pytest.mark.parametrize(
    ("part", "kind", "words"),
    [
        ("window_of_coalesced_rows", "SchemaError", ["the source coalesces"]),
        ("queue_without_rocksdb", "EnvironmentMissingError", ["HDFSBackedStateStoreProvider", "queue"]),
        ("merge", "EnvironmentMissingError", ["Spark Connect"]),
        ("batches_without_a_name", "StreamingQueryException", ["a write without a name", 'add queryId="…"']),
    ],
)
def test_what_is_refused(gave, part, kind, words):
    found, text = gave[part]
    assert found == kind
    assert all(word in text for word in words), text


def test_a_client_without_its_packages_is_refused():
    done = run_python("import upstream; upstream.session(**{'spark.remote': 'local'})", PYTHONPATH=None)
    assert "EnvironmentMissingError: Spark Connect needs grpc, grpc_status, zstandard" in done.stderr
    assert "pip install 'pyspark[connect]" in done.stderr
