"""A command at a terminal: what it shows, and what is typed."""

import os
import pty
import select
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from kit.programs import COMMAND
from kit.waiting import wait_for


class Terminal:
    """A process whose standard error is a terminal; with `typing`, its input and output, too."""

    def __init__(self, *arguments: str, cwd: Path, typing: bool = False) -> None:
        self._mine, theirs = pty.openpty()
        other = theirs if typing else subprocess.DEVNULL
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=cwd,
            stdin=other,
            stdout=other,
            stderr=theirs,
            start_new_session=True,
            env={**os.environ, "COLUMNS": "200", "TERM": "xterm"},
        )
        os.close(theirs)
        self._shown = bytearray()

    def shown(self) -> str:
        """What has been shown since the last line was typed."""
        with suppress(OSError):  # the other side is closed, and everything is read
            while select.select([self._mine], [], [], 0)[0]:
                self._shown.extend(os.read(self._mine, 65536))
        return self._shown.decode(errors="replace")

    def wait_for(self, *texts: str) -> None:
        """Wait until it shows all of these."""
        wait_for(lambda: all(text in self.shown() for text in texts), self.process.poll, str(texts))

    def type(self, line: str) -> None:
        self._shown.clear()
        os.write(self._mine, line.encode() + b"\n")

    def interrupt(self) -> None:
        """Ctrl-C goes to the whole group, as a terminal sends it."""
        self._shown.clear()
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self) -> str:
        """Wait for its end, which is no failure; return what is shown."""
        wait_for(lambda: (self.shown(), self.process.poll())[1] is not None, what="its end")
        assert self.process.returncode == 0, self.shown()
        return self.shown()

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self._mine)
