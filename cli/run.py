"""``upstream run``, ``apply`` and ``fmt``: a job that a file of SQL defines."""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack
from difflib import unified_diff
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from ..conf.errors import TableError, UpstreamError
from ..conf.locations import absolute_location, is_remote
from ..conf.progress import progress
from ..conf.units import now_us
from ..core.feedback.offsets import SourceCounts, journaled_counts
from ..sink.figures.dead_letters import letter_folders, shown_letters
from ..storage.atomic_write import replace_text
from ..storage.folder import folder_at
from ..workbench import made
from .failures import INTERRUPTED, MISUSED, CommandFailure, with_log
from .live import delay_text, how_rows_came, resume_text
from .options import Log, Master, SparkConf, SparkUi, StorageOptions, name_values, spark_session, storage_options
from .serve import workbench_beside
from .status import print_counts, print_letters

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql.streaming.query import StreamingQuery

    from ..api.queries import Queries
    from ..language.statements import Definition, Statement

commands = typer.Typer()

File = Annotated[str, typer.Argument(metavar="FILE", help="Read the CREATE statements of this file, such as job.sql.")]
To = Annotated[str, typer.Option("--to", metavar="FOLDER", help="Put the tables here, one folder for each view.")]
Checkpoint = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER", help="Keep the job's progress in this folder.  [dim]\\[default: FOLDER_checkpoint][/dim]"
    ),
]


@commands.command()
def run(
    file: File,
    to: To,
    once: Annotated[bool, typer.Option("--once", help="Read the present rows, then exit.")] = False,
    batch_duration: Annotated[
        str | None,
        typer.Option(
            "--batch-duration",
            metavar="TIME",
            help="Set the intended duration of a batch, such as '2 seconds'. If it is too short for all results, some "
            "wait, by the weights of their views.",
        ),
    ] = None,
    checkpoint: Checkpoint = None,
    ui: Annotated[
        bool, typer.Option("--ui", help="Show the job in a browser too, as [bold]upstream ui[/bold] does.")
    ] = False,
    option: StorageOptions = None,
    master: Master = None,
    conf: SparkConf = None,
    spark_ui: SparkUi = False,
    log: Log = None,
) -> None:
    """Run the job that a file of SQL defines: each materialized view keeps a table, exactly once.

    A later run resumes, and takes up additions to the file. For any other change of the file, use
    [bold]upstream apply[/bold].

    [bold]upstream run job.sql --to ./lake --once[/bold]
    """
    place = checkpoint_of(to, checkpoint)
    statements, storage = _definitions(file), storage_options(option)
    _check(absolute_location(to), place, statements, storage)

    def work(path: Path) -> int:
        from ..api.job import sql

        messages = Console(stderr=True, highlight=False)
        if resumed := resume_text(folder_at(place)):
            messages.print(resumed, markup=False, soft_wrap=True)
        with ExitStack() as stack:
            if ui:
                stack.enter_context(workbench_beside(made([to, place]), storage, messages))
            settings = name_values(conf, "--conf")
            session = spark_session("upstream run", messages, path, master, settings, once=once, spark_ui=spark_ui)
            spark = stack.enter_context(session)
            signal.signal(signal.SIGINT, signal.default_int_handler)  # PySpark's own would cancel the batch that runs
            options: dict[str, Any] = {f"storage.{name}": value for name, value in storage.items()}
            job = sql(spark, Path(file), to=absolute_location(to), checkpoint=place, **options)
            trigger: dict[str, Any] = {"availableNow": True} if once else {}
            query = job.start(batch_duration=batch_duration, **trigger)
            messages.print(f"Running {len(statements)} definitions. Checkpoint: {place}", markup=False)
            try:
                print_counts(messages, _wait(query, place, messages))
                code = 0
            except KeyboardInterrupt:
                code = INTERRUPTED if once else 0
            query.stop()
            print_letters(messages, letter_folders(None, place, storage))
            stopped = _print_tables(job, storage)
            if once and stopped:
                told = f"An error stopped {', '.join(stopped)}. Correct the cause, or the file for `upstream apply`."
                messages.print(told, markup=False, soft_wrap=True)
                code = code or 1
        return code

    raise typer.Exit(with_log(log, work))


@commands.command()
def apply(
    file: File,
    to: To,
    yes: Annotated[bool, typer.Option("--yes", help="Make the change.")] = False,
    checkpoint: Checkpoint = None,
    option: StorageOptions = None,
    conf: SparkConf = None,
) -> None:
    """Show how a job differs from its file, and with --yes make the job match it.

    A job that is running makes the whole change with its next batch. The command needs no Java. Timestamp functions of
    new definitions use the time zone of --conf spark.sql.session.timeZone.
    """
    from ..expressions.zones import zone_of_session
    from ..hosting.job_file import apply as apply_file
    from ..hosting.job_file import differences
    from ..hosting.registry import registry_now

    place = checkpoint_of(to, checkpoint)
    wanted, storage = _definitions(file), storage_options(option)
    zone = zone_of_session(name_values(conf, "--conf").get("spark.sql.session.timeZone", "UTC"))
    known = registry_now(place)
    found = apply_file(place, wanted, storage, zone, change=True) if yes else differences(wanted, known, storage, zone)
    for each in found:
        typer.echo(str(each))
    if not found:
        typer.echo("Nothing to change.")
    elif not yes:
        typer.echo("To make this change, add --yes.")


