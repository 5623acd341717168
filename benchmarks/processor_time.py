"""The processor time of a process and of everything it starts. Imports nothing that Flink's environment lacks."""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.memory import members

__all__ = ["processor_s"]

_TICKS = os.sysconf("SC_CLK_TCK")
_FIRST_OF_TIMES, _TIMES = 11, 4  # utime, stime, and both of the children that have ended


def processor_s() -> float:
    """Return the processor time, in seconds, that this session of processes has had so far.

    It includes that of processes that have ended, if their parent is there. So a difference of two calls is the
    processor time between them.
    """
    total = 0
    for pid in members(os.getsid(0)):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(int(each) for each in fields[_FIRST_OF_TIMES : _FIRST_OF_TIMES + _TIMES])
    return total / _TICKS
