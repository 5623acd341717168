"""A Spark session with working settings and an early start of its workers; checks of sessions made elsewhere."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import uuid
import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import EnvironmentMissingError, OptionError, pip_install
from .jars import EXCLUDES, PACKAGE, delta_jars
from .java import SUPPORTED_SPARK, java_problem, spark_problem
from .jvm import (
    CLASS_PATH,
    OPTIONS,
    ClassArchive,
    check_pages_are_local,
    check_reach,
    java_options,
    launch,
    pages_port,
)
from .locations import is_client
from .process_identity import cores as cores_here
from .progress import progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
# Spark's default, and the only other provider that Spark has. Platforms have their own, which may do.
_WITHOUT_FAMILIES = "HDFSBackedStateStoreProvider"


def check_state_store(spark: SparkSession, step: str) -> None:
    """Raise EnvironmentMissingError if the state store cannot hold the state of `step`: Spark fails in a batch."""
    found = str(spark.conf.get(PROVIDER))
    if not found.endswith(_WITHOUT_FAMILIES):
        return
    raise EnvironmentMissingError(
        f"the session keeps state with {found}, and this step cannot: {step}",
        expected=f"{PROVIDER}={ROCKSDB}",
        hint=f'call spark.conf.set("{PROVIDER}", "{ROCKSDB}") before the query starts',
    )


_PATIENCE_S = 20


def warm_workers(spark: SparkSession) -> threading.Thread:
    """Start Spark's Python processes by a few synthetic rows, in a thread that never raises, and return the thread."""

    def read() -> None:
        # The session may be stopped meanwhile, or the format not be installed where Spark looks: nothing is lost then.
        with contextlib.suppress(Exception):
            rows = spark.read.format("upstream").options(connector="synthetic", rows="8", rowsPerSecond="8").load()
            rows.repartition(2).write.format("noop").mode("overwrite").save()

    thread = threading.Thread(target=read, name="upstream-warm-workers", daemon=True)
    thread.start()
    # A program that ends at once would take the workers away in the middle of the batch, which Spark reports as errors.
    atexit.register(thread.join, _PATIENCE_S)
    return thread


_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
# Checkpoints on a local disk: the default forks a process to rename a file and to set its rights, forty times a batch.
# Both rename at once, but on HDFS only the default overwrites what a repeated batch has left.
_FILES = "spark.sql.streaming.checkpointFileManagerClass"
_LOCAL_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
# More shuffle partitions than this cost more in tasks and state stores than they bring on one machine.
_MOST_PARTITIONS = 32

# Of a task on a local master. A cluster has four; here a task that fails for good is also slow to fail.
_ATTEMPTS = 2

# What `missing` looks at: setting, value, what suffers without it. Also part of the preset.
_LOOKED_AT = (
    ("spark.sql.extensions", _EXTENSION, "Spark SQL cannot read or maintain the table"),
    ("spark.sql.catalog.spark_catalog", _CATALOG, "Spark SQL cannot read or maintain the table by name"),
    ("spark.sql.session.timeZone", "UTC", "times without a zone are read and shown in the machine's"),
    (PROVIDER, ROCKSDB, "state is held in the JVM's memory"),
    (
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
        "true",
        "each batch uploads whole state files",
    ),
)

_log = logging.getLogger(__name__)
_CLIENT_PACKAGES = ("grpc", "grpc_status", "zstandard")
_PAGES = "spark.ui.enabled"
_REMOTE, _TOKEN = "spark.remote", "SPARK_CONNECT_AUTHENTICATE_TOKEN"
# Sessions, by application, for which the data source was registered.
_known: dict[str, set[str]] = {}


def preset() -> dict[str, str]:
    """Return the settings that do not depend on the machine; ``spark-defaults.conf`` repeats them for spark-submit."""
    return {
        **{name: value for name, value, _ in _LOOKED_AT},
        "spark.databricks.delta.snapshotPartitions": "2",
        # A batch waits for the loopback interface some dozen times otherwise.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",
        _PAGES: "false",
        "spark.ui.showConsoleProgress": "false",
    }


