"""The JVM of a session: its options, its start, and the archive of classes that shortens its start.

`python -m upstream.conf.jvm` makes the archive at once, for example in an image of a container.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .. import __version__
from .errors import EnvironmentMissingError, OptionError
from .jars import delta_jars, spark_home
from .java import java_program
from .process_identity import end_in_words

OPTIONS = "spark.driver.extraJavaOptions"
LOG = Path(__file__).with_name("log4j2.properties")  # inside a zip there is no file
CLASS_PATH = "spark.driver.extraClassPath"
_ADDRESS, _LOOPBACK = "SPARK_LOCAL_IP", "127.0.0.1"
# In Spark's own heap of 1 GB. Whoever asks for another one is left to what Java chooses.
_HEAP = "spark.driver.memory"
_COLLECTOR = "-XX:+UseSerialGC"
# The options by which a user decides about archives.
_DECIDED = re.compile(r"-Xshare|SharedArchiveFile|ArchiveClassesAtExit")
_KEPT = 3  # archives, of 100 to 200 MB each, for as many environments
_MOST_S = 300


def java_options(given: Mapping[str, str], archive: ClassArchive | None) -> str:
    """Return the options of the driver's JVM: the user's, the collector, a quiet console, and the archive's."""
    options = given.get(OPTIONS, "")
    # The JVM holds frames: large values, to which G1 gives regions of their own in a heap of this size:
    # docs/decisions/0004.
    if _HEAP not in given and not re.search(r"-XX:\+Use\w+GC", options):
        options = f"{_COLLECTOR} {options}"
    if "log4j" not in options and LOG.is_file():
        options = f'"-Dlog4j2.configurationFile={LOG.as_uri()}" {options}'
    if archive is not None and archive.is_there():
        # A JVM that cannot map it starts without it, and says nothing.
        options = f'-Xshare:auto -Xlog:disable -Xlog:all=error:stderr "-XX:SharedArchiveFile={archive.path}" {options}'
    return options.strip()


def check_pages_are_local() -> None:
    """Raise OptionError if Spark's pages, which have no password, would be on an address that other machines reach."""
    address = os.environ.get(_ADDRESS, _LOOPBACK)
    if not address.startswith("127."):
        raise OptionError(
            f"{_ADDRESS}={address} would show Spark's pages, which have no password, to other machines",
            hint=f"unset {_ADDRESS}, or set spark.ui.enabled=true to show them nevertheless",
        )


def pages_port(port: int = 4040) -> str:
    """Return the port of Spark's pages, or 0 if `port` is taken: Spark itself tries 16 more, and then exits."""
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            free.bind((_LOOPBACK, port))
        except OSError:
            port = 0
    return str(port)


def launch(settings: Mapping[str, str], jvm_log: str | None = None) -> None:
    """Start the JVM as PySpark does; with a log, its output goes there, and it is in a session of its own.

    With a local master, it listens on the loopback address, unless the user has chosen another one.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    # The program that puts the JVM's command together lives for half a second.
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", f"-XX:TieredStopAtLevel=1 {_COLLECTOR} -Xshare:auto")
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    local = settings.get("spark.master", "local").startswith("local") and _ADDRESS not in os.environ
    if local:  # for the JVM alone: another program of this process may run on a cluster
        os.environ[_ADDRESS] = _LOOPBACK
    try:
        if jvm_log is None:
            gateway = launch_gateway(conf)
        else:
            with open(jvm_log, "ab") as log:
                gateway = launch_gateway(conf, {"stdout": log, "stderr": log, "start_new_session": True})
    finally:
        if local:
            del os.environ[_ADDRESS]
    SparkContext._ensure_initialized(gateway=gateway)


def end_of_jvm(patience_s: float = 0) -> str | None:
    """Return how the JVM that this process has started ended; None if it runs after some seconds, or there is none."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    process = getattr(getattr(context, "_gateway", None), "proc", None)
    if process is None:
        return None
    try:
        code = process.wait(patience_s)
    except subprocess.TimeoutExpired:
        return None
    return f"process {process.pid} " + end_in_words(code)


def check_reach(settings: Mapping[str, str]) -> None:
    """Raise EnvironmentMissingError if a cluster cannot reach the JVM that this process has started."""
    from pyspark import SparkContext

    if settings.get("spark.master", "local").startswith("local") or "spark.driver.host" in settings:
        return
    java: Any = SparkContext._jvm
    if _ADDRESS not in os.environ and java.System.getenv(_ADDRESS) == _LOOPBACK:
        raise EnvironmentMissingError(
            f"the cluster {settings['spark.master']} cannot reach this process: its first session had a local master, "
            f"so its JVM listens on {_LOOPBACK} alone",
            hint=f"use the cluster in a new process, or set {_ADDRESS} to an address of this machine before the first "
            "session",
        )


def cache_folder() -> Path:
    """Return the folder of this user for what can be made again."""
    ours = "Library/Caches" if sys.platform == "darwin" else ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ours, "upstream")


@dataclass(frozen=True)
class ArchiveBasis:
    """What an archive depends on. The JVM compares class paths as text, and refuses folders with files in them."""

    java: str
    spark: str
    settings: str  # the folder of Spark's settings, which is on the class path
    class_path: str  # what comes before Spark's jars

    def key(self) -> str | None:
        """Return a name of the environment as it is now; None if it is gone or cannot have an archive."""
        home = Path(os.path.realpath(self.java)).parent.parent
        files = [home / "release", home / "lib" / "modules", home / "lib" / "server" / "classes.jsa"]
        files += sorted(Path(self.spark, "jars").glob("*.jar")) + [Path(each) for each in self.class_path.split(":")]
        facts: list[object] = [asdict(self), __version__]
        try:
            if os.path.isdir(self.settings) and os.listdir(self.settings):
                return None
            for path in files:
                found = path.stat()
                facts.append((str(path), found.st_size, int(found.st_mtime)))
        except OSError:
            return None
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


