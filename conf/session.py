"""A Spark session with working settings and an early start of its workers; checks of sessions made elsewhere."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import sys
import threading
import uuid
import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import EnvironmentMissingError, OptionError
from .jars import EXCLUDES, PACKAGE, delta_jars
from .java import java_problem
from .locations import is_client
from .process_identity import cores as cores_here
from .progress import progress
from .worker_python import environment_of_workers, is_this_python, python_of, use_installed_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
# Spark's default, and the only other provider that Spark has. Platforms have their own, which may do.
_WITHOUT_FAMILIES = "HDFSBackedStateStoreProvider"


def check_state_store(spark: SparkSession, step: str) -> None:
    """Raise EnvironmentMissingError if the state store is Spark's default, which cannot hold a stateful step's state.

    Spark refuses it only in the query's first batch. `step` is the first stateful step, for the message.
    """
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
    """Read a few synthetic rows in a background thread, which never raises, and return the thread.

    Spark starts its Python processes one by one before a first batch is done; this starts most of them early.
    """

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
_SPARK = "4.2."
# Checkpoints on a local disk: the default forks a process to rename a file and to set its rights, forty times a batch.
# Both rename at once, but on HDFS only the default overwrites what a repeated batch has left.
_FILES = "spark.sql.streaming.checkpointFileManagerClass"
_LOCAL_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
# In Spark's own heap of 1 GB. Whoever asks for another one is left to what Java chooses.
_HEAP = "spark.driver.memory"
_COLLECTOR = "-XX:+UseSerialGC"
_LOG = Path(__file__).with_name("log4j2.properties")  # inside a zip there is no file
_SPARKS_LOG = "org/apache/spark/log4j2-defaults.properties"
# More shuffle partitions than this cost more in tasks and state stores than they bring on one machine.
_MOST_PARTITIONS = 32

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
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def session(
    app_name: str = "upstream", *, master: str | None = None, jvm_log: str | None = None, **conf: Any
) -> SparkSession:
    """Return a Spark session with Delta, UTC, RocksDB state and a quiet console; the active one if there is one.

    Parameters
    ----------
    app_name : str
        Shown in Spark's UI and logs.
    master : str, optional
        Such as ``local[4]``; all cores of this machine unless given here, in `conf` or to spark-submit.
    jvm_log : str, optional
        A file that takes what the JVM and the workers print, appended; the console gets nothing of it. They then are in
        a process group of their own, so that Ctrl-C reaches this process alone, which can stop its queries in order.
    **conf
        Spark settings, which win over the preset: ``session(**{"spark.ui.enabled": True})``. So do those given to
        spark-submit and those in Spark's own ``spark-defaults.conf``. With ``spark.remote``, or the environment
        variable ``SPARK_REMOTE``, the session is a client of Spark Connect: ``local[*]`` starts a server here, and
        ``sc://host:port`` names another one.

    Returns
    -------
    pyspark.sql.SparkSession

    Raises
    ------
    EnvironmentMissingError
        No Java or a wrong one; Delta's jars can neither be found nor fetched; a session is active that lacks what this
        needs; the packages of Spark Connect are not installed.
    OptionError
        A name in `conf` is not a Spark setting.

    Examples
    --------
    >>> spark = us.session("speeds", **{"spark.sql.shuffle.partitions": 8})
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    own = _as_settings(conf)
    if master is not None:
        own["spark.master"] = master
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
    if not started_by_submit and SparkContext._gateway is None:
        problem = java_problem()
        if problem:
            raise EnvironmentMissingError(problem)
        use_installed_pyspark()
    given = {**(_from_submit() if started_by_submit else _from_defaults_file()), **own}
    if started_by_submit and given.get("spark.master", "local").startswith("local"):
        use_installed_pyspark()
        _quieten(SparkContext._jvm)

    settings = {**preset(), **environment_of_workers(), **_for_machine(given.get("spark.master", "local[*]"))}
    settings["spark.jars"] = _joined(given.get("spark.jars"), *_jars(given))
    settings["spark.sql.extensions"] = _joined(given.get("spark.sql.extensions"), _EXTENSION)
    settings["spark.driver.extraJavaOptions"] = _java_options(given)
    always = {"spark.jars", "spark.sql.extensions", "spark.driver.extraJavaOptions"}
    settings |= {name: value for name, value in given.items() if name not in always}
    settings = {name: value for name, value in settings.items() if value}
    if jvm_log is not None and not started_by_submit and SparkContext._gateway is None:
        with progress("starting Spark"):
            _launch(settings, jvm_log)
    if remote:
        if SparkContext._gateway is None:
            # PySpark itself starts the JVM of a server without these settings, and so without Delta. The JVM takes the
            # token from the environment.
            os.environ.setdefault(_TOKEN, settings.get("spark.connect.authenticate.token", "") or str(uuid.uuid4()))
            _launch(settings)
        return _server(app_name, remote, settings)
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
    """List what a session lacks, one sentence each, most important first; empty for one made by :func:`session`.

    It raises no error, because users may set another time zone or state store on purpose.
    """
    lacks: list[str] = []
    if not spark.version.startswith(_SPARK):
        lacks.append(f"Spark {_SPARK}x: this is {spark.version}, where the data source and the sink are not tested")
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
            else "set those of streaming and of the time zone with spark.conf.set, and the others where the server of "
            "Spark Connect starts; or use the session as it is, without upstream.session()",
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
            hint='write session(**{"spark.ui.enabled": True})',
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
            hint='install "pyspark-upstream[connect]"',
        )


def _from_submit() -> dict[str, str]:
    """Return the settings given to spark-submit, which has already started the JVM."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def _quieten(jvm: Any) -> None:
    """Give a JVM of spark-submit the log configuration of a session's own, unless the user has given it one."""
    if not _LOG.is_file():
        return
    log4j = jvm.org.apache.logging.log4j
    used = str(log4j.LogManager.getContext(False).getConfiguration().getConfigurationSource().getLocation())
    if used.endswith(_SPARKS_LOG):
        log4j.core.config.Configurator.reconfigure(jvm.java.net.URI(_LOG.as_uri()))


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


def _jars(given: Mapping[str, str]) -> list[str]:
    named = given.get("spark.jars", "") + "," + given.get("spark.jars.packages", "")
    return [] if "delta-spark_" in named else delta_jars(given)


def _launch(settings: Mapping[str, str], jvm_log: str | None = None) -> None:
    """Start the JVM as PySpark does; with a log, its output goes there, and it is in a session of its own."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    if jvm_log is None:
        SparkContext._ensure_initialized(gateway=launch_gateway(conf))
        return
    with open(jvm_log, "ab") as log:
        gateway = launch_gateway(conf, {"stdout": log, "stderr": log, "start_new_session": True})
    SparkContext._ensure_initialized(gateway=gateway)


def _joined(given: str | None, *more: str) -> str:
    parts = [part.strip() for part in (given or "").split(",") if part.strip()]
    return ",".join(parts + [part for part in more if part not in parts])


def _java_options(given: Mapping[str, str]) -> str:
    options = given.get("spark.driver.extraJavaOptions", "")
    # The JVM holds frames: large values, to which G1 gives regions of their own in a heap of this size:
    # docs/decisions/0004.
    if _HEAP not in given and not re.search(r"-XX:\+Use\w+GC", options):
        options = f"{_COLLECTOR} {options}".strip()
    if "log4j" in options or not _LOG.is_file():
        return options
    return f'"-Dlog4j2.configurationFile={_LOG.as_uri()}" {options}'.strip()


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
    import shutil

    return None if is_this_python(python_of(shutil.which(str(context.pythonExec)))) else context.pythonExec
