"""Chromium, driven by playwright, which is in an environment of its own beside the tested one."""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx

from .environments import environment
from .waiting import wait_for

TOKEN = "token-of-a-test"
_HEADERS = {"Authorization": f"Bearer {TOKEN}"}
_SERVER = """
import sys
from upstream.workbench import bench
from upstream.workbench.server import serve
from upstream.workbench.watch import Watch
bench._LIMIT_S = 600.0  # no test depends on the machine's speed
serve(
    Watch(sys.argv[2:], {}), host="127.0.0.1", port=int(sys.argv[1]), token="TOKEN", control=True,
    started=lambda address: print(address, flush=True),
)
"""


def browser_program() -> str | None:
    """Return the path of Chromium; install Debian's package first where that is possible."""
    found = shutil.which("chromium")
    if found is None and shutil.which("apt-get") and os.geteuid() == 0:
        subprocess.run(["apt-get", "install", "-qq", "-y", "chromium"], check=False, capture_output=True, timeout=300)
        found = shutil.which("chromium")
    return found


@contextlib.contextmanager
def chromium(program: str) -> Iterator[Any]:
    """Start Chromium without a window."""
    (packages,) = environment("browser").parents[1].glob("lib/python*/site-packages")
    sys.path.append(str(packages))
    try:
        from playwright.sync_api import sync_playwright

        with sync_playwright() as driver:
            yield driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
    finally:
        sys.path.remove(str(packages))


class WorkbenchServer:
    """The workbench's server as a process of its own, which a test kills and restarts at its port."""

    def __init__(self, *locations: Path) -> None:
        self._locations = [str(each) for each in locations]
        self.port = 0
        self.address = ""
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> "WorkbenchServer":
        command = [sys.executable, "-c", _SERVER.replace("TOKEN", TOKEN), str(self.port), *self._locations]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        assert self.address, "the server has not started"
        self.port = int(self.address.split(":")[2].split("/")[0])
        wait_for(self._answers, self.process.poll, "the server")
        return self

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"http://127.0.0.1:{self.port}{path}", headers=_HEADERS, timeout=300)

    def _answers(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return self.get("/api/v1/tables").status_code == 200
        time.sleep(0.02)
        return False
