"""Jobs in processes of their own, which a test kills and starts again."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Job:
    """A script that is started as often as a test likes, with the same arguments; its errors gather in one log."""

    script: Path
    log: Path
    arguments: tuple[str | Path, ...]

    def start(self, *more: str) -> subprocess.Popen[str]:
        """Run the job in a session of its own, with some more arguments."""
        with self.log.open("a") as errors:
            return subprocess.Popen(
                [sys.executable, str(self.script), *map(str, self.arguments), *more],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def finish(self, *more: str) -> None:
        """Let the job run to its end, where it prints `finished`."""
        output, _ = self.start(*more).communicate(timeout=900)
        assert "finished" in output, self.errors()

    def kill_when(self, reached: Callable[[], object], *more: str, after_s: float = 0.0) -> None:
        """Start the job, and kill it at some point, or a while after."""
        process = self.start(*more)
        try:
            while not reached():
                assert process.poll() is None, f"the job has ended by itself:\n{self.errors()}"
                time.sleep(0.001)
            time.sleep(after_s)
        finally:
            kill_session(process)

    def errors(self) -> str:
        return self.log.read_text()[-4000:]


def batches(process: subprocess.Popen[str]) -> Iterator[int]:
    """The batches that a job prints when they are done."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("batch "):
            yield int(line.split()[1])


def last_commit(checkpoint: Path) -> int:
    """The last batch that Spark has noted as done."""
    return max((int(file.name) for file in (checkpoint / "commits").glob("[0-9]*")), default=-1)


def kill_session(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """Kill -9 everything that the job has started: the JVM, and Python workers, which put themselves into groups of
    their own.
    """
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                session = int((entry / "stat").read_text().rpartition(")")[2].split()[3])
                if session == process.pid:
                    os.kill(int(entry.name), signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
    process.wait()
