"""What lies before an object store, has puts wait for each other, and spoils those of a log's entries.

Its arguments are the store's port and the client's secrets; it prints its own port.

Lines of its input are a fault and how many puts it is to strike:

- `forgotten`: the entry is put, and the answer is a server's error. The client asks again, and hears that there is one.
- `lost`: the entry is put, and the connection ends without an answer.
- `failed`: it is not put, and the connection ends without an answer.
- `conflict`: it is not put, and the answer is that of S3 to two at once, which looks as if there were one.
- `late`: as `failed`, and it is put when the next request for anything comes.
- `blind`: each condition is passed over, so that one entry is put over another.
- `refused`: each request is, with an answer that tells the client's secrets.
- `spoilt`: asks how many puts were struck.
"""

import contextlib
import http.client
import http.server
import sys
import threading

STORE = int(sys.argv[1])
TOLD = "".join(f"<Told>{value}</Told>" for value in sys.argv[2:])
REFUSAL = f"<?xml version='1.0'?><Error><Code>InvalidAccessKeyId</Code>{TOLD}</Error>".encode()
LATE: list[tuple[str, dict[str, str], bytes]] = []

Answer = tuple[int, list[tuple[str, str]], bytes]


# The server behind looks whether there is an object, and writes it then; a store does both at once.
PUTS = threading.Lock()


def asked(method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
    with PUTS if method == "PUT" else contextlib.nullcontext():
        return passed_on(method, path, headers, body)


def passed_on(method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", STORE)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    found = answer.status, answer.getheaders(), answer.read()
    connection.close()
    return found


class Faults:
    """What is to happen to the next puts."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.set("", 0)

    def set(self, fault: str, times: int) -> None:
        self.fault, self.left, self.struck = fault, times, 0

    def of(self, command: str, path: str) -> str:
        """The fault of this request, if it has any."""
        with self.lock:
            if command != "PUT" or "/_delta_log/" not in path or not path.endswith(".json") or self.left == 0:
                return ""
            self.left -= 1
            self.struck += 1
            return self.fault


FAULTS = Faults()


class Unreliable(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = dict(self.headers.items())
        if FAULTS.fault == "refused":
            self.give(403, [], REFUSAL)
            return
        while LATE:
            asked("PUT", *LATE.pop())
        fault = FAULTS.of(self.command, self.path)
        if FAULTS.fault == "blind":
            headers = {name: value for name, value in headers.items() if name.lower() != "if-none-match"}
        if fault == "late":
            LATE.append((self.path, headers, body))
        if fault in ("failed", "late", "lost"):
            if fault == "lost":
                asked(self.command, self.path, headers, body)
            self.close_connection = True
            return
        if fault == "conflict":
            self.give(409, [], b"<Error><Code>ConditionalRequestConflict</Code></Error>")
            return
        status, response_headers, content = asked(self.command, self.path, headers, body)
        if fault == "forgotten":
            status, response_headers, content = 500, [], b"<Error><Code>InternalError</Code></Error>"
        self.give(status, response_headers, content)

    def give(self, status: int, response_headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response_only(status)
        of_head = self.command == "HEAD"
        for name, value in response_headers:
            if name.lower() not in ("transfer-encoding", "connection") and (
                of_head or name.lower() != "content-length"
            ):
                self.send_header(name, value)
        if not of_head:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if not of_head:
            self.wfile.write(content)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = serve  # noqa: N815 its parent's names

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 its parent's name
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Unreliable)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
for line in sys.stdin:
    fault, times = line.split()
    with FAULTS.lock:
        if fault == "spoilt":
            print(FAULTS.struck, flush=True)
        else:
            FAULTS.set(fault, int(times))
            print("so be it", flush=True)
