"""The guard of the workbench, line by line, and the limits of its answers."""

import json

import pytest
from kit.sink import Sink
from starlette.testclient import TestClient

from upstream.conf.errors import OptionError
from upstream.workbench import server
from upstream.workbench.bench import Conflict
from upstream.workbench.watch import Watch

TOKEN = "secret-token"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


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


@pytest.mark.parametrize("path", ["/", "/api/v1/tables", "/api/v1/events", "/static/app.js", "/nowhere", "/?token=no"])
def test_nothing_is_answered_without_the_token(client, path):
    answer = client.get(path)
    assert answer.status_code == 401
    assert TOKEN not in answer.text


def test_the_address_with_the_token_sets_a_cookie_that_no_script_and_no_other_site_gets(client):
    answer = client.get(f"/?token={TOKEN}", follow_redirects=False)
    assert answer.status_code == 303
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get("/api/v1/tables").json()["tables"][0]["name"] == "table"


def test_a_bearer_token_needs_no_cookie(client):
    assert client.get("/api/v1/tables", headers=BEARER).status_code == 200
    assert client.get("/api/v1/tables", headers={"Authorization": "Bearer no"}).status_code == 401


def test_a_name_of_another_site_for_this_address_is_refused(known):
    assert known.get("/api/v1/tables", headers={"Host": "evil.example"}).status_code == 421
    assert known.get("/api/v1/tables", headers={"Host": "testserver:8383"}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://testserver"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({}, 403),
        ({**BEARER}, 200),
        ({**BEARER, "Origin": "http://evil.example"}, 403),
        ({"Origin": "http://testserver", "Content-Type": "text/plain"}, 415),
        ({"Origin": "http://testserver", "Content-Type": "application/x-www-form-urlencoded"}, 415),
    ],
)
def test_a_change_comes_from_the_page_itself_or_with_a_bearer_token(known, headers, status):
    answer = known.post("/api/v1/echo", content="{}", headers={"Content-Type": "application/json", **headers})
    assert answer.status_code == status


def test_the_body_of_a_change_is_a_small_json_object(known):
    def post(content):
        return known.post("/api/v1/echo", content=content, headers={**BEARER, "Content-Type": "application/json"})

    assert post('{"a": 1}').json() == {"body": {"a": 1}}
    assert post("{").status_code == 400
    assert post("[1]").status_code == 400
    assert post(json.dumps({"a": "x" * 70_000})).status_code == 413
    assert post(iter([b"{}"])).status_code == 411


def test_a_workbench_that_only_reads_takes_no_change(app):
    with TestClient(app(control=False)) as client:
        answer = client.post("/api/v1/echo", json={}, headers=BEARER)
        assert answer.status_code == 403
        assert client.get("/api/v1/tables", headers=BEARER).json()["control"] is False


def test_every_answer_forbids_scripts_of_others_and_frames(known):
    for path in ("/", "/api/v1/tables", "/static/app.js", "/nowhere"):
        headers = known.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    assert known.get("/api/v1/tables").headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "path", ["/static/../server.py", "/static/%2e%2e/server.py", "/static//etc/passwd", "/static/"]
)
def test_no_file_beside_the_static_ones_is_given(known, path):
    assert known.get(path).status_code == 404


def test_pages_have_neither_scripts_nor_styles_in_their_markup():
    for page in server.STATIC.rglob("*.html"):
        text = page.read_text()
        assert "style=" not in text
        assert "<style" not in text
        assert all("src=" in part.split(">", 1)[0] for part in text.split("<script")[1:])
        assert "://" not in text


def test_errors_are_problem_documents_and_a_fault_of_ours_shows_nothing_of_itself(known, caplog):
    assert known.get("/api/v1/wrong").json() == {"error": "rows='many'", "expected": "a number", "hint": ""}
    assert known.get("/api/v1/wrong").status_code == 400
    assert known.get("/api/v1/stale").status_code == 409
    assert known.get("/api/v1/events?table=other").status_code == 404
    broken = known.get("/api/v1/broken")
    assert broken.status_code == 500
    assert "division" not in broken.text
    assert "ZeroDivisionError" in caplog.text


def test_a_port_that_is_taken_is_refused_with_words():
    with server.listen("127.0.0.1", 0) as taken, pytest.raises(OptionError, match="choose another port"):
        server.listen("127.0.0.1", taken.getsockname()[1])
