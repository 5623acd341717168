"""Requests that no client library would send, to a real server: none of them is a fault of ours."""

import socket
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

import upstream as us

JSON = b"Content-Type: application/json"
METHODS = [b"PUT", b"PATCH", b"DELETE", b"TRACE", b"CONNECT", b"get", b"F\x00O", b""]
TARGETS = [
    *(b"/", b"*", b"//", b"", b"/%", b"/%00", b"/%ff%fe", b"/\xc3\xa9", b"http://evil/", b"http://[/", b"/a" * 2000),
    *(b"/static/%00", b"/static/..%2f..", b"/static/" + b"a" * 5000, b"/static/\\..\\x", b"/static/%2e%2e/x"),
    *(b"/?token", b"/?token=%ff%00", b"/?token=%u1234&token", b"/?" + b"a=b&" * 2000, b"/#/x", b"/?;=&&==%"),
    *(b"/api/v1/tables?table=%00", b"/api/v1/overview?table=\xff", b"/api/v1/events?table=%00&after=-1"),
    *(b"/api/v1/entities/%00", b"/api/v1/heatmap?from=nan&step=1e999", b"/api/v1/summaries?from=\xd9\xa3"),
]  # fmt: skip
VALUES = {
    b"Host": (
        *(b"[", b"]", b"[::1", b"[::1]x", b"a:b:c", b"", b"\xff\xfe", b"h\xe2\x84\x80", b"x" * 9000, b"127.0.0.1:-1"),
        *(b"127.0.0.1:" + b"9" * 500, b"a@127.0.0.1", b"127.0.0.1, x", b"/\\?#"),
    ),
    b"Cookie": (b"=", b";;;", b"\xff=\xff", b'upstream_session="\\377', b"a=" + b"b;" * 2000),
    b"Authorization": (b"Bearer", b"Bearer \xff", b"Basic =", b"bearer  ", b"\x7f"),
    b"Origin": (b"[", b"http://[", b"null", b"\xff", b"://", b"http://127.0.0.1:99999999"),
    b"Content-Length": (b"-1", b"abc", b"1e3", b"9" * 30, b"\xb2", b"0, 0", b"+1", b"65537", b""),
    b"Transfer-Encoding": (b"chunked, chunked", b"gzip", b"identity", b"\xff", b"Chunked"),
    b"Content-Type": (b"\xff", b"application/json; charset=\xff", b";", b"multipart/form-data"),
    b"Accept-Encoding": (b"gzip;q=x", b"\xff", b"*", b"gzip, gzip"),
    b"Range": (b"bytes=", b"bytes=9-1", b"bytes=0-0,1-1", b"bytes=-99999999999", b"x=\xff", b"bytes=a-b"),
    b"If-None-Match": (b"*", b"\xff", b'W/"'),
    b"If-Modified-Since": (b"x", b"Thu, 01 Jan 99999 00:00:00 GMT"),
    b"Last-Event-ID": (b"\xb2", b"-1", b"9" * 30),
    b"Upgrade": (b"websocket\r\nConnection: upgrade",),
    b"Expect": (b"100-continue", b"\xff"),
    b"X-Forwarded-For": (b"[",),
}
HEADERS = [
    *(name + b": " + value for name, values in VALUES.items() for value in values),
    *(b"no colon", b" : folded", b"A: b\r\n c", b": x", b"A : b", b"A: \x00", b"A\xff: b", b"\r\n"),
]
BODIES = [
    *(b"[" * 60_000, b'{"a":' * 900 + b"1" + b"}" * 900, b'{"a": ' + b"9" * 5000 + b"}", b"\xff", b"\x00", b"{}" * 9),
    *(b'{"a": NaN}', b'{"a": 1e999}', b'{"\\ud800": "\\udfff"}', b"\xef\xbb\xbf{}", b"null", b'""', b"x" * 70_000, b""),
]
CHUNKS = [b"2\r\n{}\r\n0\r\n\r\n", b"-1\r\n", b"f" * 16 + b"\r\n", b"2;x=\xff\r\n{}\r\n0\r\nA: b\r\n\r\n", b"x\r\n"]


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """Sends a request with the token, and returns the status and the body; None for a connection that just ends."""
    with us.ui(tmp_path_factory.mktemp("empty")) as workbench:
        place = urlsplit(workbench.address)
        host = place.netloc.encode()
        token = place.query.removeprefix("token=").encode()

        def ask(method, target, headers=(), body=b""):
            begun = {each.partition(b":")[0].lower() for each in headers}
            mine = [(b"Host", host), (b"Authorization", b"Bearer " + token), (b"Connection", b"close")]
            lines = [b": ".join(each) for each in mine if each[0].lower() not in begun]
            sent = b"\r\n".join([method + b" " + target + b" HTTP/1.1", *lines, *headers, b"", body])
            with socket.create_connection((place.hostname, place.port), timeout=60) as client:
                found = b""
                try:
                    client.sendall(sent)
                    while (more := client.recv(1 << 16)) and b"event-stream" not in found:
                        found += more
                except ConnectionError:  # it does not read all of what is refused
                    pass
            head, _, rest = found.partition(b"\r\n\r\n")
            return (int(head.split(b" ")[1]), rest) if found else None

        yield ask


def posted(body):
    return [JSON, b"Content-Length: %d" % len(body)]


def test_no_request_is_a_fault_and_the_server_continues(ask):
    requests = [
        *((method, target, [], b"") for target in TARGETS for method in (b"GET", b"HEAD", b"POST", b"OPTIONS")),
        *((method, b"/", [], b"") for method in METHODS),
        *((b"GET", b"/", [each], b"") for each in HEADERS),
        *((b"POST", b"/api/v1/queries", [JSON, each], b"{}") for each in HEADERS),
        *((b"POST", b"/api/v1/queries", posted(body), body) for body in BODIES),
        *((b"PATCH", b"/api/v1/entities/x", [JSON, b"Transfer-Encoding: chunked"], each) for each in CHUNKS),
    ]
    assert len(requests) > 200
    with ThreadPoolExecutor(16) as pool:
        for request, found in zip(requests, pool.map(lambda each: ask(*each), requests), strict=True):
            assert found is None or found[0] < 500 or found[0] == 503, (request, found)  # 503: a busy machine
    assert ask(b"GET", b"/api/v1/tables")[0] == 200


def test_a_malformed_host_and_a_deep_body_are_refused_with_words(ask):
    status, body = ask(b"GET", b"/", [b"Host: ["])
    assert (status, b"the header Host is malformed" in body) == (400, True)
    status, body = ask(b"POST", b"/api/v1/queries", posted(BODIES[0]), BODIES[0])
    assert (status, b"nested too deeply" in body) == (400, True)


def test_the_bytes_of_a_body_are_counted_whatever_its_length_is_said_to_be(ask):
    chunk = b"1000\r\n" + b" " * 4096 + b"\r\n"
    headers = [JSON, b"Content-Length: 2", b"Transfer-Encoding: chunked"]
    assert ask(b"POST", b"/api/v1/queries", headers, chunk * 15 + b"2\r\n{}\r\n0\r\n\r\n")[0] != 413
    status, body = ask(b"POST", b"/api/v1/queries", headers, chunk * 17)
    assert (status, b"more than 65536 bytes" in body) == (413, True)
