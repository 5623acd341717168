"""Tables of every kind, and programs that read or keep them."""

import urllib.request

import pyarrow.parquet as pq
import pytest
from kit.environments import environment

from .programs import HERE, ROOT, Asked, free_port, started
from .stored import SECRETS, StoredSink, UnreliableStore
from .tables import KINDS, MARKED, write_table


@pytest.fixture(scope="session")
def others():
    """Return a Python that has other readers, and nothing of this project."""
    return environment("readers")


@pytest.fixture(scope="session")
def large():
    """A Python that has what is too large for each run of the tests."""
    python = ROOT / ".cache" / "engines" / "bin" / "python"
    if not python.exists():
        pytest.skip("make .cache/engines/.locked installs ClickHouse and a Java for Trino")
    return python


@pytest.fixture(scope="session")
def tables(tmp_path_factory):
    """A table of each kind, as the sink leaves it."""
    home = tmp_path_factory.mktemp("tables")
    return {kind: write_table(home / kind, kind) for kind in (*KINDS, MARKED)}


@pytest.fixture(scope="session")
def engine(tmp_path_factory):
    """An engine by its environment's Python and its name: a table's rows, or what it says against it."""
    running: dict[str, Asked] = {}
    place = tmp_path_factory.mktemp("engines") / "rows.parquet"

    def ask(python, name, table):
        if name not in running:
            running[name] = Asked(python, HERE / "other_engines.py", name)
        return running[name].ask(f"{table}\t{place}") or pq.read_table(place)

    yield ask
    for each in running.values():
        each.end()


@pytest.fixture(scope="session")
def object_store(others, tmp_path_factory):
    """A server of the S3 protocol with one bucket, ``lake``."""
    port = free_port()
    log = tmp_path_factory.mktemp("s3") / "s3.log"
    command = [others, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with started(command, log, "Running on http", port, PYTHONPATH="") as server:
        made = urllib.request.Request(f"http://127.0.0.1:{port}/lake", method="PUT")
        with urllib.request.urlopen(made) as answer:
            assert answer.status == 200
        yield server


@pytest.fixture
def storage(object_store):
    address = f"http://127.0.0.1:{object_store.port}"
    return {"endpoint_url": address, "allow_http": "true", "region": "us-east-1", **SECRETS}


@pytest.fixture
def stored(tmp_path, storage):
    """Makes sinks of one table in the store; more storage options go by their names."""

    def make(query_id="query-1", **more):
        return StoredSink(
            tmp_path, query_id=query_id, address=f"s3://lake/{tmp_path.name}", storage={**storage, **more}
        )

    return make


@pytest.fixture
def unreliable_store(others, object_store):
    """The same objects by another address, whose answers a test spoils."""
    client = Asked(others, HERE / "unreliable_store.py", str(object_store.port), *SECRETS.values())
    yield UnreliableStore(f"http://127.0.0.1:{client.hear()}", client)
    client.kill()
