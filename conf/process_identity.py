"""Identities of processes and boots: from /proc on Linux, else from psutil with a tolerance for clock changes."""

from __future__ import annotations

import dataclasses
import functools
import os
import signal
import socket
import uuid
from typing import NamedTuple

from .worker_start import STARTED_BY

# Fields of /proc/PID/stat after the name in brackets: the parent's number, and the start in ticks since the machine
# came up.
_PARENT, _STARTED = 1, 19
_UP_TO = 16
_PROC = "/proc"
_TICKS = 100
# By how much the clock may be set while a machine or a process runs.
_CLOCK_SET_S = 600


class _Seen(NamedTuple):
    name: str
    parent: int
    started: int


@dataclasses.dataclass(frozen=True)
class Process:
    """The identity of a process."""

    host: str  # for display only
    machine: str  # identity of the boot and of the PID namespace; empty if unknown
    pid: int
    started: int  # ticks since the boot, or without /proc 1/100 s since the epoch; 0 if unknown

    @classmethod
    def of(cls, pid: int) -> Process:
        found = _seen(pid)
        return cls(socket.gethostname(), _machine(), pid, 0 if found is None else found.started)

    def is_gone(self) -> bool:
        """Return whether the process has surely ended; False if that is unknown, as for one on another machine."""
        if not self.machine or not self.started or self.machine != _machine():
            return False
        found = _seen(self.pid)
        allowed = 0 if os.path.isdir(_PROC) else _CLOCK_SET_S * _TICKS
        return found is None or abs(found.started - self.started) > allowed


def driver_process() -> Process:
    """Return the JVM that this process works for, directly or through others, or this process if there is none."""
    pid = int(os.environ.get(STARTED_BY) or os.getpid())
    for _ in range(_UP_TO):
        found = _seen(pid)
        if found is None:
            break
        if found.name == "java":
            return Process.of(pid)
        pid = found.parent
    return Process.of(os.getpid())


def end_in_words(code: int) -> str:
    """Return how a process ended, by the exit code that Python reports."""
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with the exit code {code}"


def cores() -> int:
    """Return how many cores this process may use: all cores, unless the system restricts the process."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


@functools.cache
def boot_name() -> str:
    """Return a UUID that names this boot of the machine; :func:`same_boot` compares two."""
    try:
        with open(f"{_PROC}/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        import psutil

        return str(uuid.UUID(int=int(psutil.boot_time())))


def same_boot(one: str, other: str) -> bool:
    """Return whether two names are of one boot."""
    apart = abs(uuid.UUID(one).int - uuid.UUID(other).int)
    return apart == 0 or (apart <= _CLOCK_SET_S and max(uuid.UUID(one).int, uuid.UUID(other).int) < 1 << 40)


def _seen(pid: int) -> _Seen | None:
    """Return a process's name, parent and start; None if there is none, or if it has ended and awaits its parent."""
    if not os.path.isdir(_PROC):
        return _by_psutil(pid)
    try:
        with open(f"{_PROC}/{pid}/stat", encoding="utf-8", errors="replace") as file:
            before, _, after = file.read().rpartition(")")
    except OSError:
        return None
    fields = after.split()
    name = before.partition("(")[2]
    return None if fields[0] in "ZX" else _Seen(name, int(fields[_PARENT]), int(fields[_STARTED]))


def _by_psutil(pid: int) -> _Seen | None:
    import psutil

    try:
        process = psutil.Process(pid)
        with process.oneshot():
            if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                return None
            return _Seen(process.name(), process.ppid(), int(process.create_time() * _TICKS))
    except psutil.NoSuchProcess:
        return None
    except psutil.AccessDenied:  # another user's: it lives
        return _Seen("", 0, 0)


@functools.cache
def _machine() -> str:
    try:
        return f"{boot_name()} {os.readlink(f'{_PROC}/self/ns/pid')}"
    except OSError:
        return f"{boot_name()} {uuid.getnode():x}"
