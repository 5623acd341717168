"""``upstream sql``: statements from the shell, or at a prompt."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from ..conf.errors import UpstreamError
from ..conf.locations import absolute_location, is_remote
from ..storage.folder import folder_at
from .failures import with_log
from .live import resume_text
from .options import Log, Master, SparkConf, SparkUi, StorageOptions, name_values, spark_session, storage_options
from .run import check_texts, checkpoint_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from ..api.queries import Queries
    from ..language.statements import Statement
    from .sql_shell import Shell


commands = typer.Typer()


@dataclass(frozen=True)
class SqlJob:
    """The arguments of ``upstream sql``."""

    statements: list[Statement] | None  # None: they come from the terminal
    name: str  # of the query that the statements end with, and of its table
    to: str  # the folder of the tables
    checkpoint: str
    once: bool  # end once the rows that are there now are read
    storage: dict[str, str]  # options of the object store with the tables and relations
    conf: dict[str, str]  # Spark's settings
    master: str | None
    spark_ui: bool  # serve Spark's pages

    @property
    def needs_spark(self) -> bool:
        """Whether a statement, or a prompt, may start the job."""
        from ..language.statements import CreateSource, Select

        return (
            self.once
            or self.statements is None
            or any(isinstance(each, Select | CreateSource) for each in self.statements)
        )

    @property
    def options(self) -> dict[str, Any]:
        """The options of :func:`upstream.queries`."""
        return {f"storage.{each}": value for each, value in self.storage.items()}


@commands.command()
def sql(
    statements: Annotated[
        str | None,
        typer.Argument(
            metavar="STATEMENTS",
            help="Run these statements, separated by semicolons: CREATE SOURCE and others, and last the query to show. "
            "Without them, type statements at a prompt, or pipe them in; \\? lists them.",
            show_default=False,
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="FILE", help="Run the statements of this file first, such as job.sql."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FOLDER",
            help="Put the tables here, one folder for each query.  [dim]\\[default: a temporary folder][/dim]",
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="Name the query and its table.")] = "result",
    once: Annotated[bool, typer.Option("--once", help="Read the present rows, print the result, and exit.")] = False,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="Keep the job's progress in this folder.  [dim]\\[default: FOLDER_checkpoint][/dim]"
        ),
    ] = None,
    option: StorageOptions = None,
    master: Master = None,
    conf: SparkConf = None,
    spark_ui: SparkUi = False,
    log: Log = None,
) -> None:
    """Run a continuous query, or several at a prompt, and show their results as they change.

    Each materialized view keeps a table, exactly once. With --to, a later run resumes. Statements other than SELECT and
    CREATE SOURCE show or change the job of --to or --checkpoint, also while it runs, and need no Java. Timestamp
    functions use the time zone of --conf spark.sql.session.timeZone.

    [bold]upstream sql "CREATE SOURCE buses FROM 'feed/' WITH (key = 'vehicle_id', event_time = 'timestamp');
    SELECT route_id, COUNT(*) AS n FROM LATEST(buses) GROUP BY route_id"[/bold]
    """
    from ..language.statements import script, text_of

    if to is not None:
        checkpoint = checkpoint_of(to, checkpoint)
    passing = tempfile.mkdtemp(prefix="upstream-sql-") if to is None else None
    base = absolute_location(to or f"{passing}/tables").rstrip("/")
    try:
        begun = None if file is None else text_of(Path(file)).rstrip().rstrip(";") + ";"
        if begun is None and statements is None and not sys.stdin.isatty():
            statements = sys.stdin.read()
        given = [each for each in (begun, statements) if each is not None]
        job = SqlJob(
            statements=[*script("\n".join(given))] if given else None,
            name=name,
            to=base,
            checkpoint=absolute_location(checkpoint or base + "_checkpoint"),
            once=once,
            storage=storage_options(option),
            conf=name_values(conf, "--conf"),
            master=master,
            spark_ui=spark_ui,
        )
        check_texts(job.statements or [])
        if checkpoint is None or job.needs_spark:
            raise typer.Exit(with_log(log, lambda path: run_sql(job, path)))
        _change(job)
    finally:
        if passing is not None:
            shutil.rmtree(passing, ignore_errors=True)


def run_sql(job: SqlJob, log: Path) -> int:
    """Run the job until it ends, fails, or is stopped; return the exit code."""
    from ..api.job import define_source, resume
    from ..api.queries import queries as open_queries
    from .sql_shell import Shell

    messages = Console(stderr=True, highlight=False)
    _check(job)
    if resumed := resume_text(folder_at(job.checkpoint)):
        messages.print(resumed, markup=False, soft_wrap=True)
    with spark_session(
        "upstream sql", messages, log, job.master, job.conf, once=job.once, spark_ui=job.spark_ui
    ) as spark:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # PySpark's own would cancel the batch that runs
        queries = open_queries(spark, checkpoint=job.checkpoint, to=job.to, **job.options)
        resume(queries, spark)
        running = _SparkJob(queries, once=job.once)
        notes = None if job.statements is None else messages
        shell = Shell(queries, Console(highlight=False), running, partial(define_source, queries, spark), notes)
        try:
            _work(job, shell, messages)
        finally:
            running.stop()
            for location in shell.passing:
                if not is_remote(location):
                    shutil.rmtree(location, ignore_errors=True)
    return 0


def _check(job: SqlJob) -> None:
    """Raise the errors of statements that only define and select, before Spark starts."""
    from ..api.job import check_definitions
    from ..hosting.job_file import definitions
    from ..hosting.journal import Journal
    from ..hosting.registry import registry_now
    from ..language import bind
    from ..language.statements import Create, Definition, Select

    given = job.statements or []
    selects = [each for each in given if isinstance(each, Select)]
    if Journal(job.checkpoint).settings() is not None:
        if len(selects) == len(given):
            for each in selects:
                bind(each.text, registry_now(job.checkpoint).catalog)
    elif all(isinstance(each, Definition | Select) for each in given):
        shown = [Create(f"select_{number}", each.text) for number, each in enumerate(selects, 1)]
        known = definitions([each for each in given if not isinstance(each, Select)])
        check_definitions([*known, *shown], job.to, job.storage)


def _change(job: SqlJob) -> None:
    """Run statements that need no rows. A job takes the changes over, now if it runs, or when it starts."""
    from ..api.queries import Queries
    from ..expressions.zones import zone_of_session
    from ..hosting.table_merge import GivenForTables
    from .sql_shell import Shell

    zone = job.conf.get("spark.sql.session.timeZone")
    given = GivenForTables.of(job.options, overwrite=False)
    queries = Queries(None, job.checkpoint, given, None if zone is None else zone_of_session(zone))
    messages = Console(stderr=True, highlight=False)
    # Into a pipe goes each text whole.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 10_000)
    _work(job, Shell(queries, console, _NoJob(), print, messages), messages)


def _work(job: SqlJob, shell: Shell, messages: Console) -> None:
    from ..language.statements import Select
    from .sql_shell import converse, terminal

    def complain(error: UpstreamError) -> None:
        messages.print(str(error), style="red", markup=False)

    if job.statements is None:
        messages.print("Statements end with a semicolon; \\? lists them, \\q quits.", markup=False)
        converse(shell, terminal(shell.names), complain)
        return
    for number, each in enumerate(job.statements, 1):
        if number == len(job.statements) and isinstance(each, Select):
            shell.look_at(job.name, each.text)
        elif not shell.run(each):
            break


class _NoJob:
    """The job of statements that need none."""

    def start(self) -> None:
        """Leave it to another process."""

    def has_ended(self) -> bool:
        return True


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
