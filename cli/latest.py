"""``upstream latest``: keep the newest row per key of a feed in a table, and report the progress."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import signal
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from ..conf.column_names import quoted_text
from ..conf.errors import CheckpointError, OptionError
from ..conf.locations import absolute_location
from ..conf.progress import progress
from ..conf.secrets import is_secret
from ..conf.units import format_duration_us, now_us
from ..core.feedback.offsets import OffsetBook
from ..core.rows.system_column import SYSTEM
from ..datasource.options import reads_changes
from ..sink.figures.waits import waits_for
from ..storage.folder import TableFolder
from .failures import INTERRUPTED, TERMINATED
from .live import LiveLine, TimeEstimate, delay_text, resume_text
from .options import duration, spark_session
from .status import commit_line, print_letters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ..api.stream import UpdateStream


# A batch of the backlog is about a second's work: the line moves, and memory stays bounded.
_BATCH_ROWS = 2_000_000
_LOOK_S = 0.2
_ARGUMENTS = {"buckets", "deletewhen", "expectedkeys", "metricslocation", "path", "target"}
# Options of a table that needs every row of a key.
_EVERY_ROW = {"columngroups", "history", "nullmeans"}
_IN_THE_STATEMENT = ("checkpointLocation", "path", "key", "eventTime")
# Seconds between lines if standard error is not a terminal.
_LINE_S = 5.0


@dataclasses.dataclass(frozen=True)
class LatestJob:
    """The arguments of `upstream latest`."""

    source: str | None  # file, folder or glob; None for a connector that needs none
    key: tuple[str, ...]
    time: str | None
    table: str
    checkpoint: str
    dead_letters: str
    buckets: int | None
    once: bool  # end once the rows that are there now are read
    trigger: str | None  # the least time between batches
    target: str | None  # the bound for staleness
    metrics: str | None  # the folder of the table of metrics
    options: Mapping[str, str]  # of the source
    storage: Mapping[str, str]  # options of the object store
    conf: Mapping[str, str]  # Spark's settings
    master: str | None
    expected_keys: int | None = None  # a new table gets buckets for so many keys
    spark_ui: bool = False  # serve Spark's pages
    as_json: bool = False  # print a line of JSON for each commit, and no live line
    sequence: tuple[str, ...] = ()  # columns that order the rows of a key instead of the time
    delete_when: str | None = None  # the condition under which a row deletes its key
    of_table: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])  # options of the table


def follow(job: LatestJob, console: Console, log: Path, until: threading.Event | None = None) -> int:
    """Run the job until it ends, fails, or is stopped; return the exit code.

    Results are exactly once: stopped at any moment and restarted, the job resumes. If `until` is given, a run ends when
    it is set, and a signal interrupts the run.
    """
    with progress("reading the start of the feed", console):
        _check(job)
    if resumed := resume_text(TableFolder(job.checkpoint, job.storage)):
        console.print(resumed, markup=False)
    # Until Spark has started, a signal ends the process at once.
    with (
        spark_session(
            f"upstream latest {job.table}", console, log, job.master, job.conf, once=job.once, spark_ui=job.spark_ui
        ) as spark,
        _stop_on_signals() as stop,
    ):
        line, ended = _run(job, spark, console, stop, until or threading.Event())
    if not job.as_json:
        console.print(line.farewell())
    print_letters(console, [TableFolder(job.dead_letters, job.storage)])
    return 0 if ended else stop.code(interrupts=job.once or until is not None)


def _check(job: LatestJob) -> None:
    """Raise the errors of the options, the feed and the table before Java starts."""
    from pyspark.sql.types import BooleanType

    from ..datasource.latest_stream import event_time_of
    from ..datasource.schema import feed_key, feed_time
    from ..datasource.spark_reader import check_source
    from ..sink.spark_writer import check_sink
    from ..sink.spec.key_names import DELETED
    from ..sink.table.table import recorded_options

    if job.trigger is not None:
        duration(job.trigger, "--trigger")
    schema = check_source(_source_options(job))
    key = job.key if schema is None else job.key or feed_key(schema)
    if schema is None or not key:
        return
    given = {"path": job.table, "key": ", ".join(key), "checkpointLocation": job.checkpoint}
    given |= {f"storage.{name}": value for name, value in job.storage.items()}
    named = {
        "eventTime": event_time_of(job.time, job.options) or feed_time(schema),
        "sequenceBy": ", ".join(job.sequence) or None, "target": job.target,
        "metricsLocation": job.metrics, "buckets": job.buckets or recorded_options(given).get("buckets"),
    }  # fmt: skip
    given |= {name: str(value) for name, value in named.items() if value is not None}
    given |= job.of_table
    if job.delete_when is not None:
        names = [name for name in schema.names if name.lower() == job.delete_when.strip("` ").lower()]
        given["deleteWhen"] = names[0] if names else DELETED
        if not names:
            _check_names(job.delete_when, schema.names)
            schema = schema.add(DELETED, BooleanType())
    check_sink(given, schema)


def _check_names(condition: str, columns: Sequence[str]) -> None:
    """Refuse a condition over a column that is not there. What only Spark can read passes."""
    from ..expressions.bind import OptionText, paths_of
    from ..expressions.places import near

    text = OptionText(condition, "--delete-when")
    try:
        paths = paths_of(text)
    except OptionError:
        return
    known = {name.lower() for name in columns}
    for name, *_ in [] if "->" in condition else paths:  # a function of its own has names of its own
        if name.lower() not in known:
            own = [each for each in columns if each != SYSTEM]
            listed = "one of " + ", ".join(own)
            raise text.unknown(None, f"there is no column '{name}'", expected=listed, hint=near(name, own) or "")


def divided_options(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the options of the source, and those that only the table has and that no argument sets."""
    from ..conf.options import documented
    from ..datasource.options import SourceOptions
    from ..sink.spec.options import SinkOptions

    of_source, of_table = ({each.name.lower() for each in documented(group)} for group in (SourceOptions, SinkOptions))
    of_table -= of_source | _ARGUMENTS
    mine = {name: value for name, value in options.items() if name.lower() in of_table}
    return {name: value for name, value in options.items() if name not in mine}, mine


