"""The memory high-water mark of a process and everything it starts."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["PeakMemory", "members", "peak_mb"]

_EVERY_SECONDS = 0.05
# Asking the kernel for a large process's share takes it milliseconds; it is not asked for more than this part of the
# time.
_MOST_OF_THE_TIME = 0.05


class PeakMemory:
    """Polls the proportional set size (shared pages counted once) of a session of processes while it is entered.

    Parameters
    ----------
    session : int
        The id of the session's first process, which was started in a session of its own.
    """

    def __init__(self, session: int) -> None:
        self._session = session
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._recent_mb = 0.0
        self.peak_mb = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def since_asked_mb(self) -> float:
        """Return the peak since the previous call, in MB."""
        recent, self._recent_mb = self._recent_mb, 0.0
        return recent

    def _poll(self) -> None:
        while not self._stop.is_set():
            began = time.perf_counter()
            total = sum(_share_kb(pid) for pid in members(self._session))
            self.peak_mb = max(self.peak_mb, total / 1024)
            self._recent_mb = max(self._recent_mb, total / 1024)
            took = time.perf_counter() - began
            self._stop.wait(max(_EVERY_SECONDS - took, took / _MOST_OF_THE_TIME - took))


def peak_mb() -> float:
    """Return the peak memory of the calling process, in MB.

    Unlike the figure of ``getrusage``, it excludes the memory of a larger process that started this one.
    """
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def members(session: int) -> list[int]:
    """Return the processes of a session, and what they started in sessions of their own."""
    parents: dict[int, int] = {}
    found: set[int] = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(name)] = int(fields[1])
            if int(fields[3]) == session:
                found.add(int(name))
    # A child may have opened a session of its own.
    grown = True
    while grown:
        grown = False
        for pid, parent in parents.items():
            if parent in found and pid not in found:
                found.add(pid)
                grown = True
    return sorted(found)


def _share_kb(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0
