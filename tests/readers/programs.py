"""Programs that tests start: servers, and clients that answer line by line."""

import base64
import contextlib
import dataclasses
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


class Asked:
    """A program that answers each line with one or several."""

    def __init__(self, *command: str | Path, **environment: str) -> None:
        self._process = subprocess.Popen(
            [*map(str, command)],
            env={**_without_python(), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def ask(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self.hear()

    def hear(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "it has ended; what it said is above"
        return line.rstrip("\n")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@dataclasses.dataclass(frozen=True)
class Server:
    """A server that a test has started, by the address it listens at."""

    host: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def started(command: Sequence[str | Path], log: Path, ready: str, port: int, **environment: str) -> Iterator[Server]:
    """Run a server, the leader of a process group of its own, while the block lasts; it says when it is ready."""
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [*map(str, command)],
            env={**os.environ, **environment},
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        end = time.monotonic() + 900
        while not re.search(ready, log.read_text(), re.MULTILINE):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)
        yield Server("127.0.0.1", port, process, log)
    finally:
        for wanted in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, wanted)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60)
                break


def serving(tables: Mapping[str, Path], folder: Path, *more: str | Path) -> contextlib.AbstractContextManager[Server]:
    """``upstream serve`` as a person runs it."""
    port = free_port()
    run = "import sys; sys.argv[0] = 'upstream'; from upstream.cli.main import main; main()"
    named = [f"{name}={path}" for name, path in tables.items()]
    command = [sys.executable, "-c", run, "serve", *named, "--port", str(port), "--master", "local[2]", *more]
    return started(command, folder / "serve.log", "^Serving ", port)


class JdbcClient:
    """A client over JDBC."""

    def __init__(self, url: str, classpath: str | Path) -> None:
        self._asked = Asked("java", "-Xmx256m", "-cp", classpath, HERE / "Jdbc.java", url)

    def query(self, sql: str) -> list[dict[str, bytes | None]] | str:
        """Rows as the driver gives them, text or binary; or what it says against the query."""
        rows: list[dict[str, bytes | None]] = []
        row: dict[str, bytes | None] = {}
        line = self._asked.ask(sql)
        while line != "end":
            name, equals, value = line.rpartition("=")
            if name == "refused":
                return bytes.fromhex(value).decode()
            if equals:
                row[name] = None if value == "null" else bytes.fromhex(value)
            else:
                rows.append(row)
                row = {}
            line = self._asked.hear()
        return rows

    def end(self) -> None:
        self._asked.end()


class DbApiClient:
    """A client in Python, of another environment."""

    def __init__(self, python: Path, name: str, port: int) -> None:
        self._asked = Asked(python, HERE / "dbapi_client.py", name, "127.0.0.1", str(port))

    def query(self, sql: str) -> list[dict[str, Any]] | str:
        """Rows as Python values; or what it says against the query."""
        return pickle.loads(base64.b64decode(self._asked.ask(sql)))

    def end(self) -> None:
        self._asked.end()


def _without_python() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