@commands.command()
def fmt(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE…", help="Format these files of statements; - is standard input.")
    ],
    check: Annotated[
        bool,
        typer.Option("--check", help="Change nothing. Print the differences; if there are any, the exit code is 1."),
    ] = False,
) -> None:
    """Format files of SQL: keywords in capitals, a line for each clause, all comments in their place.

    [bold]upstream fmt job.sql[/bold]
    """
    from ..language.layout import layout
    from ..language.statements import text_of

    different = False
    for file in files:
        text = sys.stdin.read() if file == "-" else text_of(Path(file))
        try:
            made = layout(text)
        except UpstreamError as error:
            raise CommandFailure(f"{file}: {error}", MISUSED) from error
        different = different or made != text
        if check:
            for line in unified_diff(text.splitlines(), made.splitlines(), file, f"{file}, formatted", lineterm=""):
                typer.echo(line)
        elif file == "-":
            typer.echo(made, nl=False)
        elif made != text:
            try:
                replace_text(file, made)
            except OSError as error:
                raise CommandFailure(f"The file {file} cannot be replaced: {error}. It has not changed.") from error
    raise typer.Exit(check and different)


def _definitions(file: str) -> Sequence[Definition]:
    from ..hosting.job_file import definitions
    from ..language.statements import script, text_of

    wanted = definitions([*script(text_of(Path(file)))])
    check_texts(wanted)
    return wanted


def check_texts(statements: Iterable[Statement]) -> None:
    """Raise QueryRefusedError if a query cannot be read; an error need not wait for Java."""
    from ..conf.deep_stack import on_deep_stack
    from ..language.dialect import parse
    from ..language.statements import Create, Select

    for each in statements:
        if isinstance(each, Create | Select):
            on_deep_stack(partial(parse, each.text))


def _check(to: str, checkpoint: str, wanted: Sequence[Definition], storage: Mapping[str, str]) -> None:
    """Refuse a file with errors, or that changes what a job has, before Spark starts."""
    from ..api.job import check_definitions
    from ..hosting.job_file import differences, refuse_changes
    from ..hosting.journal import Journal
    from ..hosting.registry import registry_now

    if Journal(checkpoint).started():
        refuse_changes(differences(wanted, registry_now(checkpoint), storage, None))
    else:
        check_definitions(wanted, to, storage)


def _wait(query: StreamingQuery, checkpoint: str, console: Console) -> SourceCounts | None:
    """Wait for the end of a query, show its batches, and return the counts as of the last one."""
    with progress("waiting for the first batch", console) as line:
        while not query.awaitTermination(1):
            last, place = query.lastProgress, folder_at(checkpoint)
            delay = delay_text(place, now_us())
            if last is not None:
                counts = journaled_counts(place, last.batchId)
                rows = [] if counts is None else [f"{counts.received:,} rows read", *how_rows_came(counts)]
                letters = shown_letters(letter_folders(None, checkpoint, {})).rows
                facts = [f"batch {last.batchId}", *rows, *([f"{letters:,} dead letters"] if letters else [])]
                line.show(", ".join(facts) + (f"; {delay}" if delay else ""))
            elif delay:
                line.show(delay)
    last = query.lastProgress
    return None if last is None else journaled_counts(folder_at(checkpoint), last.batchId)


def checkpoint_of(to: str, checkpoint: str | None) -> str:
    """Return the checkpoint of the job whose tables are below a folder."""
    if checkpoint is None and is_remote(to):
        raise CommandFailure("The tables are in an object store. Name a checkpoint with --checkpoint.", MISUSED)
    return absolute_location(checkpoint or absolute_location(to).rstrip("/") + "_checkpoint")


def _print_tables(job: Queries, storage: Mapping[str, str]) -> list[str]:
    """Print a line for each view; return those that an error stopped."""
    import polars as pl

    from ..delta_format.scan import open_table
    from ..hosting.registry import registry_now, texts_now
    from ..sink.figures.waits import complete_to
    from .status import recent_commits

    registry, entries = registry_now(job.checkpoint), texts_now(job.checkpoint)[0].entries
    stopped: list[str] = []
    for name, each in registry.queries.items():
        state = f"stopped: {each.reason or 'paused'}"
        if each.active:
            try:
                state = f"{job.scan(name).select(pl.len()).collect().item():,} rows"
                version = open_table(each.location, storage).version()
                if commits := recent_commits(each.location, version, storage):
                    state += f", complete to {complete_to(commits[-1][1])}"
            except TableError:
                state = "no batch yet"
        typer.echo(f"{name}  {state}  {each.location}")
        # One that no longer binds is active in the journal.
        if not each.active and (each.id in registry.failed or entries[name].active):
            stopped.append(name)
    return stopped
