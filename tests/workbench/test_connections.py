"""Clients that open connections and send nothing, or little: others are served, and little is logged."""

import contextlib
import logging
import socket
import threading

import pytest
from kit.waiting import wait_for

from upstream.workbench.connections import ConnectionLimits, LogLimit, server_of
from upstream.workbench.processes import listen

GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
DONE = threading.Event()


async def app(scope, receive, send):
    """Answer at once; at /stream, answer until the client leaves."""
    if scope["type"] == "lifespan":
        for step in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{step}.complete"})
        return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"o", "more_body": True})
    if scope["path"] == "/stream":
        await receive()
    await send({"type": "http.response.body", "body": b"k"})


@contextlib.contextmanager
def serving(**limits):
    """Serve the application, and yield a function that connects, with what a client sends first."""
    listener, clients = listen("127.0.0.1", 0), []
    server = server_of(app, ConnectionLimits(**limits))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()

    def client(sent=b""):
        clients.append(socket.create_connection(listener.getsockname(), timeout=60))
        clients[-1].sendall(sent)
        return clients[-1]

    try:
        place = listener.getsockname()
        wait_for(lambda: server.started, what=f"the server at {place}")
        yield client
    finally:
        for each in clients:
            each.close()
        server.should_exit = True
        thread.join()


def answer(client):
    found = b""
    while not found.endswith(b"ok"):
        found += client.recv(1000) or pytest.fail("the connection was closed")
    return found.split(b" ")[1]


def is_closed(client):
    """Return whether the server has closed a connection; wait for it if nothing else is to come."""
    with contextlib.suppress(ConnectionError):
        while client.recv(1000):
            pass
    return True


def test_of_too_many_connections_the_oldest_that_wait_for_a_request_are_closed():
    with serving(most=4) as client:
        streams = [client(GET.replace(b"/", b"/stream", 1)) for _ in range(2)]
        for each in streams:
            while b"\r\n\r\no" not in each.recv(1000, socket.MSG_PEEK):
                pass
        idle = [client() for _ in range(20)]
        assert answer(client(GET)) == b"200"
        assert all(is_closed(each) for each in idle[:-1])
        streams[0].setblocking(False)
        assert streams[0].recv(1000).endswith(b"o"), "its answer continues"
        with pytest.raises(BlockingIOError):
            streams[0].recv(1000)


def test_when_all_are_being_answered_a_new_one_is_closed():
    with serving(most=2) as client:
        streams = [client(GET.replace(b"/", b"/stream", 1)) for _ in range(2)]
        for each in streams:
            while b"\r\n\r\no" not in each.recv(1000, socket.MSG_PEEK):
                pass
        assert is_closed(client())


@pytest.mark.parametrize(
    "begun", [b"", b"GET / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n", GET]
)
def test_a_request_that_comes_byte_by_byte_is_given_up(begun):
    with serving(request_s=0.2) as client:
        slow = client(begun)
        if begun == GET:
            assert answer(slow) == b"200"
        slow.settimeout(0.02)

        def closed():
            try:
                slow.sendall(b"a")
                return not slow.recv(1000)
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        wait_for(closed, what="the end of the connection")
        assert answer(client(GET)) == b"200"


def test_an_answer_may_take_longer_than_a_request():
    with serving(request_s=0.05) as client:
        stream = client(GET.replace(b"/", b"/stream", 1))
        assert is_closed(client()), "the time of a request has passed"
        stream.setblocking(False)
        assert stream.recv(1000).endswith(b"o")
        with pytest.raises(BlockingIOError):
            stream.recv(1000)


def test_a_flood_of_records_is_cut_and_counted():
    limit = LogLimit(most=2, seconds=60)
    passed = []
    for at in (0, 1, 2, 3, 59, 60, 61, 62):
        record = logging.makeLogRecord({"msg": "at %s", "args": (at,), "created": 1000.0 + at})
        if limit.filter(record):
            passed.append(record.getMessage())
    assert passed == ["at 0", "at 1", "at 60 (3 messages before were left out)", "at 61"]
