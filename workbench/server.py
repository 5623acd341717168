"""The workbench's server: the features' routes behind one guard, with limits on time and size."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import socket
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ..conf.errors import OptionError, UpstreamError
from . import events
from .security import Guard
from .watch import UnknownNameError, Watch

if TYPE_CHECKING:
    from starlette.types import Scope

__all__ = ["Bench", "Conflict", "count_of", "create_app", "serve"]

STATIC = Path(__file__).parent / "static"
_LIMIT_S = 2.0
_AT_ONCE = 8
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
# Each module has `routes(bench)`.
_FEATURES = (events,)

_log = logging.getLogger(__name__)

Handler = Callable[[Request], Any]


class Conflict(UpstreamError, RuntimeError):  # noqa: N818 the protocol's own word
    """A change was made from an older state than the present one."""


class Bench:
    """What the features share.

    Attributes
    ----------
    watch : Watch
    control : bool
        Whether changes are allowed.
    events : EventFeed
    """

    def __init__(self, watch: Watch, *, control: bool) -> None:
        self.watch = watch
        self.control = control
        self.events = events.EventFeed(self)
        self._at_once = anyio.CapacityLimiter(_AT_ONCE)

    def endpoint(self, path: str, handler: Handler, *, methods: Collection[str] = ("GET",)) -> Route:
        """Return a route for a plain function from a request to a JSON value or a Response.

        It runs in a thread, for at most two seconds as the client sees it. An error of the package becomes a problem
        document: what was got, what was expected, what to do.
        """
        return Route(path, partial(self._answer, handler), methods=list(methods))

    async def _answer(self, handler: Handler, request: Request) -> Response:
        if request.method not in {"GET", "HEAD"}:
            if not self.control:
                return _problem(403, "this workbench only reads", hint="start `upstream ui` without --read-only")
            body = await request.body()
            try:
                request.state.body = json.loads(body or b"{}")
            except ValueError as error:
                return _problem(400, f"the body is not JSON: {error}")
            if not isinstance(request.state.body, dict):
                return _problem(400, "the body is not a JSON object")
        try:
            work = anyio.to_thread.run_sync(handler, request, limiter=self._at_once, abandon_on_cancel=True)
            found = await asyncio.wait_for(work, _LIMIT_S)
        except asyncio.TimeoutError:
            return _problem(503, f"the answer takes longer than {_LIMIT_S:g} s", hint="ask for less, or try again")
        return found if isinstance(found, Response) else JSONResponse(_plain(found))


def count_of(request: Request, name: str, default: int, most: int) -> int:
    """Return a whole number from 0 to `most` of a request's parameters; raise an OptionError for anything else."""
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) <= most):
        raise OptionError(f"{name}={text[:40]!r}", expected=f"a whole number from 0 to {most:,}")
    return int(text)


def _plain(value: Any) -> Any:
    """Return a JSON value; a float that JSON lacks becomes null."""
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None  # noqa: PLR0124 NaN
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def _problem(status: int, error: str, *, expected: str = "", hint: str = "") -> JSONResponse:
    return JSONResponse({"error": error, "expected": expected, "hint": hint}, status)


async def _refused(_: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return _problem(error.status_code, error.detail)
    if isinstance(error, UpstreamError):
        status = 404 if isinstance(error, UnknownNameError) else 409 if isinstance(error, Conflict) else 400
        return _problem(status, error.problem, expected=error.expected, hint=error.hint)
    if isinstance(error, FileNotFoundError):
        return _problem(404, "a file of the table has just been removed", hint="try again")
    _log.exception("a request failed")
    return _problem(500, "the request failed", hint="see the log of `upstream ui`")


class _Static(StaticFiles):
    def file_response(self, full_path: Any, stat_result: Any, scope: Scope, status_code: int = 200) -> Response:
        answer = super().file_response(full_path, stat_result, scope, status_code)
        answer.headers["Cache-Control"] = "no-cache"
        return answer


def create_app(watch: Watch, *, token: str, hosts: Collection[str] = _LOOPBACK, control: bool = True) -> Starlette:
    """Return the application.

    Parameters
    ----------
    watch : Watch
        What it shows.
    token : str
        What each request has to bring.
    hosts : collection of str
        Names by which clients may reach it.
    control : bool
        Whether it takes changes.
    """
    bench = Bench(watch, control=control)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with events.reading(bench.events):
            yield

    async def index(_: Request) -> Response:
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    return Starlette(
        routes=[
            Route("/", index),
            *(route for feature in _FEATURES for route in feature.routes(bench)),
            bench.endpoint("/api/v1/tables", lambda _: _tables(bench)),
            Mount("/static", _Static(directory=STATIC)),
        ],
        middleware=[Middleware(Guard, token=token, hosts=[*hosts]), Middleware(GZipMiddleware, minimum_size=2048)],
        exception_handlers=dict.fromkeys((HTTPException, UpstreamError, FileNotFoundError, Exception), _refused),
        lifespan=lifespan,
    )


def _tables(bench: Bench) -> dict[str, Any]:
    return {
        "tables": [
            {"name": table.name, "version": table.version, "location": table.location, "checkpoint": table.checkpoint}
            for table in bench.watch.tables()
        ],
        "checkpoints": bench.watch.checkpoints,
        "control": bench.control,
    }


def serve(
    watch: Watch, *, host: str, port: int, token: str | None, control: bool, started: Callable[[str], None]
) -> None:
    """Serve until interrupted.

    Parameters
    ----------
    watch : Watch
    host : str
        The address to listen on.
    port : int
        The port; 0 takes a free one.
    token : str or None
        What requests bring; by default a random one.
    control : bool
        Whether changes are allowed.
    started : callable
        Gets the address to open, once the server listens.

    Raises
    ------
    OptionError
        If the address cannot be listened on.
    """
    import uvicorn

    token = token or secrets.token_urlsafe(16)
    listener = listen(host, port)
    shown = "127.0.0.1" if host in {"0.0.0.0", "::"} else host  # noqa: S104 compared, not listened on
    hosts = {*_LOOPBACK, host, socket.gethostname()}
    app = create_app(watch, token=token, hosts=hosts, control=control)
    at = f"[{shown}]" if ":" in shown else shown
    started(f"http://{at}:{listener.getsockname()[1]}/?token={token}")
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=1, lifespan="on")
    with listener:
        uvicorn.Server(config).run(sockets=[listener])


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; raise an OptionError if the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OptionError(
            f"the workbench cannot listen on {host}:{port}: {error.strerror}",
            expected="an address of this machine and a free port",
            hint="choose another port with --port, or 0 for any",
        ) from None
    listener.listen(128)
    return listener
