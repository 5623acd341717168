"""An object store that refuses everything, and tells more than it should: arguments are names and values of secrets.
Prints its port.
"""

from __future__ import annotations

import http.server
import sys

echoed = "".join(f"<Told>{value}</Told>" for value in sys.argv[1:])
BODY = f"<?xml version='1.0'?><Error><Code>InvalidAccessKeyId</Code>{echoed}</Error>".encode()


class Refusing(http.server.BaseHTTPRequestHandler):
    def refuse(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(403)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(BODY)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = refuse  # noqa: N815 its parent's names

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 its parent's name
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
print(server.server_address[1], flush=True)
server.serve_forever()
