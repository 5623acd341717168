"""Jobs in processes of their own, which a test kills and starts again."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from upstream.sink.spec.steps import CommitStep


@dataclasses.dataclass(frozen=True)
class Job:
    """A script that a test starts repeatedly, with the same arguments; its errors gather in one log.

    A script that imports `dying_sink` stops at the steps of the sink that `arm` names.
    """

    script: Path
    log: Path
    arguments: tuple[str | Path, ...]

    @property
    def armed(self) -> Path:
        """The folder of armed steps."""
        return self.log.with_suffix(".armed")

    def arm(self, step: CommitStep, what: str = "stop", batch: int | None = None) -> None:
        """Have the next process that reaches a step, of one batch or of any, do what `dying_sink` describes."""
        self.armed.mkdir(exist_ok=True)
        (self.armed / f".{step.name}").write_text(what if batch is None else f"{what} {batch}")
        (self.armed / f".{step.name}").rename(self.armed / step.name)

    def reached(self, step: CommitStep) -> bool:
        """Return whether a process reached an armed step."""
        return (self.armed / f"reached-{step.name}").exists()

    def start(self, *more: str) -> subprocess.Popen[str]:
        """Run the job in a session of its own, with some more arguments."""
        with self.log.open("a") as errors:
            return subprocess.Popen(
                [sys.executable, str(self.script), *map(str, self.arguments), *more],
                env={**os.environ, "UPSTREAM_ARMED": str(self.armed)},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def finish(self, *more: str) -> None:
        """Run the job to its end, where it prints `finished`."""
        output, _ = self.start(*more).communicate()
        assert "finished" in output, self.errors()

    def kill_at(self, step: CommitStep, *more: str, batch: int | None = None) -> None:
        """Start the job, and kill it while it stops at a step, of one batch or of any."""
        self.arm(step, batch=batch)
        self.kill_when(lambda: self.reached(step), *more)
        (self.armed / f"reached-{step.name}").unlink()

    def kill_when(self, reached: Callable[[], object], *more: str, after_s: float = 0.0) -> None:
        """Start the job, and kill it at some moment after a condition holds."""
        process = self.start(*more)
        try:
            while not reached():  # looks often: some points pass at once
                assert process.poll() is None, f"the job has ended by itself:\n{self.errors()}"
                time.sleep(0.001)
            time.sleep(after_s)
        finally:
            kill_session(process)

    def errors(self) -> str:
        return self.log.read_text()[-4000:]


def last_commit(checkpoint: Path) -> int:
    """Return the last batch in Spark's log of commits, or -1."""
    return max((int(file.name) for file in (checkpoint / "commits").glob("[0-9]*")), default=-1)


def kill_session(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """Kill -9 all that the job started: the JVM, and Python workers, which are in groups of their own."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                session = int((entry / "stat").read_text().rpartition(")")[2].split()[3])
                if session == process.pid:
                    os.kill(int(entry.name), signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
    process.wait()
