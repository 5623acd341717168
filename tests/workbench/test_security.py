"""The guard of the workbench, line by line."""

import json
import os
import stat

import pytest
from starlette.testclient import TestClient

from upstream.workbench import security
from upstream.workbench.security import kept_token

TOKEN = "secret-token"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.mark.parametrize("path", ["/", "/api/v1/tables", "/api/v1/events", "/static/app.js", "/nowhere", "/?token=no"])
def test_nothing_is_answered_without_the_token(client, path):
    answer = client.get(path)
    assert answer.status_code == 401
    assert TOKEN not in answer.text
    assert answer.headers["connection"] == "close", "a client cannot pile up requests whose answers it does not read"


def test_the_address_with_the_token_sets_a_cookie_that_no_script_and_no_other_site_gets(client):
    answer = client.get(f"/?token={TOKEN}", follow_redirects=False)
    assert answer.status_code == 303
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get("/api/v1/tables").json()["tables"][0]["name"] == "table"


def test_the_cookie_is_a_secret_of_its_own_that_ends_with_the_server(client, app):
    """Whoever listens on the port after the server gets the cookie of an open page."""
    given = [client.get(f"/?token={TOKEN}", follow_redirects=False).headers["set-cookie"] for _ in range(2)]
    secrets = [each.partition("=")[2].partition(";")[0] for each in given]
    assert secrets[0] != secrets[1]
    assert TOKEN not in given[0]
    assert client.get("/api/v1/tables").status_code == 200
    with TestClient(app(), cookies=dict(client.cookies)) as restarted:
        assert restarted.get("/api/v1/tables").status_code == 401
        restarted.cookies.clear()
        assert restarted.get(f"/?token={secrets[1]}").status_code == 401


def test_only_so_many_sessions_are_kept(app, monkeypatch):
    monkeypatch.setattr(security, "_SESSIONS", 2)
    with TestClient(app()) as client:
        secrets = []
        for _ in range(3):
            client.get(f"/?token={TOKEN}")
            secrets.append(client.cookies["upstream_session"])
        for secret, status in zip(secrets, (401, 200, 200), strict=True):
            cookie = {"Cookie": f"upstream_session={secret}"}
            client.cookies.clear()
            assert client.get("/api/v1/tables", headers=cookie).status_code == status


def test_a_bearer_token_needs_no_cookie(client):
    assert client.get("/api/v1/tables", headers=BEARER).status_code == 200
    assert client.get("/api/v1/tables", headers={"Authorization": "Bearer no"}).status_code == 401


def test_a_name_of_another_site_for_this_address_is_refused(known):
    assert known.get("/api/v1/tables", headers={"Host": "evil.example"}).status_code == 421
    assert known.get("/api/v1/tables", headers={**BEARER, "Host": "testserver:8383"}).status_code == 200


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
    assert post(iter([b'{"a"', b": 1}"])).json() == {"body": {"a": 1}}
    assert post("[" * 60_000).status_code == 400
    assert post('{"a": ' * 40 + "1" + "}" * 40).status_code == 400


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


def test_a_token_outlives_the_server_in_a_file_that_only_its_user_can_read(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    token = kept_token("127.0.0.1:8383 lake")
    (path,) = (tmp_path / "upstream").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert kept_token("127.0.0.1:8383 lake") == token != kept_token("127.0.0.1:8384 lake")
    path.chmod(0o644)
    assert kept_token("127.0.0.1:8383 lake") != token
    path.unlink()
    os.symlink("/etc/hostname", path)
    assert kept_token("127.0.0.1:8383 lake") != token


def test_workbenches_at_two_ports_of_a_host_have_cookies_of_their_own(client):
    names = [
        client.get(f"/?token={TOKEN}", headers={"Host": f"testserver:{port}"}, follow_redirects=False).headers[
            "set-cookie"
        ]
        for port in (1, 2)
    ]
    assert names[0].split("=")[0] != names[1].split("=")[0]
