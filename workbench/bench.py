"""What the workbench's features share: the watch, and routes for plain functions with limits on time and size.

The routes whose libraries would make the server large are answered by a process of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

import anyio
import pyarrow as pa
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..conf.errors import OptionError, UpstreamError
from .events import Broadcast
from .processes import ChildProcess, parent_connection
from .watch import UnknownNameError, Watch, WatchCopy, readable

__all__ = ["AnswerProcess", "Bench", "Conflict", "count_of", "failure", "problem"]

_LIMIT_S = 2.0
_AT_ONCE = 8
_DEPTH = 32
# An answering process may take so long to start. It ends after so long without a request, or with one as old as this.
_START_S, _IDLE_S, _STUCK_S = 10.0, 60.0, 20.0
_LOOK_S = 0.5
_GONE = "the process that reads tables and queries has ended"

Handler = Callable[[Request], Any]

_log = logging.getLogger(__name__)


class Conflict(UpstreamError, RuntimeError):  # noqa: N818 the protocol's own word
    """A change was made from an older state than the present one."""


class Bench:
    """What the features share.

    Attributes
    ----------
    watch : Watch
    control : bool
        Whether changes are allowed.
    events : Broadcast
    """

    def __init__(self, watch: Watch, *, control: bool, process: AnswerProcess | None = None) -> None:
        self.watch = watch
        self.control = control
        self.events = Broadcast(watch)
        self.handlers: dict[tuple[str, str], Handler] = {}
        self.process = process
        self._at_once = anyio.CapacityLimiter(_AT_ONCE)

    def endpoint(
        self,
        path: str,
        handler: Handler,
        *,
        methods: Collection[str] = ("GET",),
        apart: bool | Handler = False,
        needs: str = "",
    ) -> Route:
        """Return a route for a plain function from a request to a JSON value or a Response.

        It runs in a thread, for at most two seconds as the client sees it. If `apart` holds, or returns true for the
        request, the thread is in the answering process, if there is one. This process first loads the module that the
        function `needs`, which does not count. An error of the package becomes a problem document: what was got, what
        was expected, what to do.
        """
        self.handlers.update({(path, method): handler for method in methods})
        return Route(path, partial(self._answer, path, handler, apart, needs), methods=list(methods))

    async def _answer(
        self, path: str, handler: Handler, apart: bool | Handler, needs: str, request: Request
    ) -> Response:
        if request.method not in {"GET", "HEAD"}:
            if not self.control:
                return problem(403, "this workbench only reads", hint="start `upstream ui` without --read-only")
            try:
                request.state.body = json.loads(await request.body() or b"{}")
                if not isinstance(request.state.body, dict):
                    return problem(400, "the body is not a JSON object")
                _check_depth(request.state.body)
            except ValueError as error:
                return problem(400, f"the body is not JSON: {error}")
        work = partial(handler, request)
        if self.process is not None and apart and (apart is True or await self._in_thread(partial(apart, request))):
            if not await self._in_thread(partial(self.process.start, needs)):
                return problem(503, _GONE, hint="see the log of `upstream ui`, and try again")
            work = partial(self.process.answer, path, request, self.watch)
        try:
            found = await asyncio.wait_for(self._in_thread(work), _LIMIT_S)
        except asyncio.TimeoutError:
            return problem(503, f"the answer takes longer than {_LIMIT_S:g} s", hint="ask for less, or try again")
        return response(found)

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await anyio.to_thread.run_sync(work, limiter=self._at_once, abandon_on_cancel=True)


def _check_depth(value: Any) -> None:
    """Raise RecursionError for a value that is nested too deeply to handle."""
    level, depth = [value], 0
    while level:
        level = [each for outer in level for each in (outer.values() if isinstance(outer, dict) else outer)]
        level = [each for each in level if isinstance(each, (dict, list))]
        depth += 1
        if depth > _DEPTH:
            raise RecursionError


def response(found: Any) -> Response:
    """Return what a handler has found as a response."""
    return found if isinstance(found, Response) else JSONResponse(plain(found))


def failure(error: Exception) -> Response:
    """Return the problem document of an error; log one that is a fault of the package."""
    if isinstance(error, HTTPException):
        return problem(error.status_code, error.detail)
    if isinstance(error, UpstreamError):
        status = 404 if isinstance(error, UnknownNameError) else 409 if isinstance(error, Conflict) else 400
        return problem(status, error.problem, expected=error.expected, hint=error.hint)
    if isinstance(error, RecursionError):
        return problem(400, "the request is nested too deeply", hint="send a simpler one")
    if isinstance(error, FileNotFoundError):
        return problem(404, "a file of the table has just been removed", hint="try again")
    _log.error("a request failed", exc_info=error)
    return problem(500, "the request failed", hint="see the log of `upstream ui`")


class AnswerProcess:
    """Answers requests in a process of its own, which starts with the first request and ends when it has none.

    So the libraries that read rows and plan queries do not stay in the server's memory. A request that needs much of
    it cannot make the server large.

    Parameters
    ----------
    features : sequence of str
        Modules whose handlers it runs.
    locations, storage
        As the server's :class:`Watch` has them.
    """

    def __init__(
        self,
        features: Sequence[str],
        locations: Sequence[str],
        storage: Mapping[str, str],
        *,
        control: bool,
        idle_s: float = _IDLE_S,
    ) -> None:
        self._given = [*features], [*locations], dict(storage), control
        self._idle_s = idle_s
        self._life: _Life | None = None
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The process that runs now."""
        life = self._life
        return None if life is None or life.ended else life.process.pid

    @property
    def waiting(self) -> int:
        """The number of requests without an answer."""
        life = self._life
        return 0 if life is None else len(life.waiting)

    def start(self, needs: str = "") -> bool:
        """Start the process unless it runs, and let it load a module; return whether it can answer."""
        with contextlib.suppress(EOFError, OSError, FutureTimeout):
            self._running().load(needs).result(_START_S)
            return True
        return False

    def answer(self, path: str, request: Request, watch: Watch) -> Response:
        """Return the answer of the handler at a path; a 503 if the process ends before."""
        scope = {name: request.scope[name] for name in ("type", "method", "path", "query_string", "path_params")}
        scope |= {"headers": [], "state": {"body": getattr(request.state, "body", None)}}
        tables = [(each.name, each.location) for each in watch.tables()], [*watch.checkpoints]
        try:
            status, media, body = self._running().ask(path, scope, tables).result()
        except (EOFError, OSError):
            return problem(503, _GONE, hint="try again")
        return Response(body, status, media_type=media)

    def stop(self) -> None:
        """End the process."""
        with self._lock:
            if self._life is not None:
                self._life.end()

    def _running(self) -> _Life:
        with self._lock:
            if self._life is None or self._life.ended:
                self._life = _Life(self._given, self._idle_s)
            return self._life


