"""Run Spark's Python workers as ``pyspark.daemon`` does, without what its workers cost between two tasks.

After each task a worker looks through every object of its process for garbage, and most of these are modules that the
worker keeps until it ends: 50 ms of processor time a task, where a small batch consists of a dozen tasks. Here the
collector passes over what has survived, and looks at all else after some tasks only.

Run it as ``python -m upstream.conf.worker_daemon pyspark.worker``. Spark does so where ``spark.python.daemon.module``
names it; sessions of :func:`upstream.session` start it through ``worker-python``.
"""

from __future__ import annotations

import gc
import sys
import traceback
from typing import Any

__all__ = ["FreezingCollector", "main"]


# Tasks between two full collections. What the state of a thousand queries consists of takes 150 ms to look through.
_EVERY = 8


class FreezingCollector:
    """Collect garbage as :mod:`gc` does, and exempt from later collections what survives tasks 1, 2, 4, 8 and so on.

    Objects exempted are freed as soon as nothing refers to them. Only cycles among them that become garbage later are
    kept, at most one task's share for each doubling of the number of tasks. Other cycles that were garbage before the
    end of their task are kept for 8 tasks at most, unless Python itself collects them before.
    """

    def __init__(self) -> None:
        self._tasks = 0

    def collect(self) -> None:
        """Collect after a task."""
        self._tasks += 1
        is_power = self._tasks & (self._tasks - 1) == 0
        gc.collect(2 if is_power or self._tasks % _EVERY == 0 else 1)
        if is_power:
            gc.freeze()


def _session_ended() -> bool:
    """Return whether the error under way is that of a socket whose other end is gone.

    A worker that is at work when the session ends meets it. Nobody waits for its answer either, so it ends without a
    word. All other errors are printed as ever.
    """
    return isinstance(sys.exc_info()[1], ConnectionError)


class _QuietTraceback:
    """Stand in for :mod:`traceback` where the daemon prints what ended a worker."""

    format_exc = staticmethod(traceback.format_exc)

    @staticmethod
    def print_exc() -> None:
        if not _session_ended():
            traceback.print_exc()


def _quiet_print(*words: object, **where: Any) -> None:
    if not _session_ended():
        print(*words, **where)  # noqa: T201 the daemon's own print, passed on


def main() -> None:
    """Fork a worker for each connection until Spark closes this process's input."""
    from pyspark import daemon

    changed: Any = daemon
    changed.gc, changed.traceback, changed.print = FreezingCollector(), _QuietTraceback, _quiet_print
    daemon.manager()


if __name__ == "__main__":
    main()