def statements_of(job: LatestJob) -> str:
    """Return the job as a file for `upstream run`; raise OptionError if it has what such a file has not."""
    from ..hosting.journal import check_name
    from ..language.statements import quoted_name

    given = {
        "--sequence-by": job.sequence, "--expected-keys": job.expected_keys, "--target": job.target,
        "--metrics": job.metrics, "--trigger": job.trigger,
    }  # fmt: skip
    without = ", ".join([*(name for name, value in given.items() if value), *job.of_table])
    if without:
        raise OptionError(f"a job's file has no {without}", hint="remove it")
    if job.time is None and not reads_changes(job.options):
        raise OptionError("a job's source has an event time", expected="--event-time COLUMN")
    if job.delete_when is not None and job.delete_when.strip().isidentifier():
        raise OptionError("a job's file has no column to leave out", expected="a condition, such as \"op = 'd'\"")
    folder, _, name = absolute_location(job.table).rstrip("/").rpartition("/")
    source = "feed" if check_name(name, "a query").lower() != "feed" else "rows"
    options = {name: value for name, value in _source_options(job).items() if name not in _IN_THE_STATEMENT}
    named = {"key": ", ".join(job.key), "event_time": job.time}
    options = {**{name: value for name, value in named.items() if value}, **options}
    lines = ",\n".join(f"  {each} = {_value_of(each, value)}" for each, value in options.items())
    place = "" if job.source is None else f" FROM {quoted_text(job.source)}"
    deleted = "" if job.delete_when is None else f"\nWHERE NOT COALESCE({job.delete_when}, FALSE)"
    return (
        f"-- upstream run job.sql --to {shlex.quote(folder)}{' --once' * job.once}\n"
        f"CREATE SOURCE {source}{place} WITH (\n{lines}\n);\n"
        f"CREATE MATERIALIZED VIEW {quoted_name(name)} WITH (buckets = {job.buckets or 16}) AS\n"
        f"SELECT * FROM LATEST({source}){deleted};"
    )


