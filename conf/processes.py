"""Processes, named so that one is never taken for another: by machine, number and start."""

from __future__ import annotations

import dataclasses
import os
import socket

__all__ = ["Process", "driver_process"]

# Fields of /proc/PID/stat after the name in brackets: the parent's number, and the start in ticks since the machine came up.
_PARENT, _STARTED = 1, 19
_UP_TO = 16


@dataclasses.dataclass(frozen=True)
class Process:
    """A process.

    Attributes
    ----------
    host : str
        The machine's name, for people.
    machine : str
        What tells the machine, since it came up, and the space of process numbers (a container has its own) from all others; empty if that
        is not known.
    pid : int
    started : int
        In ticks since the machine came up; 0 if that is not known.
    """

    host: str
    machine: str
    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Process:
        """A process of this machine."""
        found = _stat(pid)
        return cls(socket.gethostname(), _machine(), pid, 0 if found is None else int(found[1][_STARTED]))

    def is_gone(self) -> bool:
        """Whether it surely lives no more. False where that cannot be known: on another machine, or without /proc."""
        if not self.machine or not self.started or self.machine != _machine():
            return False
        found = _stat(self.pid)
        return found is None or int(found[1][_STARTED]) != self.started


def driver_process() -> Process:
    """The JVM that this process works for, directly or through others; this process itself, if there is none."""
    pid = os.getpid()
    for _ in range(_UP_TO):
        found = _stat(pid)
        if found is None:
            break
        name, fields = found
        if name == "java":
            return Process.of(pid)
        pid = int(fields[_PARENT])
    return Process.of(os.getpid())


def _stat(pid: int) -> tuple[str, list[str]] | None:
    """The name and what follows it; None if there is no such process, or no /proc."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            before, _, after = file.read().rpartition(")")
    except OSError:
        return None
    fields = after.split()
    return None if fields[0] in "ZX" else (before.partition("(")[2], fields)


def _machine() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""