class _Life:
    """One run of the answering process, with the requests that wait for it."""

    def __init__(self, given: Any, idle_s: float) -> None:
        child = ChildProcess(__name__, "answer_until_closed")
        self.process, self._connection = child.process, child.connection
        self.ended = False
        self._idle_s, self._known = idle_s, None
        self._loads: dict[str, Future[Any]] = {}
        self._numbers = itertools.count()
        self.waiting: dict[int, tuple[float, Future[tuple[int, str, bytes]]]] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._read, name="upstream-answers", daemon=True).start()
        with contextlib.suppress(OSError):  # the thread sees that it has ended
            self._connection.send(given)

    def load(self, module: str) -> Future[Any]:
        """Let the process load a module, once; an empty name waits for its start alone."""
        found = self._loads.get(module)
        if found is None:
            found = self._loads[module] = self.ask("", module, self._known)
        return found

    def ask(self, path: str, scope: dict[str, Any] | str, tables: Any) -> Future[tuple[int, str, bytes]]:
        """Send a request, or the name of a module to load, and return the coming answer."""
        found: Future[tuple[int, str, bytes]] = Future()
        with self._lock:
            if self.ended:
                raise EOFError
            number = next(self._numbers)
            self.waiting[number] = time.monotonic(), found
            self._connection.send((number, path, scope, None if tables == self._known else tables))
            self._known = tables
        return found

    def end(self) -> None:
        """End the process; requests that wait for it fail."""
        self.process.kill()

    def _read(self) -> None:
        used_s = time.monotonic()
        with contextlib.suppress(EOFError, OSError):
            while True:
                if self._connection.poll(_LOOK_S):
                    used_s = time.monotonic()
                    number, *answer = self._connection.recv()
                    self.waiting.pop(number)[1].set_result(tuple(answer))
                    continue
                with self._lock:
                    oldest_s = min((since for since, _ in self.waiting.values()), default=None)
                    limit_s = used_s + self._idle_s if oldest_s is None else oldest_s + _STUCK_S
                    if time.monotonic() > limit_s:
                        self.ended = True
                        break
        with self._lock:
            self.ended = True
            left = [found for _, found in self.waiting.values()]
        self._connection.close()
        self.process.kill()
        self.process.wait()
        for each in left:
            each.set_exception(EOFError())