def session(
    app_name: str = "upstream",
    *,
    master: str | None = None,
    jvm_log: str | None = None,
    spark_ui: bool = False,
    **conf: Any,
) -> SparkSession:
    """Return a Spark session with Delta, UTC, RocksDB state and a quiet console; the active one if there is one.

    Parameters
    ----------
    app_name : str
        Shown in Spark's UI and logs.
    master : str, optional
        Such as ``local[4]``; all cores of this machine unless given here, in `conf` or to spark-submit. Locally, a task
        has two attempts, unless the master has their number, as ``local[4,1]`` does.
    jvm_log : str, optional
        A file that takes what the JVM and the workers print, appended; the console gets nothing of it. They then are in
        a process group of their own, so that Ctrl-C reaches this process alone, which can stop its queries in order.
    spark_ui : bool
        Serve Spark's pages. They have no password: all users of this machine can read the environment and the plans
        there, and a web site can by DNS rebinding.
    **conf
        Spark settings, which win over the preset: ``session(**{"spark.ui.port": 4050})``. So do those given to
        spark-submit and those in Spark's own ``spark-defaults.conf``. With ``spark.remote``, or the environment
        variable ``SPARK_REMOTE``, the session is a client of Spark Connect: ``local[*]`` starts a server here, and
        ``sc://host:port`` names another one.

    Returns
    -------
    pyspark.sql.SparkSession

    Raises
    ------
    EnvironmentMissingError
        No Java or a wrong one; another Spark than 4.2; Delta's jars can neither be found nor fetched; a session is
        active that lacks what this needs; the packages of Spark Connect are not installed.
    OptionError
        A name in `conf` is not a Spark setting, or ``SPARK_LOCAL_IP`` would show Spark's pages to other machines.

    Examples
    --------
    >>> spark = us.session("speeds", **{"spark.sql.shuffle.partitions": 8})
    """
    _refuse(spark_problem())
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    own = _as_settings(conf)
    if master is not None:
        own["spark.master"] = master
    own |= {_PAGES: "true"} if spark_ui else {}
    active = SparkSession.getActiveSession()
    if active is not None:
        register_data_source(active)
        check_session(active, strict=True)
        for name, value in own.items():
            if active.conf.isModifiable(name):
                active.conf.set(name, value)
        return active

    remote = own.pop(_REMOTE, "") or os.environ.get("SPARK_REMOTE", "")
    if remote:
        check_client_packages()
        if not remote.startswith("local"):
            return _client(app_name, remote, own)
        if master is not None:
            raise OptionError(
                f"both master={master!r} and {_REMOTE}={remote!r}", expected="one of them", hint="leave master out"
            )
        own["spark.master"] = remote

    started_by_submit = "PYSPARK_GATEWAY_PORT" in os.environ
    starts_jvm = not started_by_submit and SparkContext._gateway is None
    if starts_jvm:
        _refuse(java_problem())
        use_installed_pyspark()
        start_forks()
    given = {**(_from_submit() if started_by_submit else _from_defaults_file()), **own}
    if started_by_submit and given.get("spark.master", "local").startswith("local"):
        use_installed_pyspark()

    settings = _settings(given, starts_jvm=starts_jvm, spark_ui=spark_ui)
    if remote:  # the JVM takes the token from the environment
        os.environ.setdefault(_TOKEN, settings.get("spark.connect.authenticate.token", "") or str(uuid.uuid4()))
    if SparkContext._gateway is None:  # PySpark itself starts the JVM of a server without these settings
        with progress("starting Spark"):
            launch(settings, jvm_log)
    else:
        check_reach(settings)
    if remote:
        return _server(app_name, settings["spark.master"], settings)
    builder = SparkSession.builder.appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with progress("starting Spark"):
        spark = builder.getOrCreate()
    register_data_source(spark)
    check_session(spark)
    if str(spark.sparkContext.master).startswith("local"):
        warm_workers(spark)  # elsewhere other machines would have to be warmed, and their owner asked
    return spark


def _refuse(problem: str | None) -> None:
    if problem is not None:
        raise EnvironmentMissingError(problem)


