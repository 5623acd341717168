"""The processor time of a process and of everything it starts. Imports nothing that Flink's environment lacks."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.memory import members

__all__ = ["processor_s", "wall_and_processor_s"]

_SAMPLE_S = 0.02
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


def wall_and_processor_s(command: Sequence[str], cwd: Path, env: Mapping[str, str]) -> tuple[float, float, int]:
    """Run a command, and return its seconds, the processor time of all that it started, and its exit code.

    The processor time goes on until the last process has ended, which may be later. It comes from samples: each process
    lacks what it did after the last one.
    """
    began = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=cwd, env=env, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    ticks: dict[int, int] = {}
    seconds, alive = 0.0, {process.pid}
    while alive:
        if not seconds and process.poll() is not None:
            seconds = time.perf_counter() - began
        sampled = alive.union(members(process.pid))
        alive = set()
        for pid in sampled:
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            ticks[pid] = sum(int(each) for each in fields[_FIRST_OF_TIMES : _FIRST_OF_TIMES + 2])
            if fields[0] not in "ZX" or pid == process.pid:
                alive.add(pid)
        if seconds:
            alive.discard(process.pid)
        time.sleep(_SAMPLE_S)
    return seconds, sum(ticks.values()) / _TICKS, process.returncode