def _leave_pandas() -> None:
    """Let pyarrow find a pandas that is too old: it would load 45 MB to see that a list is not a series."""
    if "pandas" in sys.modules:
        return
    sys.modules["pandas"] = ModuleType("pandas")
    sys.modules["pandas"].__version__ = "0"  # pyright: ignore[reportAttributeAccessIssue]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pa.array([0])
    del sys.modules["pandas"]


def answer_until_closed() -> None:
    """Answer the server's requests in this process until the server closes the connection, or is gone."""
    _leave_pandas()
    connection = parent_connection()
    features, locations, storage, control = connection.recv()
    watch = WatchCopy(locations, storage)
    bench = Bench(watch, control=control)
    for each in features:
        import_module(each).routes(bench)
    lock = threading.Lock()

    def send(*answer: Any) -> None:
        with lock:
            connection.send(answer)

    def work(number: int, path: str, scope: Any) -> None:
        if not path:
            if scope:
                import_module(scope)
            send(number)
            return
        request = Request(scope)
        try:
            method = "GET" if request.method == "HEAD" else request.method
            found = response(bench.handlers[path, method](request))
        except Exception as error:  # noqa: BLE001 the server's answer to any fault
            found = failure(error)
        send(number, found.status_code, found.media_type, bytes(found.body))

    pool = ThreadPoolExecutor(_AT_ONCE)
    with contextlib.suppress(EOFError, OSError):
        while True:
            number, path, scope, tables = connection.recv()
            if tables is not None:
                watch.take(*tables)
            pool.submit(work, number, path, scope)
    os._exit(0)  # threads that still work have nobody to answer


def count_of(request: Request, name: str, default: int, most: int) -> int:
    """Return a whole number from 0 to `most` of a request's parameters; raise an OptionError for anything else."""
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) <= most):
        raise OptionError(f"{name}={text[:40]!r}", expected=f"a whole number from 0 to {most:,}")
    return int(text)


def plain(value: Any) -> Any:
    """Return a JSON value; a float that JSON lacks becomes null."""
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None  # noqa: PLR0124 NaN
    if isinstance(value, Mapping):
        return {readable(str(name)): plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value if value is None or isinstance(value, (bool, int)) else readable(str(value))


def problem(status: int, error: str, *, expected: str = "", hint: str = "") -> JSONResponse:
    """Return the document of an error."""
    return JSONResponse(plain({"error": error, "expected": expected, "hint": hint}), status)
