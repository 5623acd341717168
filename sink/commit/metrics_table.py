"""Figures for other tools: a table with a row for each commit, gauges of Spark's metrics system, and Spark's times."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import datetime as dt
import functools
import logging
import os
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...conf.errors import TableError, UpstreamError
from ...conf.locations import absolute_location, is_client
from ...conf.process_identity import Process
from ...conf.units import now_us
from ...core.feedback.checkpoint_layout import SparkApplication, SparkTimes
from ...core.feedback.reports import LeftOutFigures
from ...core.rows.system_column import TIMESTAMP
from ...delta_format.append_table import AppendTable
from ...storage.folder import TableFolder, folder_at
from ..figures.freshness import JournaledBatch, freshness
from ..figures.summary import CommitSummary, complete_up_to_us, read_summaries, summaries_after
from ..maintenance.runner import commit_hooks, maintain
from ..spec.maintenance_rules import is_ours, retention_properties
from ..spec.options import SinkTarget
from ..table.file_statistics import file_stats
from ..table.files import DataFiles
from ..table.table import load_table
from .last_commit import writer_id
from .lease import running_queries

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession


_LOG = logging.getLogger("upstream.metrics")

_APP_PREFIX = "upstream-metrics-"
# Each commit adds a file of one row; so often they are made one.
_COMPACT_EVERY = 100

_left_out: dict[tuple[str, str], LeftOutFigures] = {}
"""A process's memory, by the main table and the metrics table."""

_Figure = str | Callable[[CommitSummary], Any]
"""By its path through the parts of a summary, any of which may be absent; or what reads it."""


def _batch_s(summary: CommitSummary) -> float | None:
    return None if summary.queue is None else max(summary.committed_at_us - summary.queue.clock_us, 0) / 1e6


def _each(name: str, path: str, figures: str, kind: pa.DataType) -> list[tuple[str, pa.DataType, _Figure]]:
    return [(name.format(each), kind, path.format(each)) for each in figures.split()]


_SECONDS, _NUMBER = pa.float64(), pa.int64()
_COUNTS = "rows updates applied superseded older deleted absent conflicts late keys pending"
_FIGURES = "mean p50 p99 max"
_COLUMNS: list[tuple[str, pa.DataType, _Figure]] = [
    ("query_id", pa.string(), "query_id"),
    ("batch_id", _NUMBER, "batch_id"),
    ("committed_at", TIMESTAMP, "committed_at_us"),
    *_each("{}", "{}", _COUNTS, _NUMBER),
    ("oldest_s", _SECONDS, "oldest"),
    *_each("staleness_{}_s", "staleness.{}", _FIGURES, _SECONDS),
    ("area_least", pa.float64(), lambda each: None if each.area is None else each.area[0]),
    ("area_most", pa.float64(), lambda each: None if each.area is None else each.area[1]),
    *_each("queue_{}", "queue.{}", "arrived applied superseded older conflicts shed outdated", _NUMBER),
    *_each("queue_staleness_{}_s", "queue.staleness.{}", _FIGURES, _SECONDS),
    ("batch_s", _SECONDS, _batch_s),
    ("low_watermark", pa.string(), lambda each: None if each.low_watermark is None else str(each.low_watermark)),
    ("complete_up_to", TIMESTAMP, lambda each: complete_up_to_us(each.low_watermark)),
    ("target", pa.string(), "target"),
    ("target_met", pa.bool_(), "target_met"),
    ("needed_rows_per_s", pa.float64(), "needed_rows_per_s"),
    ("needed_budget", _NUMBER, "needed_budget"),
    ("maintenance_s", _SECONDS, "maintained.seconds"),
    *_each("maintenance_{}", "maintained.{}", "entries files orphans bytes compacted", _NUMBER),
    *_each("total_{}", "sources.{}", "received late late_idle suspects", _NUMBER),
]

METRICS_SCHEMA = pa.schema([("table", pa.string()), *((name, kind) for name, kind, _ in _COLUMNS)])
"""The table's columns. Times ending in ``_s`` are seconds; ``batch_s`` is from the plan of a queue's batch to its
commit; ``complete_up_to`` is the low-watermark where it is a time;
those beginning with ``maintenance_`` say what was removed, or put together, after this process's commit before; those
with ``total_`` are what the sources have counted from the beginning of the query's checkpoint."""


def metrics_rows(summaries: Sequence[CommitSummary], location: str) -> pa.Table:
    """Return a row for each summary; `location` is the main table's."""
    columns = [pa.array([_read(each, figure) for each in summaries], kind) for _, kind, figure in _COLUMNS]
    return pa.table([pa.array([location] * len(summaries), pa.string()), *columns], schema=METRICS_SCHEMA)


