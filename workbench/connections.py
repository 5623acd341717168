"""Connections to the workbench's server: their number, the time that each may wait for, and the log of their faults."""

from __future__ import annotations

import asyncio
import logging
import resource
from functools import partial
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["ConnectionLimits", "LogLimit", "server_of"]

_MOST = 512
# A client has so long for a request with its body, and as long until the next one.
_REQUEST_S = 10.0
# The event loop accepts as many connections at once before it looks at any of them.
_BACKLOG = 64
_RECORDS, _RECORDS_S = 10, 60.0


class ConnectionLimits:
    """Limits of the connections of one server.

    Parameters
    ----------
    most : int, optional
        With more connections, those that wait for a request are closed, the oldest first. By default, half of the
        descriptors that the process may have, and at most 512.
    request_s : float
        The seconds that a client has for a request.
    """

    def __init__(self, most: int | None = None, request_s: float = _REQUEST_S) -> None:
        self.most = min(_MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2) if most is None else most
        self.request_s = request_s
        self.waiting: dict[LimitedConnection, None] = {}  # for a request, the oldest first


class LimitedConnection(H11Protocol):
    """A connection that is closed unless a request comes soon, however slowly its bytes come."""

    def __init__(self, limits: ConnectionLimits, **given: Any) -> None:
        super().__init__(**given)
        self._limits = limits
        self._end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection; close another one if they are too many."""
        super().connection_made(transport)
        self._look()
        waiting = self._limits.waiting
        if len(self.connections) > self._limits.most and waiting:
            oldest = next(iter(waiting))
            oldest._wait_no_longer()
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._wait_no_longer()
        super().connection_lost(exc)

    def _look(self) -> None:
        """Begin or end the wait for a request."""
        if self.cycle and not (self.cycle.response_complete or self.cycle.more_body):
            self._wait_no_longer()
        elif self._end is None and not self.transport.is_closing():
            self._limits.waiting[self] = None
            self._end = self.loop.call_later(self._limits.request_s, self.transport.close)

    def _wait_no_longer(self) -> None:
        self._limits.waiting.pop(self, None)
        if self._end is not None:
            self._end.cancel()
            self._end = None


class LogLimit(logging.Filter):
    """Passes so many records in a time; the next one has the number of those that were left out."""

    def __init__(self, most: int = _RECORDS, seconds: float = _RECORDS_S) -> None:
        super().__init__()
        self._most, self._seconds = most, seconds
        self._begun_s, self._passed, self._left = 0.0, 0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a record."""
        if not 0 <= record.created - self._begun_s < self._seconds:
            self._begun_s, self._passed = record.created, 0
        if self._passed >= self._most:
            self._left += 1
            return False
        self._passed += 1
        if self._left:
            record.msg, record.args = f"{record.getMessage()} ({self._left} messages before were left out)", ()
            self._left = 0
        return True


def server_of(app: ASGIApp, limits: ConnectionLimits | None = None) -> uvicorn.Server:
    """Return a server of an application within the limits of connections."""
    config = uvicorn.Config(
        app,
        http=partial(LimitedConnection, limits or ConnectionLimits()),  # pyright: ignore[reportArgumentType]
        ws="none",
        lifespan="on",
        backlog=_BACKLOG,
        timeout_graceful_shutdown=1,
        access_log=False,
        log_config=None,
        # Its errors are those of clients; the application logs faults of its own.
        log_level="critical",
        proxy_headers=False,
    )
    return uvicorn.Server(config)
