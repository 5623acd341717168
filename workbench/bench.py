"""What the workbench's features share: the watch, and routes for plain functions with limits on time and size."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import anyio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..conf.errors import OptionError, UpstreamError
from .events import Broadcast
from .watch import Watch

__all__ = ["Bench", "Conflict", "count_of", "problem"]

_LIMIT_S = 2.0
_AT_ONCE = 8

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
    events : Broadcast
    """

    def __init__(self, watch: Watch, *, control: bool) -> None:
        self.watch = watch
        self.control = control
        self.events = Broadcast(watch)
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
                return problem(403, "this workbench only reads", hint="start `upstream ui` without --read-only")
            body = await request.body()
            try:
                request.state.body = json.loads(body or b"{}")
            except ValueError as error:
                return problem(400, f"the body is not JSON: {error}")
            if not isinstance(request.state.body, dict):
                return problem(400, "the body is not a JSON object")
        try:
            work = anyio.to_thread.run_sync(handler, request, limiter=self._at_once, abandon_on_cancel=True)
            found = await asyncio.wait_for(work, _LIMIT_S)
        except asyncio.TimeoutError:
            return problem(503, f"the answer takes longer than {_LIMIT_S:g} s", hint="ask for less, or try again")
        return found if isinstance(found, Response) else JSONResponse(plain(found))


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
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def problem(status: int, error: str, *, expected: str = "", hint: str = "") -> JSONResponse:
    """Return the document of an error."""
    return JSONResponse({"error": error, "expected": expected, "hint": hint}, status)
