"""Deep stacks: calls with the same recursion limit in every thread and process."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

_FRAMES = 30_000
_BYTES = 256 << 20
"""Bytes of address space; the system allocates memory only for the used part."""

_Result = TypeVar("_Result")


class _DeepThreads:
    """Running threads with deep stacks. While one runs, the recursion limit is raised for all of Python."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._limit = 0
        self.here = threading.local()

    def start(self, run: Callable[[], None]) -> threading.Thread:
        with self._lock:
            if not self._running:
                self._limit = sys.getrecursionlimit()
                sys.setrecursionlimit(max(_FRAMES, self._limit))
            self._running += 1
            before = threading.stack_size(_BYTES)
            try:
                thread = threading.Thread(target=run, name="upstream-deep-stack", daemon=True)
                thread.start()
            finally:
                threading.stack_size(before)
        return thread

    def end(self) -> None:
        with self._lock:
            self._running -= 1
            if not self._running:
                sys.setrecursionlimit(self._limit)


_threads = _DeepThreads()


def on_deep_stack(function: Callable[[], _Result]) -> _Result:
    """Call a function in a thread of its own with a deep stack; return its result or raise its error."""
    if getattr(_threads.here, "deep", False):
        return function()
    results: list[_Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        _threads.here.deep = True
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001 raised again where it is waited for
            errors.append(error)

    thread = _threads.start(run)
    try:
        thread.join()
    finally:
        _threads.end()
    if errors:
        raise errors[0]
    return results[0]