def write_metrics(target: SinkTarget) -> int:
    """Append the rows of a query's commits that the metrics table lacks; return their number.

    The rows are a projection of the summaries in the main table's log. Each append records its last batch, so nothing
    is lost or doubled if a process dies. Without a metrics location, nothing happens.
    """
    if target.metrics is None:
        return 0
    place = _place(target)
    side = _side(place)
    table = load_table(target)
    if table is None:
        return 0
    query_id = writer_id(target)
    application = _APP_PREFIX + query_id
    recorded = side.ready().transaction_version(application)
    missing = summaries_after(table, query_id, -1 if recorded is None else recorded)
    if not missing or not _append(
        place, side, metrics_rows(missing, target.location), application, missing[-1].batch_id
    ):
        return 0
    metrics = load_table(place)
    if metrics is not None:
        if metrics.version() % _COMPACT_EVERY == 0:
            _compact(metrics)
        # Its log grows by an entry a commit, as the main table's does.
        maintain(place, metrics, compact=lambda _: 0)
    return len(missing)


def offer_metrics(target: SinkTarget) -> None:
    """Append as :func:`write_metrics`, but never fail: metrics must not end a query.

    A process warns of the first commit that is left out. The append after a later commit catches up.
    """
    if target.metrics is None:
        return
    place = _place(target)
    left_out = _left_out.setdefault(
        (target.location, place.location), LeftOutFigures("the table of metrics", place.folder, _LOG)
    )
    left_out.attempt(lambda: write_metrics(target))


def check_metrics(target: SinkTarget) -> None:
    """Refuse a metrics location that holds a table of other columns."""
    if target.metrics is not None:
        _side(_place(target)).load()


def _place(target: SinkTarget) -> SinkTarget:
    assert target.metrics is not None
    return dataclasses.replace(target, location=target.metrics)


def _side(place: SinkTarget) -> AppendTable:
    options = place.options
    return AppendTable(
        place.folder,
        METRICS_SCHEMA,
        functools.partial(_unusable, place),
        retention_properties(options.maintenance_rules({})),
        lambda table: commit_hooks(on=options.maintenance == "off" or not is_ours(table.metadata().configuration)),
        functools.partial(load_table, place),
    )


def _unusable(place: SinkTarget, why: object) -> TableError:
    return TableError(
        f"the table of metrics at {place.location} cannot be used: {place.masked(why)}",
        expected="a separate Delta table, or none yet, in a writable folder",
        hint="correct this, or remove metricsLocation. No figure is lost: the main table's log has them",
    )


