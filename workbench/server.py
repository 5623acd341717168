"""The workbench's server: the features' routes behind one guard, with limits on time and size."""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Collection
from html import escape
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
from typing_extensions import Self

from ..conf.errors import OptionError, UpstreamError
from . import control, metrics, plan_view, prediction, table_view, views, why
from .bench import AnswerProcess, Bench, failure
from .events import reading
from .security import Guard
from .watch import Watch

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import Scope

__all__ = ["Workbench", "create_app", "serve"]

STATIC = Path(__file__).parent / "static"
_END_S = 3.0
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
            bench.endpoint("/api/v1/tables", lambda _: _tables(bench)),
            Mount("/static", _Static(directory=STATIC)),
        ],
        middleware=[
            Middleware(Guard, token=token, hosts=[*hosts]),
            Middleware(GZipMiddleware, minimum_size=2048, compresslevel=3),
        ],
        exception_handlers=dict.fromkeys((HTTPException, *_FAILURES, Exception), _refused),
        lifespan=lifespan,
    )


def _tables(bench: Bench) -> dict[str, Any]:
    return {
        "tables": [
            {"name": table.name, "version": table.version, "location": table.location} for table in bench.watch.tables()
        ],
        "checkpoints": bench.watch.checkpoints,
        "control": bench.control,
        "pages": sorted(page.stem for page in (STATIC / "pages").glob("*.js")),
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
    pages, listener, address = _server(watch, host=host, port=port, token=token, control=control)
    started(address)
    with listener:
        pages.run(sockets=[listener])


class Workbench:
    """A workbench that a thread of this process serves, on the loopback address. Made by :func:`upstream.ui`.

    Attributes
    ----------
    address : str
        The address to open, with its token.
    """

    def __init__(self, watch: Watch, *, port: int = 0, control: bool = True) -> None:
        self._pages, self._listener, self.address = _server(
            watch, host="127.0.0.1", port=port, token=None, control=control
        )
        self._thread = threading.Thread(
            target=self._pages.run, kwargs={"sockets": [self._listener]}, name="upstream-workbench", daemon=True
        )
        self._thread.start()

    def __repr__(self) -> str:
        return f"Workbench({self.address!r})"

    def _repr_html_(self) -> str:
        """Show a link in a notebook."""
        link = escape(self.address)
        return f'<p>The workbench is at <a href="{link}" target="_blank">{link}</a></p>'

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop serving; the query continues.

        Examples
        --------
        >>> us.ui("latest").stop()
        """
        self._pages.should_exit = True
        self._thread.join(_END_S)
        self._listener.close()


def _server(
    watch: Watch, *, host: str, port: int, token: str | None, control: bool
) -> tuple[uvicorn.Server, socket.socket, str]:
    import uvicorn

    token = token or secrets.token_urlsafe(16)
    listener = listen(host, port)
    shown = "127.0.0.1" if host in {"0.0.0.0", "::"} else host  # noqa: S104 compared, not listened on
    hosts = {*_LOOPBACK, host, socket.gethostname()}
    app = create_app(watch, token=token, hosts=hosts, control=control, apart=True)
    at = f"[{shown}]" if ":" in shown else shown
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=1, lifespan="on")
    return uvicorn.Server(config), listener, f"http://{at}:{listener.getsockname()[1]}/?token={token}"


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