def _value_of(option: str, value: str) -> str:
    """Return an option's value in SQL. A secret becomes the name of a variable of the environment."""
    return f"env('{re.sub(r'[^A-Z0-9]', '_', option.upper())}')" if is_secret(option, value) else quoted_text(value)


def _run(
    job: LatestJob, spark: SparkSession, console: Console, stop: _Stop, until: threading.Event
) -> tuple[LiveLine, bool]:
    """Run the query; return its live line, and whether it ended without a signal."""
    from ..sink.figures.summary import read_summaries

    seen = _version(job)
    with progress("opening the feed and the table", console):
        query = _start(job, spark)
    line, remaining, shown_s, ended = LiveLine(time.monotonic()), TimeEstimate(), 0.0, False
    checkpoint = TableFolder(job.checkpoint, job.storage)
    book = OffsetBook(checkpoint)

    def look() -> str:
        nonlocal seen, shown_s, ended
        now = time.monotonic()
        for version, summary in read_summaries(job.table, seen, job.storage):
            seen = version
            line.add(summary, now)
            if job.as_json:
                print(commit_line(version, summary), flush=True)
        batch, batch_s, left, reached = _progress(query, book)
        feeds = set(reached.get("progress", ()))
        ended = until.is_set() or (bool(feeds) and feeds <= set(reached.get("ended", ())))
        # A commit is seen before Spark reports its batch: the backlog and the rows done must be of the same batch.
        if left is not None and line.last is not None and line.last.batch_id == batch:
            remaining.report(left, line.rows, now)
        line.waits_for = waits_for(reached, now_us())
        line.delay = delay_text(checkpoint, now_us()) if checkpoint.is_local else ""
        text = line.text(now, batch_s)
        if not job.as_json and not console.is_terminal and line.batches and now - shown_s >= _LINE_S:
            console.print(text)
            shown_s = now
        return text

    try:
        with _bar(console, job.once, shown=console.is_terminal and not job.as_json) as bar:
            task = bar.add_task("", total=None, left="")
            while query.isActive and not ended and not stop.event.wait(_LOOK_S):
                _show(bar, task, look(), remaining if job.once else None, time.monotonic())
            if stop.event.is_set():
                bar.update(task, description="stopping: " + look())
    finally:
        ended = ended or not query.isActive
        with suppress(Exception):  # it may be gone already
            query.stop()
    error = query.exception()
    if error is not None:
        raise error
    look()
    return line, ended


def _version(job: LatestJob) -> int:
    """Return the table's version before the run; -1 if there is no table."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        return DeltaTable(absolute_location(job.table), storage_options=dict(job.storage) or None).version()
    except TableNotFoundError:
        return -1


def _source_options(job: LatestJob) -> dict[str, str]:
    """Return the options of the source, by Spark's names."""
    from ..datasource.latest_stream import event_time_of, latest_options

    options = {
        "checkpointLocation": job.checkpoint,
        "deadLetters": job.dead_letters,
        "maxRowsPerTrigger": str(_BATCH_ROWS),
        **latest_options(job.key, event_time_of(job.time, job.options), job.sequence or None, job.options),
        **({} if job.source is None else {"path": job.source}),
    }
    if any(name.lower() in _EVERY_ROW for name in job.of_table):
        options["coalesce"] = "false"
    given = {name.lower() for name in job.options}
    if given & {"maxbytespertrigger", "maxfilespertrigger"}:
        given.add("maxrowspertrigger")
    return {
        **{name: value for name, value in options.items() if name.lower() not in given},
        **job.options,
        **{f"storage.{name}": value for name, value in job.storage.items()},
    }


