"""Who may ask: a token, the expected host, and changes from this origin alone."""

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

COOKIE = "upstream_token"
BODY_BYTES = 1 << 16
_READS = ("GET", "HEAD")
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
        A request has it as a bearer token or in a cookie, which ``/?token=…`` sets.
    hosts : collection of str
        Names in the header ``Host``; any other name is refused. So no page elsewhere can reach a loopback address by
        a name of its own.
    """

    def __init__(self, app: ASGIApp, token: str, hosts: Collection[str]) -> None:
        self._app = app
        self._token = token
        self._hosts = {host.lower() for host in hosts}

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
        await (self._app if answer is None else answer)(scope, receive, sends)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        request, headers = Request(scope), Headers(scope=scope)
        host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
        if host.lower() not in self._hosts:
            return _problem(421, f"this address is not {host!r}", "open the address that `upstream ui` printed")
        port = headers.get("host", "").rpartition(":")[2]  # a browser sends a host's cookies to all of its ports
        cookie = f"{COOKIE}_{port}" if port.isascii() and port.isdecimal() else COOKIE
        given = request.query_params.get("token")
        if given is not None and scope["path"] == "/" and request.method == "GET" and self._is_token(given):
            answer = RedirectResponse("/", status_code=303)
            answer.set_cookie(cookie, self._token, httponly=True, samesite="strict", path="/")
            return answer
        bearer = headers.get("authorization", "")
        by_header = bearer[:7].lower() == "bearer " and self._is_token(bearer[7:].strip())
        if not by_header and not self._is_token(request.cookies.get(cookie, "")):
            return _problem(401, "the token is missing or wrong", "open the address that `upstream ui` printed")
        if request.method in _READS:
            return None
        origin = headers.get("origin")
        if origin is None and not by_header:
            return _problem(403, "a change has no origin", "send the header Origin, or the token as a bearer")
        if origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
            return _problem(403, "a page of another site asks for a change", "use the workbench's own page")
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return _problem(415, "the body of a change is not application/json", "send JSON")
        length = headers.get("content-length", "")
        if not length.isdigit():
            return _problem(411, "a change has no Content-Length", "send the length of the body")
        if int(length) > BODY_BYTES:
            return _problem(413, f"the body has {length} bytes", f"send at most {BODY_BYTES}")
        return None

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())


def _problem(status: int, error: str, hint: str) -> JSONResponse:
    return JSONResponse({"error": error, "expected": "", "hint": hint}, status)
