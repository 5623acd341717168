"""A daemon for Spark's Python workers: ``pyspark.daemon`` without its full garbage collection after each task."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from typing import Any

# Tasks between two full collections. What the state of a thousand queries consists of takes 150 ms to look through.
_EVERY = 8


class FreezingCollector:
    """A substitute for :mod:`gc` that exempts from later collections what survives tasks 1, 2, 4, 8 and so on.

    Most survivors are modules, which would cost 50 ms to traverse after each task. Reference counting still frees
    exempt objects. Only cycles among them leak, at most one task's share per doubling of the tasks. Other cycles wait
    for at most 8 tasks.
    """

    def __init__(self) -> None:
        self._tasks = 0

    def collect(self) -> None:
        self._tasks += 1
        is_power = self._tasks & (self._tasks - 1) == 0
        gc.collect(2 if is_power or self._tasks % _EVERY == 0 else 1)
        if is_power:
            gc.freeze()


def _session_ended() -> bool:
    """Return whether the current error is a closed connection, which a worker at work meets when the session ends."""
    return isinstance(sys.exc_info()[1], ConnectionError)


class _QuietTraceback:
    """A substitute for :mod:`traceback` in the daemon; it prints nothing once the session has ended."""

    format_exc = staticmethod(traceback.format_exc)

    @staticmethod
    def print_exc() -> None:
        if not _session_ended():
            traceback.print_exc()


def _quiet_print(*words: object, **where: Any) -> None:
    if not _session_ended():
        print(*words, **where)  # noqa: T201 the daemon's own print, passed on


_CORES_A_THREAD = 4
"""A batch has about as many tasks as cores. With few rows, handing them to threads takes a third of a task's time."""


def main() -> None:
    """Fork a worker for each connection until Spark closes this process's input."""
    from pyspark import daemon

    os.environ.setdefault("POLARS_MAX_THREADS", str(max(1, (os.cpu_count() or 1) // _CORES_A_THREAD)))
    changed: Any = daemon
    changed.gc, changed.traceback, changed.print = FreezingCollector(), _QuietTraceback, _quiet_print
    daemon.manager()


if __name__ == "__main__":
    main()
