"""A Spark standalone cluster of separate JVMs, and a Python that has the dependencies but not this project."""

import dataclasses
import os
import re
import signal
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from kit.places import ROOT
from kit.waiting import wait_for

PROJECT = re.compile(r"(upstream|pyspark_upstream)(-.*\.dist-info)?")


@dataclasses.dataclass
class Cluster:
    """A master and its workers, each the leader of a process group of its own."""

    url: str
    spark_home: Path
    environment: Mapping[str, str]
    folder: Path
    start_worker: Callable[[], subprocess.Popen[bytes]]
    workers: list[subprocess.Popen[bytes]] = dataclasses.field(default_factory=list[subprocess.Popen[bytes]])

    def submit(self, *arguments: str | Path, log: Path) -> subprocess.Popen[bytes]:
        """Start spark-submit against this cluster; its output goes to the log."""
        command = [self.spark_home / "bin" / "spark-submit", "--master", self.url, "--executor-memory", "768m"]
        command += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"]
        with open(log, "wb") as output:
            return subprocess.Popen(
                [*map(str, command), *map(str, arguments)],
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @staticmethod
    def end(process: subprocess.Popen[bytes]) -> None:
        """Stop what `submit` started, if it still runs."""
        if process.poll() is None:
            _end(process)

    def add_worker(self) -> None:
        """Start a worker, and wait until the master knows it."""
        self.workers.append(self.start_worker())

    def kill_worker(self) -> None:
        """What a machine's power loss does: the worker, its executors and their Python processes are gone at once."""
        worker = self.workers.pop()
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Stop a process group that was started here."""
    for wanted in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, wanted)
        except ProcessLookupError:
            break
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory):
    """An environment with all that is installed here except this project."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    theirs = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not PROJECT.fullmatch(entry.name):
            (Path(theirs.stdout.strip()) / entry.name).symlink_to(entry)
    tried = subprocess.run(
        [python, "-I", "-c", "import pyarrow, deltalake; import upstream"], capture_output=True, check=False
    )
    assert b"No module named 'upstream'" in tried.stderr
    return python


@pytest.fixture(scope="session")
def pyfiles(tmp_path_factory):
    """What ``make pyfiles`` makes."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(["sh", ROOT / "tools" / "pyfiles.sh", sys.executable, folder], check=True, capture_output=True)
    return folder / "pyspark-upstream.zip"


@pytest.fixture(scope="module")
def cluster(bare_python, tmp_path_factory):
    """A master and two workers of one core each on this machine; their logs stay in the cluster's folder."""
    tmp_path = tmp_path_factory.mktemp("cluster")
    spark_home = next(bare_python.parents[1].glob("lib/python*/site-packages/pyspark"))
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK", "PYTHON"))},
        "SPARK_HOME": str(spark_home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": str(bare_python),
        "PYSPARK_DRIVER_PYTHON": str(bare_python),
    }
    started: list[subprocess.Popen[bytes]] = []

    def daemon(name: str, *arguments: str) -> Path:
        log = tmp_path / f"{name}.log"
        with open(log, "wb") as output:
            command = [str(spark_home / "bin" / "spark-class"), *arguments]
            started.append(
                subprocess.Popen(
                    command,
                    env=environment,
                    cwd=tmp_path,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
        return log

    try:
        log = daemon(
            "master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"
        )
        # 127.0.0.1, and whatever port was free.
        address = re.compile(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
        wait_for(
            lambda: address.search(log.read_text()) and "I have been elected leader" in log.read_text(), what="a master"
        )
        url = address.search(log.read_text())
        assert url
        address_of_master = url.group(1)

        def start_worker() -> subprocess.Popen[bytes]:
            number = len(started)
            log = daemon(
                f"worker{number}", "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0",
                "--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / f"work{number}"), address_of_master,
            )  # fmt: skip
            wait_for(lambda: "Successfully registered with master" in log.read_text(), what=f"worker {number}")
            return started[-1]

        cluster = Cluster(address_of_master, spark_home, environment, tmp_path, start_worker)
        for _ in range(2):
            cluster.add_worker()
        yield cluster
    finally:
        for process in reversed(started):
            if process.poll() is None:
                _end(process)