def _settings(given: Mapping[str, str], *, starts_jvm: bool, spark_ui: bool) -> dict[str, str]:
    """Return the settings of a session: the user's, and the preset."""
    master = given.get("spark.master", "local[*]")
    settings = {**preset(), **environment_of_workers(), **_for_machine(master)}
    local = master.startswith("local")
    in_one_jvm = starts_jvm and local
    if spark_ui and local:
        check_pages_are_local()
    if in_one_jvm and given.get(_PAGES) == "true":
        settings["spark.ui.port"] = pages_port()
    always = {"spark.jars", "spark.sql.extensions", OPTIONS}
    jars, archive = _jars(given), None
    if starts_jvm:
        # From the class path, classes come out of the archive, and all threads see them.
        settings[CLASS_PATH] = _joined(":", *jars, given.get(CLASS_PATH))
        always.add(CLASS_PATH)
        archive = ClassArchive.of(settings[CLASS_PATH], given.get(OPTIONS, ""))
        if archive is not None:
            archive.make_later()
    settings["spark.jars"] = _joined(",", given.get("spark.jars"), *(() if in_one_jvm else jars))
    settings["spark.sql.extensions"] = _joined(",", given.get("spark.sql.extensions"), _EXTENSION)
    settings[OPTIONS] = java_options(given, archive)
    settings |= {name: value for name, value in given.items() if name not in always}
    settings["spark.master"] = _with_attempts(master)
    return {name: value for name, value in settings.items() if value}


def _server(app_name: str, remote: str, settings: Mapping[str, str]) -> SparkSession:
    """Start a server of Spark Connect in this process, and return a client of it."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote(remote).appName(app_name)
    for name, value in settings.items():
        if name != "spark.master":
            builder = builder.config(name, value)
    with warnings.catch_warnings():
        # PySpark sets each setting for the client as well, and warns of those that the server has taken already.
        warnings.filterwarnings("ignore", message="Failed to set", category=UserWarning)
        spark = builder.getOrCreate()
    check_session(spark)
    return spark


def _client(app_name: str, remote: str, own: Mapping[str, str]) -> SparkSession:
    """Return a client of a server; the settings that a client may change are as in the preset."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(remote).appName(app_name).getOrCreate()
    for name, value in {**{name: value for name, value, _ in _LOOKED_AT}, **own}.items():
        if spark.conf.isModifiable(name):
            spark.conf.set(name, value)
    check_session(spark)
    return spark


def register_data_source(spark: SparkSession) -> None:
    """Register the data source where Spark cannot find it: when the package came by ``--py-files``.

    Spark's lookup process does not see a job's files. The process of a streaming source expects them in a folder
    ``streaming_job`` that Spark never fills. The one that opens an operator's state on the driver searches only the
    workers' path (4.2.0).
    """
    context = getattr(spark, "_sc", None)
    if context is None or not context._python_includes:
        return
    known = _known.setdefault(context.applicationId, set())
    java_session: Any = spark._jsparkSession
    session_id = str(java_session.sessionUUID())
    if session_id in known:
        return
    from pyspark import SparkFiles

    from pyspark_upstream import DefaultSource

    files = Path(SparkFiles.getRootDirectory())
    (files / "streaming_job").mkdir(exist_ok=True)
    path = context.environment.get("PYTHONPATH", "").split(os.pathsep)
    for name in context._python_includes:
        path.append(str(files / name))
        link = files / "streaming_job" / name
        if (files / name).exists() and not link.exists():
            link.symlink_to(files / name)
    context.environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, path)))
    spark.dataSource.register(DefaultSource)
    known.add(session_id)


def missing(spark: SparkSession) -> list[str]:
    """List what a session lacks, most important first. It raises nothing: users may want another time zone or store."""
    lacks: list[str] = []
    if not spark.version.startswith(SUPPORTED_SPARK):
        lacks.append(
            f"Spark {SUPPORTED_SPARK}x: this is {spark.version}, where the data source and the sink are not tested"
        )
    if not _has_class(spark, _EXTENSION):
        lacks.append(
            f"Delta's jars: start with --packages {PACKAGE} --exclude-packages '{EXCLUDES}', "
            "or with --properties-file conf/spark-defaults.conf of this package"
        )
    for name, value, without in _LOOKED_AT:
        found = _setting(spark, name)
        if value not in found.split(","):
            lacks.append(f"{name}={value}: it is {found or 'not set'}, so {without}")
    worker = _worker_python(spark)
    if worker is not None:
        lacks.append(
            f"PYSPARK_PYTHON={sys.executable}: workers start {worker}, which may not have this package's dependencies"
        )
    return lacks


