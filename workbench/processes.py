"""Processes beside this one, which end with it: one serves the workbench of a job."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from html import escape
from importlib.util import find_spec
from multiprocessing.connection import Connection

from typing_extensions import Self

from ..conf.errors import OptionError, needs_extra
from .watch import Watch

__all__ = [
    "ChildProcess",
    "Workbench",
    "address_of",
    "check_packages",
    "listen",
    "parent_connection",
    "wait_for_parent",
]

_LOOPBACK = "127.0.0.1"
_PACKAGES = ("starlette", "uvicorn")
_END_S = 3.0
_LOOK_S = 1.0

_log = logging.getLogger(__name__)


class ChildProcess:
    """A function of this package in a process of its own.

    The process finds modules where this one does, and has nothing of the main module of a user's job. Ctrl-C does not
    reach it.

    Parameters
    ----------
    module, function : str
        The function, which gets its end of the connection from :func:`parent_connection`.
    files : sequence of int
        Descriptors of this process that the other one has too.

    Attributes
    ----------
    connection : Connection
        This end of the connection.
    process : subprocess.Popen
    """

    def __init__(self, module: str, function: str, files: Sequence[int] = ()) -> None:
        self.connection, other = multiprocessing.Pipe()
        begin = f"import sys; sys.path[:] = sys.argv[2:]; import {module} as room; room.{function}()"
        with other:
            self.process = subprocess.Popen(
                [sys.executable, "-c", begin, str(other.fileno()), *sys.path],
                pass_fds=[other.fileno(), *files],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )


def parent_connection() -> Connection:
    """Return the connection to the process that has started this one."""
    return Connection(int(sys.argv[1]))


def wait_for_parent(connection: Connection) -> None:
    """Return once the process that has started this one closes the connection, or is gone."""
    parent = os.getppid()
    with contextlib.suppress(EOFError, OSError):
        # A process that it has forked may hold its end of the connection for longer.
        while os.getppid() == parent:
            if connection.poll(_LOOK_S):
                connection.recv()


def check_packages() -> None:
    """Raise EnvironmentMissingError without the packages of the server, which only the server's process imports."""
    with needs_extra("ui", "the workbench"):
        for name in _PACKAGES:
            if find_spec(name) is None:
                raise ModuleNotFoundError(f"No module named {name!r}")


class Workbench:
    """A workbench that a process beside this one serves, on the loopback address. Made by :func:`upstream.ui`.

    The process ends with this one. If it ends before, this one continues.

    Attributes
    ----------
    address : str
        The address to open, with its token.
    """

    def __init__(
        self, locations: Sequence[str], storage: Mapping[str, str], *, port: int = 0, control: bool = True
    ) -> None:
        check_packages()
        locations, token = Watch(locations, storage).locations, secrets.token_urlsafe(16)
        # Clients wait in the queue of the socket until the process serves it.
        with listen(_LOOPBACK, port) as listener:
            self.address = address_of(_LOOPBACK, listener, token)
            self._child = ChildProcess(f"{__package__}.server", "serve_parent", [listener.fileno()])
            with contextlib.suppress(OSError):  # the thread sees that it has ended
                self._child.connection.send((listener.fileno(), locations, dict(storage), token, control))
        self._stopped = False
        threading.Thread(target=self._wait, name="upstream-workbench", daemon=True).start()

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

    @property
    def pid(self) -> int:
        """The id of the process that serves."""
        return self._child.process.pid

    def stop(self) -> None:
        """Stop serving; the query continues.

        Examples
        --------
        >>> us.ui("latest").stop()
        """
        self._stopped = True
        self._child.connection.close()
        try:
            self._child.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._child.process.kill()
            self._child.process.wait()

    def _wait(self) -> None:
        code = self._child.process.wait()
        if not self._stopped:
            _log.warning("The workbench's process has ended with code %s. The query continues.", code)


def address_of(host: str, listener: socket.socket, token: str) -> str:
    """Return the address to open, with the token."""
    shown = _LOOPBACK if host in {"0.0.0.0", "::"} else host  # noqa: S104 compared, not listened on
    at = f"[{shown}]" if ":" in shown else shown
    return f"http://{at}:{listener.getsockname()[1]}/?token={token}"


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
