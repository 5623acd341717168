"""Requests that nobody meant: no fault of ours, no file from elsewhere, no secret, no long wait."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.sink import Sink
from starlette.routing import Route
from starlette.testclient import TestClient

import upstream.workbench
from upstream.workbench.server import create_app
from upstream.workbench.watch import Watch

BEARER = {"Authorization": "Bearer token"}
SECRETS = {"aws_secret_access_key": "s3cr3t-storage", "aws_access_key_id": "s3cr3t-id"}
OUTSIDE = "outside-the-tables"

SOURCES = "\n".join(path.read_text() for path in Path(upstream.workbench.__file__).parent.glob("*.py"))
# All that handlers look for in a request.
_READ = r"""(?:query_params(?:\.get(?:list)?\(|\[)|_of\(request, |body(?:\.get\(|\[))["'](\w+)["']"""
NAMES = sorted(set(re.findall(_READ, SOURCES)))
VALUES = st.one_of(
    st.sampled_from(
        [
            *("", "0", "1", "-1", "1e9", "99999999999999999999", "nan", "null", "true", "table", "k=1", "k=1,t=2", "*"),
            *(
                "%00",
                "\x00",
                "../secret",
                "/etc/passwd",
                "../../../../etc/passwd",
                "file:///etc/passwd",
                "s3://bucket/x",
            ),
            *("k = 1", "1=1; DROP TABLE t", "k IN (SELECT 1)", "v LIKE '%a%'", "((((((((((", "read_csv('/etc/passwd')"),
            *("'", '"', "<script>alert(1)</script>", "٣"),
        ]
    ),
    st.text(max_size=30),
    st.integers().map(str),
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), VALUES),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "secret").write_text(OUTSIDE)
    sink = Sink(folder / "lake")
    for batch in range(3):
        sink.batch(batch, [sink.rows([(key, 10 + batch, "<b>a</b>") for key in range(5)], seq=10 * batch)])
    app = create_app(Watch([str(folder / "lake")], SECRETS), token="token", hosts=["testserver"])
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def routes(client):
    found = [each for each in client.app.routes if isinstance(each, Route) and each.path != "/api/v1/events"]
    assert len(found) > 2
    return [(route.path, method) for route in found for method in sorted(route.methods or ()) if method != "HEAD"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_no_request_finds_a_fault(client, data):
    for template, method in routes(client):
        path = re.sub(
            r"\{\w+(:path)?\}", lambda _: data.draw(VALUES).replace("?", "").replace("#", "") or "x", template
        )
        params = data.draw(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4))
        body = data.draw(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=4))
        try:
            answer = client.request(method, path, params=params, headers=BEARER, json=None if method == "GET" else body)
        except Exception as error:
            if "httpx" in type(error).__module__ and "URL" in str(error):  # the client refuses the address itself
                continue
            raise
        asked = f"{method} {path} {params} {json.dumps(body)}"
        assert answer.status_code < 500 or answer.status_code == 503, f"{asked}: {answer.status_code} {answer.text}"
        for secret in (*SECRETS.values(), OUTSIDE, "root:x:"):
            assert secret not in answer.text, asked
        if "json" in answer.headers.get("content-type", ""):
            answer.json()