def _stream(job: LatestJob, spark: SparkSession) -> UpdateStream:
    """Return the stream: a feed, without a step before the table."""
    from ..api.stream import UpdateStream
    from ..datasource.latest_stream import event_time_of, update_key
    from ..datasource.schema import feed_time

    rows = spark.readStream.format("upstream").options(**_source_options(job)).load()
    time = event_time_of(job.time, job.options) or feed_time(rows.schema)
    return UpdateStream(rows, key=update_key(rows, job.key), event_time=time)


def _start(job: LatestJob, spark: SparkSession) -> StreamingQuery:
    writer = _stream(job, spark).write(
        job.table,
        checkpoint=job.checkpoint,
        buckets=job.buckets,
        expected_keys=job.expected_keys,
        target=job.target,
        metrics_location=job.metrics,
        sequence_by=job.sequence or None,
        delete_when=job.delete_when,
        **job.of_table,
        **{f"storage.{name}": value for name, value in job.storage.items()},
    )
    if job.once:
        writer = writer.trigger(availableNow=True)
    elif job.trigger is not None:
        writer = writer.trigger(processingTime=f"{duration(job.trigger, '--trigger')} microseconds")
    return writer.start()


def _progress(query: StreamingQuery, book: OffsetBook) -> tuple[int, float | None, float | None, dict[str, Any]]:
    """Return the last batch, its seconds, the source's backlog (bytes or else rows), and its offset after the batch."""
    last = query.lastProgress
    if last is None or not last.sources:
        return -1, None, None, {}
    batch_s = last.durationMs.get("triggerExecution", 0) / 1e3 if last.numInputRows else None
    backlog = _json(last.sources[0].latestOffset).get("backlog") or {}
    left = backlog.get("bytes", backlog.get("rows"))
    try:
        reached = book.whole(_json(last.sources[0].endOffset))
    except CheckpointError:
        reached = {}  # the query has moved on meanwhile, and rewritten its list of feeds
    return last.batchId, batch_s, None if left is None else float(left), reached


def _json(text: str | None) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _bar(console: Console, once: bool, *, shown: bool) -> Progress:
    """Return the live line; with `--once` also a bar and the time left."""
    columns = [BarColumn(bar_width=24), TaskProgressColumn(), TextColumn("{task.fields[left]}")] if once else []
    return Progress(
        *columns,
        TextColumn("{task.description}"),
        console=console,
        transient=True,
        refresh_per_second=5,
        disable=not shown,
    )


def _show(bar: Progress, task: Any, text: str, remaining: TimeEstimate | None, now_s: float) -> None:
    fraction = remaining.fraction() if remaining else None
    seconds = remaining.seconds(now_s) if remaining else None
    left = "" if seconds is None else f"{format_duration_us(seconds * 1e6)} left ·"
    if fraction is None:
        bar.update(task, description=text, left=left)
    else:
        bar.update(task, description=text, total=1, completed=fraction, left=left)


class _Stop:
    """A request to stop, by a signal."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.signal: int | None = None

    def install(self) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, self._handle)

    def code(self, *, interrupts: bool) -> int:
        """Return the exit code of a run: 0 if it follows a feed, which only a signal ends.

        If a signal interrupts a run that has an end, the code is the shell's for that signal.
        """
        if not interrupts or self.signal is None:
            return 0
        return INTERRUPTED if self.signal == signal.SIGINT else TERMINATED

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.event.is_set():
            raise KeyboardInterrupt  # the second time: at once
        self.signal = number
        self.event.set()


@contextmanager
def _stop_on_signals() -> Generator[_Stop]:
    earlier = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    stop = _Stop()
    stop.install()
    try:
        yield stop
    finally:
        for each, handler in earlier.items():
            signal.signal(each, handler)
