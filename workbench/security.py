"""Access to the workbench: a token or a session, the expected host, and changes from this origin alone."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Guard", "kept_token"]

COOKIE = "upstream_session"
BODY_BYTES = 1 << 16
_SESSIONS = 256
_READS = ("GET", "HEAD")
_HINT = "open the address that `upstream ui` printed"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def kept_token(place: str) -> str:
    """Return the token of an earlier start at a place, from a file that only its user can read; else a new one."""
    token = secrets.token_urlsafe(16)
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "upstream"
    path = folder / f"ui-{hashlib.sha256(place.encode()).hexdigest()[:16]}"
    with contextlib.suppress(OSError):  # without a home, each start has a token of its own
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (
            contextlib.suppress(FileExistsError),
            open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file,
        ):
            file.write(token)
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), encoding="ascii") as file:
            state, kept = os.fstat(file.fileno()), file.read()
        if state.st_uid == os.geteuid() and not state.st_mode & 0o077 and len(kept) == len(token):
            return kept
    return token


class Guard:
    """ASGI middleware: it answers what is not allowed, and adds headers to everything else.

    Parameters
    ----------
    app : ASGIApp
    token : str
        A request has it as a bearer token, or has a cookie. ``/?token=…`` begins a session and sets the cookie, whose
        secret is the session's own. It ends with the server: anyone who listens on the port later learns nothing by it.
    hosts : collection of str
        Names in the header ``Host``; any other name is refused. So no page elsewhere can reach a loopback address by
        a name of its own.
    """

    def __init__(self, app: ASGIApp, token: str, hosts: Collection[str]) -> None:
        self._app = app
        self._token = token
        self._hosts = {host.lower() for host in hosts}
        self._sessions: dict[bytes, None] = {}  # digests of their secrets, the latest last

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or pass on one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def sends(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                if "Cache-Control" not in headers:
                    headers["Cache-Control"] = "no-store"
            await send(message)

        answer = self._refusal(scope)
        if answer is None and scope["method"] not in _READS:
            body = await _whole_body(receive)
            if body is None:
                answer = _problem(413, f"the body has more than {BODY_BYTES} bytes", "send less")
            elif body["type"] == "http.disconnect":
                return
            else:
                receive = _again(body, receive)
        await (answer or self._app)(scope, receive, sends)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        request, headers = Request(scope), Headers(scope=scope)
        place = headers.get("host", "")
        try:
            host = urlsplit(f"//{place}").hostname or ""
        except ValueError:
            return _problem(400, f"the header Host is malformed: {place[:100]!r}", _HINT)
        if host.lower() not in self._hosts:
            return _problem(421, f"this address is not {host[:100]!r}", _HINT)
        port = place.rpartition(":")[2]  # a browser sends a host's cookies to all of its ports
        cookie = f"{COOKIE}_{port}" if port.isascii() and port.isdecimal() and len(port) < 6 else COOKIE
        given = request.query_params.get("token")
        if given is not None and scope["path"] == "/" and request.method == "GET" and self._is_token(given):
            answer = RedirectResponse("/", status_code=303)
            answer.set_cookie(cookie, self._begin_session(), httponly=True, samesite="strict", path="/")
            return answer
        bearer = headers.get("authorization", "")
        by_header = bearer[:7].lower() == "bearer " and self._is_token(bearer[7:].strip())
        if not by_header and _digest(request.cookies.get(cookie, "")) not in self._sessions:
            return _problem(401, "the token is missing or wrong, or the session has ended", _HINT)
        if request.method in _READS:
            return None
        origin = headers.get("origin")
        if origin is None and not by_header:
            return _problem(403, "a change has no origin", "send the header Origin, or the token as a bearer")
        if origin is not None and origin.partition("://")[2].lower() != place.lower():
            return _problem(403, "a page of another site asks for a change", "use the workbench's own page")
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return _problem(415, "the body of a change is not application/json", "send JSON")
        return None

    def _begin_session(self) -> str:
        secret = secrets.token_urlsafe(32)
        self._sessions[_digest(secret)] = None
        if len(self._sessions) > _SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return secret

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


async def _whole_body(receive: Receive) -> Message | None:
    """Return the body as one message, or the end of the connection; None once more bytes came than are allowed.

    The headers' word on its length is not taken: beside chunks, ``Content-Length`` can be any number.
    """
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return message
        body += message.get("body", b"")
        if len(body) > BODY_BYTES:
            return None
        if not message.get("more_body", False):
            return {"type": "http.request", "body": bytes(body), "more_body": False}


def _again(first: Message, receive: Receive) -> Receive:
    """Return a `receive` that returns a message before all others."""
    messages = [first]

    async def receives() -> Message:
        return messages.pop() if messages else await receive()

    return receives


def _problem(status: int, error: str, hint: str) -> JSONResponse:
    # The rest of the request is not read.
    return JSONResponse({"error": error, "expected": "", "hint": hint}, status, {"Connection": "close"})
