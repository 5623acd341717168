"""A workbench over one table, in process."""

import pytest
from kit.sink import Sink
from starlette.testclient import TestClient

from upstream.conf.errors import OptionError
from upstream.workbench import bench, server
from upstream.workbench.bench import Conflict
from upstream.workbench.watch import Watch

TOKEN = "secret-token"


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A busy machine is no reason to fail."""
    monkeypatch.setattr(bench, "_LIMIT_S", 600.0)


def probe(bench):
    def echo(request):
        return {"body": request.state.body}

    def wrong(_):
        raise OptionError("rows='many'", expected="a number")

    def stale(_):
        raise Conflict("version 3 is not the last")

    return [
        bench.endpoint("/api/v1/echo", echo, methods=["POST"]),
        bench.endpoint("/api/v1/wrong", wrong),
        bench.endpoint("/api/v1/stale", stale),
        bench.endpoint("/api/v1/broken", lambda _: 1 / 0),
    ]


class Probe:
    routes = staticmethod(probe)


@pytest.fixture
def app(tmp_path, monkeypatch):
    sink = Sink(tmp_path)
    sink.batch(0, [sink.rows([(1, 10, "a")])])
    monkeypatch.setattr(server, "_FEATURES", (*server._FEATURES, Probe))
    return lambda **given: server.create_app(Watch([str(tmp_path)], {}), token=TOKEN, hosts=["testserver"], **given)


@pytest.fixture
def client(app):
    with TestClient(app(), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def known(client):
    assert client.get(f"/?token={TOKEN}").status_code == 200
    return client
