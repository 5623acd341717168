"""``upstream sql``: a query from the shell, or statements at a prompt; streams and sources in one word."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from ..conf.errors import OptionError, UpstreamError
from ..conf.locations import absolute_location, is_remote
from .failures import MISUSED, CommandFailure, with_log
from .options import Log, Master, SparkConf, StorageOptions, name_values, storage_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ..api.queries import Queries
    from ..api.stream import UpdateStream
    from .sql_shell import Shell


_KAFKA = "kafka://"
_LATEST = "latest:"


def source_options(source: str | None) -> tuple[str | None, dict[str, str]]:
    """Return the path, if `source` is one, and the options that an address implies.

    Addresses are ``kafka://host:port,host:port/topic,topic``, and ``latest:`` with the path of a table that another
    query writes.
    """
    if source is not None and source.startswith(_LATEST):
        return source[len(_LATEST) :], {"connector": "latest"}
    if source is None or not source.startswith(_KAFKA):
        return source, {}
    servers, _, topics = source[len(_KAFKA) :].partition("/")
    if not servers or not topics.strip("/"):
        raise OptionError(
            f"--from {source!r}",
            expected="kafka://host:port/topic",
            hint="name a broker and a topic; several of either are separated by commas",
        )
    return None, {"connector": "kafka", "kafka.bootstrap.servers": servers, "subscribe": topics.strip("/")}


_FORM = "NAME=PATH;key=COLUMN;time=COLUMN, such as buses=feed/;key=vehicle_id;time=timestamp"

# Arguments of `read` that are no options of the source.
_NOT_OPTIONS = ("path", "event_time", "watermark", "watermark_delay", "coalesce")


@dataclass(frozen=True)
class StreamChoice:
    """A stream of the command line."""

    name: str  # its name in queries
    path: str | None  # a file, a folder or a pattern; None for a connector that needs none
    key: tuple[str, ...]
    time: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)  # of the source

    @classmethod
    def parse(cls, text: str) -> StreamChoice:
        """Parse a stream: its name, its source, then ``key``, ``time`` and options of the source.

        The source is a path, or an address as ``upstream latest --from`` takes it. Commas separate several key columns.
        """
        first, *others = (each.strip() for each in text.split(";"))
        name, equals, source = first.partition("=")
        if not equals or not name.strip() or not source.strip():
            raise OptionError(f"--stream {text!r}", expected=_FORM)
        given: dict[str, str] = {}
        for each in filter(None, others):
            option, equals, value = (part.strip() for part in each.partition("="))
            if not equals or not option or not value:
                raise OptionError(f"--stream {text!r} has {each!r} after a semicolon", expected="OPTION=VALUE")
            if option.lower() in _NOT_OPTIONS:
                raise OptionError(
                    f"--stream {text!r} has {option}",
                    expected="key, time, and options of the source",
                    hint="progress=… and progressDelay=… choose the watermark; `upstream options` lists all",
                )
            if option.lower() in {other.lower() for other in given}:
                raise OptionError(f"--stream {text!r} has {option} twice", expected="each option once")
            given[option] = value
        key = tuple(each.strip() for each in given.pop("key", "").split(",") if each.strip())
        if not key:
            raise OptionError(f"--stream {text!r} has no key", expected=_FORM)
        path, implied = source_options(source.strip())
        return cls(name.strip(), path, key, given.pop("time", None), {**implied, **given})

    def read(self, spark: SparkSession) -> UpdateStream:
        from ..api.stream import read

        options: dict[str, Any] = dict(self.options)
        return read(spark, self.path, key=self.key, event_time=self.time, **options)


commands = typer.Typer()


@dataclass(frozen=True)
class SqlJob:
    """The arguments of ``upstream sql``."""

    streams: tuple[StreamChoice, ...]
    relations: dict[str, str]  # Delta tables by the names that queries use
    query: str | None  # without one, statements come from the terminal or from standard input
    name: str  # of the query and its table
    to: str  # the folder of the tables
    checkpoint: str
    once: bool  # end once the rows that are there now are read
    storage: dict[str, str]  # options of the object store with the tables and relations
    conf: dict[str, str]  # Spark's settings
    master: str | None


@commands.command()
def sql(
    query: Annotated[
        str | None,
        typer.Argument(
            help="The query. Without one, type statements at a prompt, or pipe them in; \\? lists them.",
            show_default=False,
        ),
    ] = None,
    stream: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATH;key=COLUMN;time=COLUMN",
            help="A stream that queries name, with its update key and event time. After them may come any option of "
            "the source, such as ;progressDelay=5 s. PATH is as for [bold]upstream latest --from[/bold]. Repeatable.",
        ),
    ] = None,
    relation: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=TABLE",
            help="A Delta table that queries name, such as routes=lake/routes: as it is when it is first named so. "
            "Repeatable.",
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FOLDER",
            help="Where the tables go, one folder for each query.  [dim]\\[default: a temporary folder][/dim]",
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="The name of the query, and of its table.")] = "result",
    once: Annotated[bool, typer.Option("--once", help="Read what is there now, print the result, and exit.")] = False,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="Where the job keeps its progress.  [dim]\\[default: FOLDER_checkpoint][/dim]"
        ),
    ] = None,
    option: StorageOptions = None,
    master: Master = None,
    conf: SparkConf = None,
    log: Log = None,
) -> None:
    """Run a continuous query, or several at a prompt, and show their results as they change.

    Each registered query keeps a table, exactly once. With --to, a later run resumes.

    [bold]upstream sql --stream 'buses=feed/;key=vehicle_id;time=timestamp' "SELECT route_id, COUNT(*) AS n
    FROM LATEST(buses) GROUP BY route_id" --to ./lake[/bold]
    """
    if checkpoint is None and to is not None and is_remote(to):
        raise CommandFailure("The tables are in an object store: name a checkpoint with --checkpoint.", MISUSED)
    passing = tempfile.mkdtemp(prefix="upstream-sql-") if to is None else None
    base = absolute_location(to or f"{passing}/tables").rstrip("/")
    try:
        job = SqlJob(
            streams=tuple(StreamChoice.parse(each) for each in stream or []),
            relations=name_values(relation, "--relation"),
            query=query,
            name=name,
            to=base,
            checkpoint=absolute_location(checkpoint or base + "_checkpoint"),
            once=once,
            storage=storage_options(option),
            conf=name_values(conf, "--conf"),
            master=master,
        )
        raise typer.Exit(with_log(log, lambda path: run_sql(job, path)))
    finally:
        if passing is not None:
            shutil.rmtree(passing, ignore_errors=True)


def run_sql(job: SqlJob, log: Path) -> int:
    """Run the job until it ends, fails, or is stopped; return the exit code."""
    from ..api.queries import queries as open_queries
    from ..conf.session import session
    from .sql_shell import Shell

    messages = Console(stderr=True, highlight=False)
    with messages.status("starting Spark"):
        spark = session(
            "upstream sql",
            master=job.master,
            jvm_log=str(log),
            **{"spark.sql.streaming.pollingDelay": "50ms", **job.conf},
        )
    signal.signal(signal.SIGINT, signal.default_int_handler)  # PySpark's own would cancel the batch that runs
    try:
        options: dict[str, Any] = {f"storage.{each}": value for each, value in job.storage.items()}
        queries = open_queries(spark, checkpoint=job.checkpoint, to=job.to, **options)
        for each in job.streams:
            queries.stream(each.name, each.read(spark))
        for name, table in job.relations.items():
            queries.relation(name, table)
        running = _SparkJob(queries, once=job.once)
        shell = Shell(queries, Console(highlight=False), running)
        try:
            _work(job, shell, messages)
        finally:
            running.stop()
            for location in shell.passing:
                if not is_remote(location):
                    shutil.rmtree(location, ignore_errors=True)
    finally:
        with suppress(Exception):
            spark.stop()
    return 0


def _work(job: SqlJob, shell: Shell, messages: Console) -> None:
    from .sql_shell import converse, statements_of, terminal
    from .sql_statements import parse

    def complain(error: UpstreamError) -> None:
        messages.print(str(error), style="red", markup=False)

    if job.query is not None:
        shell.look_at(job.name, job.query)
    elif sys.stdin.isatty():
        messages.print("Statements end with a semicolon; \\? lists them, \\q quits.", markup=False)
        converse(shell, terminal(shell.names), complain)
    else:
        for text in statements_of(sys.stdin.read()):
            if not shell.run(parse(text)):
                break


class _SparkJob:
    """The streaming query that hosts the queries, started on demand. With `once` it stops at the rows there by then."""

    def __init__(self, queries: Queries, *, once: bool) -> None:
        self._queries = queries
        self._once = once
        self._query: StreamingQuery | None = None

    def start(self) -> None:
        if self._once and self._query is not None:
            self._query.awaitTermination()  # it may have begun before the newest query was registered
            self._query = None
        if self._query is None:
            trigger: dict[str, Any] = {"availableNow": True} if self._once else {}
            self._query = self._queries.start(**trigger)

    def has_ended(self) -> bool:
        if self._query is None:
            return False
        error = self._query.exception()
        if error is not None:
            raise error
        return not self._query.isActive

    def stop(self) -> None:
        """Stop it, if it runs."""
        if self._query is not None:
            with suppress(Exception):
                self._query.stop()
