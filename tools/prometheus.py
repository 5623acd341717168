"""Debian's Prometheus with promtool, for tests: fetched by apt-get, and unpacked into ``.cache/prometheus``."""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from upstream.conf.progress import progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self

__all__ = ["Prometheus", "programs"]

_CACHE = Path(__file__).resolve().parents[1] / ".cache" / "prometheus"
_READY_S = 60.0


def programs() -> Path:
    """Return the folder of ``prometheus`` and ``promtool``; fetch them (19 MB) if they are missing.

    Raises
    ------
    RuntimeError
        They cannot be fetched: no Debian, or no network.
    """
    found = shutil.which("promtool")
    if found is not None and shutil.which("prometheus") is not None:
        return Path(found).parent
    folder = _CACHE / "usr" / "bin"
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (_CACHE / "whole").exists():
            with progress("fetching Prometheus: 19 MB, once"):
                _fetch()
            (_CACHE / "whole").touch()
    return folder


def _fetch() -> None:
    problem = "apt-get and dpkg are not there"
    if shutil.which("apt-get") and shutil.which("dpkg"):
        for before in ([], ["apt-get", "update"]):
            if before:
                subprocess.run(before, capture_output=True, check=False)
            done = subprocess.run(
                ["apt-get", "download", "prometheus"], cwd=_CACHE, capture_output=True, text=True, check=False
            )
            for package in _CACHE.glob("prometheus_*.deb"):
                subprocess.run(["dpkg", "-x", str(package), str(_CACHE)], check=True)
                package.unlink()
                return
            problem = done.stderr.strip().rpartition("\n")[2]
    raise RuntimeError(f"Debian's package prometheus cannot be fetched: {problem}")


class Prometheus:
    """A server of its own that scrapes each second; use it as a context.

    Parameters
    ----------
    folder : pathlib.Path
        Its data.
    target : str
        The host and port to scrape, at ``/metrics``.
    token : str
        The bearer token that the target demands.
    features : str
        Of ``--enable-feature``.
    """

    def __init__(self, folder: Path, target: str, token: str, features: str = "") -> None:
        folder.mkdir()
        self._folder = folder
        self._features = [f"--enable-feature={features}"] if features else []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._address = f"127.0.0.1:{free.getsockname()[1]}"
        job = {
            "job_name": "upstream",
            "authorization": {"credentials": token},
            "static_configs": [{"targets": [target]}],
        }
        config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}
        (folder / "prometheus.yml").write_text(json.dumps(config))

    def __enter__(self) -> Self:
        """Start the server, and wait until it answers."""
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    programs() / "prometheus",
                    f"--config.file={self._folder}/prometheus.yml",
                    f"--storage.tsdb.path={self._folder}/data",
                    f"--web.listen-address={self._address}",
                    *self._features,
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        end = time.monotonic() + _READY_S
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > end:
                self.__exit__()
                raise RuntimeError((self._folder / "log").read_text()[-2000:])
            time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the server: nobody needs its data."""
        self._process.kill()
        self._process.wait()

    def query(self, expression: str) -> list[Any]:
        """Return what an instant query finds now: each series with its value.

        Raises
        ------
        RuntimeError
            The server refuses the query.
        """
        given = urllib.parse.urlencode({"query": expression})
        try:
            return self._get(f"/api/v1/query?{given}")["data"]["result"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{expression}: {error.read().decode()}") from error

    def scrapes(self) -> Iterator[dict[str, Any]]:
        """Yield what the server knows of each target: its health, and the last error."""
        yield from self._get("/api/v1/targets")["data"]["activeTargets"]

    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{self._address}/-/ready") as answer:
            return answer.status == 200
        return False

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://{self._address}{path}") as answer:
            return json.load(answer)
