"""The workbench's server: the features' routes behind one guard, with limits on time and size."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ..conf.errors import UpstreamError
from . import control, metrics, plan_view, prediction, table_view, views, why
from .bench import AnswerProcess, Bench, count_of, failure
from .events import reading
from .processes import address_of, listen, parent_connection, wait_for_parent
from .security import Guard
from .table_list import TableList
from .watch import Watch

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import Scope

__all__ = ["create_app", "serve"]

STATIC = Path(__file__).parent / "static"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
# Each has `routes(bench)`; none imports this module.
_FEATURES = (views, table_view, prediction, control, metrics, plan_view, why)
_FAILURES = (UpstreamError, FileNotFoundError, RecursionError)
_APART = (views, table_view, control, plan_view, why)  # have routes of the answering process


async def _refused(_: Request, error: Exception) -> Response:
    return failure(error)


class _Static(StaticFiles):
    def file_response(self, full_path: Any, stat_result: Any, scope: Scope, status_code: int = 200) -> Response:
        answer = super().file_response(full_path, stat_result, scope, status_code)
        answer.headers["Cache-Control"] = "no-cache"
        return answer


def create_app(
    watch: Watch, *, token: str, hosts: Collection[str] = _LOOPBACK, control: bool = True, apart: bool = False
) -> Starlette:
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
    apart : bool
        Whether a process of its own reads rows and plans queries.
    """
    names = [each.__name__ for each in _APART]
    process = AnswerProcess(names, watch.locations, watch.storage, control=control) if apart else None
    bench = Bench(watch, control=control, process=process)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with reading(bench.events):
            yield
        if process is not None:
            process.stop()

    async def index(_: Request) -> Response:
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    return Starlette(
        routes=[
            Route("/", index),
            Route("/api/v1/events", bench.events.events),
            *(route for feature in _FEATURES for route in feature.routes(bench)),
            bench.endpoint("/api/v1/tables", partial(_tables, bench, TableList(watch))),
            Mount("/static", _Static(directory=STATIC)),
        ],
        middleware=[
            Middleware(Guard, token=token, hosts=[*hosts]),
            Middleware(GZipMiddleware, minimum_size=2048, compresslevel=3),
        ],
        exception_handlers=dict.fromkeys((HTTPException, *_FAILURES, Exception), _refused),
        lifespan=lifespan,
    )


def _tables(bench: Bench, tables: TableList, request: Request) -> dict[str, Any]:
    """Return the tables, the worst first, and what the pages can show; with ``only=names``, without figures."""
    given = request.query_params
    names_only = given.get("only") == "names"
    found = (
        {"tables": tables.names(), "total": len(bench.watch.tables()) + len(bench.watch.broken)}
        if names_only
        else tables.answer(bench.watch.clock_us(), given.get("filter", ""), count_of(request, "limit", 200, 10_000))
    )
    return {
        **found,
        "checkpoints": bench.watch.checkpoints,
        "control": bench.control,
        "pages": sorted(page.stem for page in (STATIC / "pages").glob("*.js")),
    }


def serve(
    watch: Watch, *, host: str, port: int, token: str | None, control: bool, started: Callable[[str], None]
) -> None:
    """Serve until interrupted, in a process of its own.

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
    token = token or secrets.token_urlsafe(16)
    with listen(host, port) as listener:
        pages = _server(watch, host, token, control=control)
        started(address_of(host, listener, token))
        pages.run(sockets=[listener])


def serve_parent() -> None:
    """Serve for the process that has started this one, until it closes the connection or is gone."""
    connection = parent_connection()
    try:
        number, locations, storage, token, control = connection.recv()
    except (EOFError, OSError):
        return
    pages = _server(Watch(locations, storage), "localhost", token, control=control)

    def end() -> None:
        wait_for_parent(connection)
        pages.should_exit = True

    threading.Thread(target=end, name="upstream-parent", daemon=True).start()
    with socket.socket(fileno=number) as listener:
        pages.run(sockets=[listener])
    os._exit(0)  # threads that still work have nobody to answer


def _server(watch: Watch, host: str, token: str, *, control: bool) -> uvicorn.Server:
    from .connections import LogLimit, server_of

    log = logging.StreamHandler()
    log.addFilter(LogLimit())
    logging.getLogger().addHandler(log)
    hosts = {*_LOOPBACK, host, socket.gethostname()}
    return server_of(create_app(watch, token=token, hosts=hosts, control=control, apart=True))
