"""Starting jobs as processes of their own, and killing all that they have started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path


def start(job: Path, *arguments: str, log: Path) -> subprocess.Popen[str]:
    """Run a job in a session of its own; what it says of errors is appended to `log`."""
    with log.open("a") as errors:
        return subprocess.Popen(
            [sys.executable, str(job), *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )


def kill_session(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """Kill -9 everything that the job has started: the JVM, and Python workers, which put themselves into groups of their own."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                session = int((entry / "stat").read_text().rpartition(")")[2].split()[3])
                if session == process.pid:
                    os.kill(int(entry.name), signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
    process.wait()