def check_session(spark: SparkSession, *, strict: bool = False) -> list[str]:
    """Report what a session lacks, by name, as warnings in the log ``upstream.conf.session``.

    Parameters
    ----------
    spark
        Any session, for example one that spark-submit or a platform made.
    strict : bool
        Raise instead.

    Returns
    -------
    list of str
        The result of :func:`missing`.

    Raises
    ------
    EnvironmentMissingError
        The session lacks something and `strict` is set.

    Examples
    --------
    >>> lacking = us.check_session(spark)
    """
    lacks = missing(spark)
    if lacks and strict:
        raise EnvironmentMissingError(
            "the Spark session lacks " + "; ".join(lacks),
            hint="stop it and let upstream.session() make one, or set these where it is made"
            if not is_client(spark)
            else "set those of streaming and of the time zone with spark.conf.set, and the others where Spark "
            "Connect's server starts. Or use the session without upstream.session()",
        )
    for lack in lacks:
        _log.warning("The Spark session lacks %s.", lack)
    return lacks


def _as_settings(conf: Mapping[str, Any]) -> dict[str, str]:
    wrong = [name for name in conf if not name.startswith("spark.")]
    if wrong:
        raise OptionError(
            f"{', '.join(map(repr, wrong))} is not a Spark setting",
            expected="names that begin with 'spark.'",
            hint='write session(**{"spark.ui.port": 4050})',
        )
    return {
        name: ("true" if value else "false") if isinstance(value, bool) else str(value) for name, value in conf.items()
    }


def check_client_packages() -> None:
    """Raise EnvironmentMissingError unless the packages for a client of Spark Connect are installed."""
    lacking = [name for name in _CLIENT_PACKAGES if find_spec(name) is None]
    if lacking:
        raise EnvironmentMissingError(
            f"Spark Connect needs {', '.join(lacking)}, which this Python does not have",
            expected="the packages of the extra `connect`",
            hint=f"run `{pip_install('connect')}`",
        )


def _from_submit() -> dict[str, str]:
    """Return the settings given to spark-submit, which has already started the JVM."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def _from_defaults_file() -> dict[str, str]:
    """Return the user's own spark-defaults.conf, which settings made in Python would otherwise override."""
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(os.environ.get("SPARK_HOME", ""), "conf")
    path = Path(folder, "spark-defaults.conf")
    if not path.is_absolute() or not path.is_file():
        return {}
    pairs = (line.strip().replace("=", " ", 1).split(None, 1) for line in path.read_text().splitlines())
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2 and pair[0].startswith("spark.")}


def _for_machine(master: str) -> dict[str, str]:
    if not master.startswith("local"):
        return {}  # a cluster's number of cores is its owner's to say
    inside = master.partition("[")[2].partition("]")[0].partition(",")[0]
    cores = int(inside) if inside.isdigit() else 1 if not inside else cores_here()
    return {
        "spark.sql.shuffle.partitions": str(max(2, min(cores, _MOST_PARTITIONS))),
        # Nobody else has to reach the driver; a host name that does not resolve must not stop it.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        **({} if "HADOOP_CONF_DIR" in os.environ else {_FILES: _LOCAL_FILES}),
    }


def _with_attempts(master: str) -> str:
    """Return a master that repeats a task whose worker has died: a local one does not if its number is missing."""
    cores = re.fullmatch(r"local(?:\[(\d+|\*)\])?", master)
    return master if cores is None else f"local[{cores[1] or 1},{_ATTEMPTS}]"


def _jars(given: Mapping[str, str]) -> list[str]:
    named = " ".join(given.get(name, "") for name in ("spark.jars", "spark.jars.packages", CLASS_PATH))
    return [] if "delta-spark_" in named else delta_jars(given)


def _joined(separator: str, *given: str | None) -> str:
    parts = [part.strip() for each in given for part in (each or "").split(separator)]
    return separator.join(dict.fromkeys(filter(None, parts)))