class ClassArchive:
    """The classes that Spark's JVM loads, in the form in which a JVM keeps them: it maps them instead of loading them.

    The first session of an environment makes the archive when its program ends, in a process of its own. Of archives,
    the three of the environments that were used last stay, as long as these environments are as they were.
    """

    def __init__(self, basis: ArchiveBasis, key: str, folder: Path) -> None:
        self._basis = basis
        self._folder = folder
        self.path = folder / f"classes-{key}.jsa"
        self._facts = self.path.with_suffix(".json")

    @classmethod
    def of(cls, class_path: str, options: str = "", folder: Path | None = None) -> ClassArchive | None:
        """Return the archive for a JVM; None if there cannot be one, or if the user's `options` decide about it."""
        java = java_program()
        if java is None or _DECIDED.search(f"{options} {os.environ.get('SPARK_SUBMIT_OPTS', '')}"):
            return None
        home = spark_home()
        configured = os.environ.get("SPARK_CONF_DIR") or str(home / "conf")
        basis = ArchiveBasis(java, str(home), configured, class_path)
        key = basis.key()
        try:
            return None if key is None else cls(basis, key, folder or cache_folder())
        except RuntimeError:  # no home
            return None

    def is_there(self) -> bool:
        """Return whether the archive is there; if so, note that it was used."""
        if not self.path.is_file():
            return False
        with contextlib.suppress(OSError):
            os.utime(self._facts)
        return True

    def make_later(self) -> None:
        """Make the archive in a process of its own once this one ends, unless it is there or could not be made."""
        if not self._facts.exists():
            atexit.register(self._start)

    def _start(self) -> None:
        with contextlib.suppress(OSError):  # no archive is no failure
            self._folder.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-m", __name__, self._basis.class_path]
            nowhere = subprocess.DEVNULL
            subprocess.Popen(
                command, cwd=self._folder, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True
            )

    def make(self) -> str:
        """Make the archive if it is not there, remove stale ones, and return why there is none, or an empty text."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with open(self._folder / "making", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # commands that end together make one archive
            if self.path.is_file():
                return ""
            self.remove_stale()
            with tempfile.TemporaryDirectory(dir=self._folder) as folder:
                made = Path(folder, "classes.jsa")
                said = self._train(made, folder)
                if made.is_file():
                    made.replace(self.path)
                    said = ""
            self._facts.write_text(json.dumps(asdict(self._basis)), encoding="utf-8")
        return said

    def _train(self, made: Path, folder: str) -> str:
        """Run a job whose JVM writes its classes as it ends, and return the output."""
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_REMOTE"))
        }
        environment["SPARK_SUBMIT_OPTS"] = f'-XX:TieredStopAtLevel=1 -Xlog:disable "-XX:ArchiveClassesAtExit={made}"'
        command = [sys.executable, "-c", _TRAINING, self._basis.class_path]
        # The JVM outlives its Python. The output ends with the last process that could write to it.
        try:
            done = subprocess.run(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, errors="replace", timeout=_MOST_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"the job did not end within {_MOST_S} s"
        return done.stdout

    def remove_stale(self) -> None:
        """Remove the archives of environments that changed, and those that were not used for the longest time."""
        facts = sorted(self._folder.glob("classes-*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
        living = 0
        for path in facts:
            try:
                key = ArchiveBasis(**json.loads(path.read_text(encoding="utf-8"))).key()
            except (OSError, ValueError, TypeError):
                key = None
            living += (current := path.stem == f"classes-{key}")
            if not current or living >= _KEPT:
                path.with_suffix(".jsa").unlink(missing_ok=True)
                path.unlink(missing_ok=True)


# What users' jobs do, so that its classes are in the archive: a source, a table, queries with state.
_TRAINING = '''
import sys
import upstream as us
with open("feed.csv", "w") as file:
    file.write("k,t,v\\n" + "".join(f"{n % 3},{n},{n}\\n" for n in range(9)))
spark = us.session(**{"spark.driver.extraClassPath": sys.argv[1]})
rows = us.read(spark, "feed.csv", key="k", event_time="t", time_format="epoch_ms", schema="k INT, t BIGINT, v INT")
rows.write("latest", checkpoint="cp_latest").trigger(availableNow=True).start().awaitTermination()
spark.read.format("delta").load("latest").count()
text = """CREATE SOURCE rows FROM 'feed.csv' WITH (key = 'k', event_time = 't', time_format = 'epoch_ms');
    CREATE MATERIALIZED VIEW means AS SELECT k % 2 AS g, AVG(v) AS mean FROM LATEST(rows) GROUP BY k % 2"""
us.sql(spark, text, to="lake").start(availableNow=True).awaitTermination()
spark.stop()
'''


def _main(given: Sequence[str]) -> int:
    os.nice(19)
    archive = ClassArchive.of(given[0] if given else ":".join(delta_jars({})))
    said = "an archive of classes cannot be made for this environment" if archive is None else archive.make()
    if said:
        print(said, file=sys.stderr)
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