def _append(place: SinkTarget, side: AppendTable, rows: pa.Table, application: str, batch_id: int) -> bool:
    """Append rows, and return True; return False if another writer has appended them."""
    files, appended = DataFiles(place, METRICS_SCHEMA), False
    try:
        path, size = files.write_rows(rows)
    except TableError as error:
        raise _unusable(place, error) from error
    try:
        written_ms = int(rows.column("committed_at")[-1].value // 1000)
        appended = side.append({path: (size, file_stats(rows))}, application, batch_id, written_ms)
    finally:
        if not appended:
            files.remove([path])
    return appended


def _compact(metrics: DeltaTable) -> None:
    from deltalake.exceptions import DeltaError

    with contextlib.suppress(DeltaError):  # another program was quicker; the next time comes
        metrics.optimize.compact()


def _read(summary: CommitSummary, figure: _Figure) -> Any:
    if not isinstance(figure, str):
        return figure(summary)
    value: Any = summary
    for name in figure.split("."):
        value = None if value is None else getattr(value, name)
    return value


_SWITCH = "spark.sql.streaming.metricsEnabled"
_LOOK_S = 5.0
_SUMS = ("rows", "updates", "applied", "superseded", "deleted", "conflicts")


Journals = Mapping[str, JournaledBatch | None]
"""The last batches of the running queries, by their ids."""


@dataclasses.dataclass
class _ShownTable:
    name: str
    folder: TableFolder | None  # None if its job gives the summaries
    version: int = -1
    last: CommitSummary | None = None
    sums: Counter[str] = dataclasses.field(default_factory=Counter[str])
    gauges: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    values: dict[str, float] = dataclasses.field(default_factory=dict[str, float])

    def take(self, summary: CommitSummary) -> None:
        self.last = summary
        self.sums.update({name: getattr(summary, name) for name in _SUMS})

    def figures(self, journals: Journals, now: int) -> dict[str, float | None]:
        """Return the present figures by the names that Prometheus has of the workbench; None for an unknown one."""
        last = self.last
        if last is None:
            return {}
        # A hosted query's id begins with its host's.
        host = last.query_id.partition("/")[0]
        fresh = freshness([last], journals.get(host), now, is_written=host in journals)
        assert fresh is not None, "it has a commit"
        complete_us = complete_up_to_us(last.low_watermark)
        found: dict[str, float | None] = {f"{name}_total": self.sums[name] for name in _SUMS}
        if last.staleness is not None:
            found |= {f"staleness_{each}_seconds": getattr(last.staleness, each) for each in ("p50", "p99", "max")}
        if fresh.now is not None:
            found |= {f"staleness_now_{each}_seconds": getattr(fresh.now, each) for each in ("p50", "p99", "max")}
        return found | {
            "uncommitted_batch_seconds": (fresh.batch_us or 0) / 1e6 if journals.get(host) is not None else None,
            "late_total": None if last.sources is None else last.sources.late,
            "keys": last.keys,
            "pending_keys": last.pending,
            "oldest_pending_seconds": last.oldest,
            "target_met": fresh.target_met,
            "low_watermark_lag_seconds": None if complete_us is None else max(now - complete_us, 0) / 1e6,
        }


class SparkGauges:
    """The figures of tables as gauges of Spark's metrics system, which a thread sets every five seconds.

    They cost a batch nothing: the thread reads the tables' logs, as the workbench does. A job of continuous queries
    gives it the summaries. Spark itself makes gauges of accumulators. A gauge keeps its figure while a commit has none.
    `running` returns the checkpoints of all running queries by their ids.
    """

    def __init__(self, session: SparkSession, running: Callable[[], Mapping[str, str]] | None = None) -> None:
        self._context: Any = session.sparkContext
        self._running = running if running is not None else lambda: running_queries(session)
        self._tables: dict[str, _ShownTable] = {}
        self._given: deque[tuple[str, CommitSummary]] = deque()
        self._lock = threading.Lock()

    def add(self, folder: TableFolder) -> None:
        """Show a table from its next commit on."""
        with self._lock:
            if folder.location not in self._tables:
                entries = (each.removesuffix(".json") for each in folder.names("_delta_log"))
                newest = max((int(each) for each in entries if each.isdigit()), default=-1)
                self._show(folder.location, folder, newest)

    def give(self, summaries: Mapping[str, CommitSummary]) -> None:
        """Show the commits of a batch, by their tables' locations, without waiting for the thread."""
        self._given.extend(summaries.items())

    def start(self) -> None:
        """Start the thread that sets the gauges until Spark stops."""
        threading.Thread(target=self._keep, name="upstream-gauges", daemon=True).start()

    def look(self) -> None:
        """Read new commits, and set the gauges that change."""
        with self._lock:
            while self._given:
                location, summary = self._given.popleft()
                (self._tables.get(location) or self._show(location, None)).take(summary)
            checkpoints = self._running().items()
            journals = {query: JournaledBatch.read(folder_at(absolute_location(each))) for query, each in checkpoints}
            now = now_us()
            for table in self._tables.values():
                try:
                    self._read(table)
                except (OSError, UpstreamError) as error:
                    _LOG.warning("The gauges of %s are not set: %s", table.name, error)
                    continue
                for name, value in table.figures(journals, now).items():
                    if value is not None and table.values.get(name) != value:
                        self._set(table, name, float(value))

    def _show(self, location: str, folder: TableFolder | None, version: int = -1) -> _ShownTable:
        own = re.sub(r"\W", "_", location.rstrip("/").rpartition("/")[2])
        taken = {each.name for each in self._tables.values()}
        name = next(each for each in (own, *(f"{own}_{n}" for n in range(2, len(taken) + 3))) if each not in taken)
        table = self._tables[location] = _ShownTable(name, folder, version)
        return table

    def _read(self, table: _ShownTable) -> None:
        if table.folder is not None:
            for version, summary in read_summaries(table.folder.location, table.version, table.folder.storage):
                table.version = version
                table.take(summary)

    def _set(self, table: _ShownTable, name: str, value: float) -> None:
        gauge = table.gauges.get(name)
        if gauge is None:
            jvm = self._context._jvm
            gauge = table.gauges[name] = jvm.org.apache.spark.util.DoubleAccumulator()
            empty = getattr(getattr(jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
            source = getattr(getattr(jvm.org.apache.spark.metrics.source, "DoubleAccumulatorSource$"), "MODULE$")
            source.register(self._context._jsc.sc(), empty.updated(f"upstream.{table.name}.{name}", gauge))
        gauge.setValue(value)
        table.values[name] = value

    def _keep(self) -> None:
        while True:
            time.sleep(_LOOK_S)
            try:
                if self._context._jsc.sc().isStopped():
                    return
                self.look()
            except Exception:  # noqa: BLE001 Spark has been stopped, in whichever way that shows
                return


_gauges: dict[str, SparkGauges] = {}


def gauges_of(session: SparkSession) -> SparkGauges | None:
    """Return the gauges of an application; None unless the session reports its streaming queries to Spark's metrics."""
    if session.conf.get(_SWITCH) != "true" or is_client(session):
        return None
    application = session.sparkContext.applicationId
    if application not in _gauges:
        _gauges[application] = SparkGauges(session)
        _gauges[application].start()
    return _gauges[application]


_DURATION = re.compile(r"(\w+)=(\d+)")


class SparkTimesListener:
    """Writes Spark's times of each batch below the query's checkpoint, and the application that runs the query.

    Spark calls it after a batch, from a thread of its own. A query without files of this package is left alone. An
    error ends no query.
    """

    class Java:
        """Name the Java interface for Py4J."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)

    def __init__(self, context: Any, streams: Any) -> None:
        self._streams = streams
        java = Process.of(int(context._jvm.java.lang.ProcessHandle.current().pid()))
        processes = (java, Process.of(os.getpid()))
        self._application = SparkApplication(str(context.applicationId), context.uiWebUrl, processes)
        self._runs: dict[str, _RecordedRun] = {}

    def onQueryStarted(self, event: Any) -> None:
        with contextlib.suppress(Exception):  # Spark has been stopped
            self._run(event).is_ours(self._application)

    def onQueryProgress(self, event: Any) -> None:
        with contextlib.suppress(Exception):  # Spark has been stopped
            progress = event.progress()
            run = self._run(progress)
            if run.is_ours(self._application, done=True):
                began = dt.datetime.fromisoformat(str(progress.timestamp()).replace("Z", "+00:00"))
                found = _DURATION.findall(str(progress.durationMs().toString()))
                steps_s = {name: int(length) / 1e3 for name, length in found}
                run.write(SparkTimes(int(progress.batchId()), round(began.timestamp() * 1e6), steps_s))

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        with contextlib.suppress(Exception):  # Spark has been stopped
            self._runs.pop(event.runId().toString(), None)

    def _run(self, event: Any) -> _RecordedRun:
        name = event.runId().toString()
        if name not in self._runs:
            execution = self._streams.get(event.id()).streamingQuery()
            self._runs[name] = _RecordedRun(absolute_location(str(execution.resolvedCheckpointRoot())))
        return self._runs[name]


class _RecordedRun:
    """A run of a query whose times are written."""

    def __init__(self, checkpoint: str) -> None:
        self._checkpoint = folder_at(checkpoint)
        self._left_out = LeftOutFigures("the record of Spark's times", self._checkpoint, _LOG)
        self._ours: bool | None = None

    def is_ours(self, application: SparkApplication, *, done: bool = False) -> bool:
        """Return whether the checkpoint has files of this package; if so, write the application, once.

        A query that has none with a batch `done` gets none.
        """

        def look() -> None:
            if any(each.name.startswith("upstream-") for each in self._checkpoint.listing()):
                application.write(self._checkpoint)
                self._ours = True
            elif done:
                self._ours = False

        if self._ours is None:
            self._left_out.attempt(look)
        return self._ours is True

    def write(self, times: SparkTimes) -> None:
        self._left_out.attempt(lambda: times.write(self._checkpoint))


_listeners: dict[str, SparkTimesListener] = {}


def record_times(java_session: Any) -> None:
    """Record Spark's times of the queries that a session of the JVM starts."""
    from pyspark import SparkContext
    from pyspark.java_gateway import ensure_callback_server_started

    context: Any = SparkContext._active_spark_context
    session = str(java_session.sessionUUID())
    if session in _listeners:
        return
    ensure_callback_server_started(context._gateway)
    streams = java_session.streams()
    listener = _listeners[session] = SparkTimesListener(context, streams)
    known = context._jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(listener)
    streams.addListener(known)

    def remove() -> None:
        with contextlib.suppress(Exception):  # Spark has been stopped
            streams.removeListener(known)

    atexit.register(remove)  # else Spark reports that it cannot call a process that has ended


def offer_figures(session: SparkSession, folder: TableFolder) -> None:
    """Show the figures of a table that a query is about to write to Spark, and record Spark's; on a client, nothing."""
    if is_client(session):
        return
    if (gauges := gauges_of(session)) is not None:
        gauges.add(folder)
    record_times(session._jsparkSession)