_PYTHON, _FORKS = "UPSTREAM_PYTHON", "UPSTREAM_FORKS"
_LONGEST_SOCKET = 100
# Ends when its standard input does, with this process.
_forks: subprocess.Popen[bytes] | None = None


def _script() -> str | None:
    """Return the program that starts a worker, or None if workers need Spark's archives.

    Archives cost compilation in every process (0.5 s) and a directory read in every task (80 ms).
    """
    import pyspark

    script = Path(__file__).with_name("worker-python")
    installed = Path(str(pyspark.__file__)).parent
    if installed.parent.suffix == ".zip":  # spark-submit puts the archive before the files that it was made from
        home = installed.parents[3]
        installed = home if str(home.parent) in sys.path else installed
    spark_home = os.environ.get("SPARK_HOME")
    if os.name != "posix" or not os.access(script, os.X_OK) or not installed.is_dir():
        return None
    if not (installed / "jars").is_dir() or (spark_home and Path(spark_home).resolve() != installed.resolve()):
        return None
    return str(script)


def use_installed_pyspark() -> None:
    """Let Spark's workers run this Python, unless the user has named another. Call it before Spark starts."""
    script = _script()
    if script is not None:
        os.environ.setdefault(_PYTHON, sys.executable)
    # Functions run by the first; data sources that Spark finds by itself, with all that they start, by the second.
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        named = os.environ.get(name)
        if named is None or is_this_python(shutil.which(named)):
            os.environ[name] = script or sys.executable


def is_this_python(path: str | None) -> bool:
    """Return whether a program is this Python, with the packages of this environment."""
    # A virtual environment's python is a link to one that lacks the environment's packages.
    return (
        path is not None
        and os.path.dirname(path) == os.path.dirname(sys.executable)
        and os.path.samefile(path, sys.executable)
    )


def start_forks() -> None:
    """Start the server that forks Spark's Python processes, which imports while the JVM starts. Linux alone has it."""
    global _forks  # noqa: PLW0603 one for each process, as the JVM
    script = _script()
    if sys.platform != "linux" or script is None or os.environ.get("PYSPARK_PYTHON") != script:
        return
    path = os.path.join(tempfile.mkdtemp(prefix="upstream-"), "forks")
    if len(path) > _LONGEST_SOCKET:
        return
    program = "import runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    command = [os.environ[_PYTHON], "-c", program, str(Path(script).with_name("worker_start.py")), "serve", path]
    # As Spark's Python processes have it.
    environment = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", **os.environ, "PYTHONUNBUFFERED": "1"}
    with contextlib.suppress(OSError):  # without it, each process imports by itself
        _forks = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        os.environ[_FORKS] = path


def environment_of_workers() -> dict[str, str]:
    """Return the settings by which workers on other machines find their Python; none unless their program is ours."""
    script, python = _script(), os.environ.get(_PYTHON)
    ours = python is not None and script is not None and os.environ.get("PYSPARK_PYTHON") == script
    return {f"spark.executorEnv.{_PYTHON}": python} if ours and python is not None else {}


def python_of(worker: str | None) -> str | None:
    """Return the Python that a worker's program runs: the program itself, unless the program is ours."""
    return os.environ.get(_PYTHON) if worker is not None and worker == _script() else worker


def _setting(spark: SparkSession, name: str) -> str:
    from pyspark.errors import PySparkException

    try:
        return spark.conf.get(name) or ""
    except PySparkException:  # not set, and Spark has no default
        return ""


def _has_class(spark: SparkSession, name: str) -> bool:
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        return True  # Spark Connect: the server's business, and not to be seen from here
    from py4j.protocol import Py4JJavaError

    try:
        jvm.org.apache.spark.util.Utils.classForName(name, False, False)
    except Py4JJavaError:
        return False
    return True


def _worker_python(spark: SparkSession) -> str | None:
    """Return the workers' Python if the master is local and they run another Python than this process, else None."""
    context = getattr(spark, "_sc", None)
    if context is None or not context.master.startswith("local"):
        return None
    return None if is_this_python(python_of(shutil.which(str(context.pythonExec)))) else context.pythonExec
