"""``upstream``: the newest row per key from the shell.

Exit codes: 0 done (a followed feed ends by Ctrl-C, so that is 0 too); 1 it failed; 2 it was asked wrongly; 130 or 143 a run
that was to finish (``--once``) was interrupted, or a second Ctrl-C ended at once.
"""

from __future__ import annotations

import enum
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..conf.errors import OptionError
from ..conf.locations import absolute_location, checkpoint_location, is_remote
from ..conf.options import columns as column_names
from .failures import INTERRUPTED, Failure, failure_of, record

__all__ = ["app", "main"]

app = typer.Typer(
    name="upstream",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="The freshest answer per key, however much arrives: a feed of updates becomes a Delta table of the newest row per key.",
    epilog="Exit codes: 0 done; 1 failed; 2 asked wrongly; 130 interrupted before the end.",
)


class Format(str, enum.Enum):
    """How `upstream show` prints rows."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


@app.command()
def latest(
    to: Annotated[str, typer.Option("--to", metavar="TABLE", help="The table: a folder, or an object store's address. Made on first use, continued later.")],
    key: Annotated[list[str], typer.Option("--key", metavar="COLUMN", help="The update key: a row replaces the earlier row with the same value here. Several: repeat it, or separate by commas.")],
    source: Annotated[str | None, typer.Option("--from", metavar="PATH", help="A file, a folder or a quoted glob; files may appear and grow. CSV, JSON lines, Parquet, Zeek; plain, gzip, zstd. Or Kafka topics: kafka://HOST:PORT/TOPIC. Or another latest table: latest:PATH.")] = None,
    time_column: Annotated[str | None, typer.Option("--time", metavar="COLUMN", help="The column that says which of two rows is newer. Without it: the one that arrives later.")] = None,
    select: Annotated[str | None, typer.Option(metavar="COLUMNS", help="Columns that take the place of the feed's own, in SQL: 'data.s AS symbol, timestamp_millis(data.E) AS at, data.b::DOUBLE AS bid'. Key, time and --where are then of these.")] = None,
    where: Annotated[str | None, typer.Option(metavar="SQL", help="Take only rows for which this is true: the newest of [italic]those[/italic] is kept.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Read what is there now, then end. Otherwise follow the feed until Ctrl-C.")] = False,
    checkpoint: Annotated[str | None, typer.Option(metavar="FOLDER", help="Where progress is remembered.  [dim]\\[default: TABLE_checkpoint][/dim]")] = None,
    option: Annotated[list[str] | None, typer.Option("--option", "-o", metavar="NAME=VALUE", help="Any option of the source ([bold]upstream options[/bold] lists them), or storage.NAME=VALUE for an object store. Repeat it for more.")] = None,
    buckets: Annotated[int | None, typer.Option(min=1, help="Into how many parts a new table is cut by its key.  [dim]\\[default: the table's own, or by --expected-keys][/dim]")] = None,
    expected_keys: Annotated[int | None, typer.Option("--expected-keys", min=1, metavar="NUMBER", help="How many keys a new table is to hold: it is cut into a part for each 500,000, and 16 at least.")] = None,
    trigger: Annotated[str | None, typer.Option(metavar="DURATION", help="The least time between batches, such as '1 second'. Without it: as soon as rows are there.")] = None,
    target: Annotated[str | None, typer.Option(metavar="TARGET", help="The staleness that each batch is to keep to, such as 'p99 < 10 s'; the line says how often it did.")] = None,
    metrics: Annotated[str | None, typer.Option(metavar="FOLDER", help="Keep a Delta table with a row of figures for each commit here.")] = None,
    master: Annotated[str | None, typer.Option(metavar="URL", help="Spark's master, such as 'local[4]'.  [dim]\\[default: all cores of this machine][/dim]")] = None,
    conf: Annotated[list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="Any Spark setting. Repeat it for more.")] = None,
    log: Annotated[Path | None, typer.Option(metavar="FILE", help="What Spark prints, and the full story of an error.  [dim]\\[default: a file in the temporary folder, named when needed][/dim]")] = None,
) -> None:  # fmt: skip
    """Follow a feed and keep the newest row per key in a Delta table.

    Each batch is committed exactly once: stop at any moment, by Ctrl-C or kill -9, and the same command goes on where it was.
    Rows that cannot be read are put into TABLE_quarantine with place and reason.

    [bold]upstream latest --from 'feed/*.csv' --key vehicle_id --time timestamp --to ./latest[/bold]

    While it runs, a line tells the rows per second taken in, the keys in the table, how many updates were superseded before
    anybody could see them, how many rows were in conflict (another one of their key and time says something else), the
    staleness of what the last commit delivered (from arrival to visible), the time up to which the table is complete, and how
    long the last batch took.
    """
    from .latest import Job, follow
    from .sources import source_options

    source, implied = source_options(source)
    options = {**implied, **_pairs(option, "--option")}
    storage = {name[8:]: value for name, value in options.items() if name.lower().startswith("storage.")}
    options = {name: value for name, value in options.items() if not name.lower().startswith("storage.")}
    if select is not None:
        options["select"] = select
    if where is not None:
        options["where"] = where
    base = to.rstrip("/")
    if checkpoint is None and is_remote(to):
        raise Failure("The table is in an object store: name a checkpoint with --checkpoint.", 2)
    job = Job(
        source=source,
        key=tuple(_key(key)),
        time=time_column,
        table=to,
        checkpoint=checkpoint_location(checkpoint or base + "_checkpoint"),
        quarantine=absolute_location((checkpoint or "upstream" if is_remote(base) else base) + "_quarantine"),
        buckets=buckets,
        once=once,
        trigger=trigger,
        target=target,
        metrics=metrics,
        options=options,
        storage=storage,
        conf=_pairs(conf, "--conf"),
        master=master,
        expected_keys=expected_keys,
    )
    console = Console(stderr=True, highlight=False)
    console.soft_wrap = not console.is_terminal
    chosen = log
    log = chosen or Path(tempfile.gettempdir(), f"upstream-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log")
    try:
        code = follow(job, console, log)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:
        failure = failure_of(error)
        if record(failure, log):
            raise Failure(f"{failure.sentence}\nThe full story is in {log}", failure.code) from error
        raise failure from error
    if code == 0 and chosen is None:
        log.unlink(missing_ok=True)
    raise typer.Exit(code)


@app.command()
def show(
    table: Annotated[str, typer.Argument(help="The table's folder or address.")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="The most rows; 0 is all.")] = 20,
    where: Annotated[str | None, typer.Option(metavar="SQL", help='Only rows for which this is true, such as "speed > 10 AND route_id = 7".')] = None,
    columns: Annotated[str | None, typer.Option(metavar="COLUMNS", help="Which columns, separated by commas.  [dim]\\[default: all of yours][/dim]")] = None,
    order_by: Annotated[str | None, typer.Option(metavar="SQL", help='Such as "speed DESC".')] = None,
    everything: Annotated[bool, typer.Option("--all", help="Show the columns that UpStream keeps for itself too (_upstream_…).")] = False,
    output: Annotated[Format, typer.Option("--format", case_sensitive=False, help="json: one object per line.")] = Format.TABLE,
    option: Annotated[list[str] | None, typer.Option("--option", "-o", metavar="storage.NAME=VALUE", help="Options for an object store.")] = None,
) -> None:  # fmt: skip
    """Print rows of a table. Reads it with Polars, without Java, also while it is being written.

    [bold]upstream show ./latest --where "speed > 10" --order-by "speed DESC" --limit 5[/bold]
    """
    from .show import show as print_table

    print_table(
        table,
        limit=limit,
        where=where,
        columns=column_names().parse(columns) if columns else (),
        order_by=order_by,
        everything=everything,
        output=output.value,
        storage=_storage(option),
    )


@app.command()
def check(
    table: Annotated[str, typer.Argument(help="The table's folder or address.")],
    source: Annotated[str | None, typer.Option(metavar="PATH", help="Input that the table was made from, Parquet or a Delta table: is anything in it newer than in the table?")] = None,
    option: Annotated[list[str] | None, typer.Option("--option", "-o", metavar="storage.NAME=VALUE", help="Options for an object store.")] = None,
) -> None:  # fmt: skip
    """Check that a table is right: one row per key, in its bucket; files, deletions, log and counts as recorded. The exit code is 1 if it is not.

    Reads all of it, a bucket at a time, without Java, also while it is being written.

    [bold]upstream check ./latest --source 'archive/'[/bold]
    """
    from .check import print_check

    if not print_check(table, source, _storage(option)):
        raise typer.Exit(1)


@app.command()
def repair(
    table: Annotated[str, typer.Argument(help="The table's folder or address. No query may be writing to it.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    orphans: Annotated[bool, typer.Option("--orphans", help="Remove files that no version within the retention needs.")] = False,
    retention: Annotated[str, typer.Option(metavar="DURATION", help="How old such files have to be.")] = "7 days",
    force: Annotated[bool, typer.Option("--force", help="Let rows go that are no duplicates: those of files that are gone or damaged, and those older than a deletion.")] = False,
    option: Annotated[list[str] | None, typer.Option("--option", "-o", metavar="storage.NAME=VALUE", help="Options for an object store.")] = None,
) -> None:  # fmt: skip
    """Mend what [bold]upstream check[/bold] finds, in one commit, and say what was done.

    Of keys that are there twice the newest row stays; rows go to their bucket; files that are gone or damaged are taken out of the table with --force.
    The numbers of rows before and after are printed, and the version to go back to.

    [bold]upstream repair ./latest --dry-run[/bold]
    """
    from .check import print_repair
    from .plan import duration

    if not print_repair(
        table,
        _storage(option),
        dry_run=dry_run,
        orphans=orphans,
        retention_us=duration(retention, "--retention"),
        force=force,
    ):
        raise typer.Exit(1)


@app.command()
def rebucket(
    table: Annotated[str, typer.Argument(help="The table's folder or address.")],
    buckets: Annotated[int, typer.Argument(min=1, help="Into how many parts it is cut by its key from now on: one for each 500,000 to 1 million keys.")],
    option: Annotated[list[str] | None, typer.Option("--option", "-o", metavar="storage.NAME=VALUE", help="Options for an object store.")] = None,
) -> None:  # fmt: skip
    """Lay a table that has grown out in more parts. Readers go on; a query that writes to it has to be restarted.

    [bold]upstream rebucket ./latest 64[/bold]
    """
    from ..sink.admin.rebucket import rebucket_table

    version = rebucket_table(table, buckets, storage=_storage(option))
    typer.echo(f"{table} has {buckets} buckets from version {version} on")


@app.command()
def keep(
    table: Annotated[str, typer.Argument(help="The table's folder or address.")],
    rows: Annotated[str, typer.Argument(metavar="KEEP", help="What it keeps of each key from now on: 'latest', or 'latest N'.")],
    option: Annotated[list[str] | None, typer.Option("--option", "-o", metavar="storage.NAME=VALUE", help="Options for an object store.")] = None,
) -> None:  # fmt: skip
    """Let a table keep more of the newest rows of each key from now on, or fewer: then those that are too many leave it at once.

    Readers go on; a query that writes to it has to be restarted, with the new [bold]keep[/bold].

    [bold]upstream keep ./latest 'latest 3'[/bold]
    """
    from ..sink.admin.history_change import change_keep

    version = change_keep(table, rows, storage=_storage(option))
    typer.echo(f"{table} keeps {rows.strip().lower()} from version {version} on")


@app.command()
def erase(
    table: Annotated[str, typer.Argument(help="The table's folder or address.")],
    key: Annotated[list[str], typer.Option("--key", metavar="[COLUMN=]VALUE", help="The key. One for each of its columns; the name may be left out where there is one column.")],
    output: Annotated[list[str] | None, typer.Option("--output", metavar="TABLE", help="A table of late or conflicting rows, beside those that the table's log names. Repeat it for more.")] = None,
    index_location: Annotated[str | None, typer.Option("--index-location", metavar="FOLDER", help="The query's option indexLocation, if it has one.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    option: Annotated[list[str] | None, typer.Option("--option", "-o", metavar="storage.NAME=VALUE", help="Options for an object store.")] = None,
) -> None:  # fmt: skip
    """Take a key out of a table for good: rows, dead rows, remembered deletions, late and conflicting rows, this machine's index cache. Say what remains until when.

    A query may be writing meanwhile. Earlier versions hold the key until their retention is over.

    [bold]upstream erase ./latest --key 4711 --dry-run[/bold]

    [bold]upstream erase ./latest --key region=eu --key id=4711[/bold]
    """
    from .erase import print_erasure

    print_erasure(table, key, _storage(option), outputs=output or (), index_location=index_location, dry_run=dry_run)


@app.command()
def maintain(
    table: Annotated[str, typer.Argument(help="The table's folder or address.")],
    retention: Annotated[str | None, typer.Option(metavar="DURATION", help="How long a version can still be read after another took its place.  [dim]\\[default: what the table records][/dim]")] = None,
    versions: Annotated[int | None, typer.Option(min=1, help="The most versions that are kept.  [dim]\\[default: what the table records][/dim]")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    compact: Annotated[bool, typer.Option("--compact", help="Write each bucket anew that has small files or rows marked as dead: then a scan takes about what it takes of a table that was freshly written.")] = False,
    option: Annotated[list[str] | None, typer.Option("--option", "-o", metavar="storage.NAME=VALUE", help="Options for an object store.")] = None,
) -> None:  # fmt: skip
    """Remove what is past its retention from a table: log entries, data files, files that failed tasks left.

    A query does this by itself between batches (option maintenance=auto). By hand it is for tables whose query has it off, or a backlog; the query may go on meanwhile.

    [bold]upstream maintain ./latest --dry-run[/bold]

    [bold]upstream maintain ./latest --compact[/bold], each night for instance.
    """
    from .maintain import maintain as look_after
    from .plan import duration

    retention_us = None if retention is None else duration(retention, "--retention")
    look_after(
        table, retention_us=retention_us, versions=versions, dry=dry_run, compact=compact, storage=_storage(option)
    )


@app.command()
def plan(
    rate: Annotated[float, typer.Option(help="Rows per second that arrive.")],
    keys: Annotated[int, typer.Option(min=1, help="How many keys there are.")],
    cost: Annotated[str, typer.Option(metavar="DURATION", help="What processing one row costs, such as '0.5ms'.")],
    skew: Annotated[float, typer.Option(min=0, help="How unevenly the keys are updated: Zipf's exponent; 0 is evenly.")] = 0.0,
    fixed: Annotated[str, typer.Option(metavar="DURATION", help="What each batch costs besides. With it, rows are processed in batches.")] = "0s",
    budget: Annotated[int | None, typer.Option(min=1, help="The most rows in a batch.  [dim]\\[default: 1; with --fixed, whatever waits][/dim]")] = None,
    policy: Annotated[list[str] | None, typer.Option(help="Only this policy: append, shed, fifo, in-place, linecutting or auto. Repeat it for more.")] = None,
    target: Annotated[str | None, typer.Option(metavar="TARGET", help="Such as 'p99 < 10 s'; the exit code is 1 if no policy meets it.")] = None,
    long: Annotated[str | None, typer.Option("--for", metavar="DURATION", help="How long to simulate.  [dim]\\[default: long enough][/dim]")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs per policy.")] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="Only the first, rough answer.")] = False,
) -> None:  # fmt: skip
    """Predict staleness per policy by simulation, before anything is built.

    A first, rough answer comes within seconds, a better one after it. For it, a queue that serves row by row takes some rows as one, so that staleness is off by 1/50 of the time in which every key is served once, at most.

    [bold]upstream plan --rate 10000 --keys 20000 --skew 0.5 --cost 0.5ms --fixed 0.5s --target "p99 < 10 s"[/bold]
    """
    from ..conf.staleness_target import StalenessTarget
    from .plan import Question, duration, print_plan

    fixed_us = duration(fixed, "--fixed")
    question = Question(
        rate=rate,
        keys=keys,
        skew=skew,
        cost_us=duration(cost, "--cost"),
        fixed_us=fixed_us,
        budget=budget if budget is not None or fixed_us > 0 else 1,
        policies=tuple(policy or ()),
        duration_us=None if long is None else duration(long, "--for"),
        seeds=seeds,
    )
    # Into a pipe goes the whole table, however wide.
    console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 140)
    if not print_plan(question, console, None if target is None else StalenessTarget.parse(target), quick=quick):
        raise typer.Exit(1)


@app.command()
def release(
    table: Annotated[str, typer.Argument(help="The table's folder or address.")],
    option: Annotated[list[str] | None, typer.Option("--option", "-o", metavar="storage.NAME=VALUE", help="An option of the object store. Repeat it for more.")] = None,
) -> None:  # fmt: skip
    """Let another query write a table at once, when the one that did is stopped for good.

    Needed only where the end of that query cannot be seen: it ran on another machine, or in a process that lives on. A query that still
    runs takes the table again with its next batch, or fails if another one has it by then.
    """
    from ..conf.locations import absolute_location
    from ..sink.commit.lease import release_lease
    from ..storage.folder import TableFolder

    storage = {name.removeprefix("storage."): value for name, value in _pairs(option, "--option").items()}
    taken = release_lease(TableFolder(absolute_location(table), storage))
    typer.echo("no query held it" if taken is None else f"taken from query {taken.query_id}")


@app.command()
def serve(
    tables: Annotated[list[str], typer.Argument(metavar="[NAME=]TABLE…", help="Tables' folders or addresses, with the names they are to have in SQL.")],
    metrics: Annotated[str | None, typer.Option(metavar="FOLDER", help="The table that [bold]upstream latest --metrics[/bold] keeps: then a view NAME_freshness says how fresh each table is.")] = None,
    host: Annotated[str, typer.Option(help="Where to listen. Whoever reaches it may read and write as you do.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Where to listen.")] = 10000,
    master: Annotated[str | None, typer.Option(metavar="URL", help="Spark's master, such as 'local[4]'.  [dim]\\[default: all cores of this machine][/dim]")] = None,
    conf: Annotated[list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="Any Spark setting. Repeat it for more.")] = None,
) -> None:  # fmt: skip
    """Serve tables to BI tools over JDBC: Spark's Thrift server, until Ctrl-C.

    [bold]upstream serve positions=./latest --metrics ./metrics[/bold]
    """
    from .serve import Served
    from .serve import serve as serve_tables

    console = Console(highlight=False, soft_wrap=True)
    serve_tables(Served.of(tables, metrics, host, port), console, master, _pairs(conf, "--conf"))


@app.command()
def options() -> None:
    """List every option of the source and the sink, as Markdown (docs/options.md)."""
    from .reference import options_reference

    sys.stdout.write(options_reference())


def _version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        typer.echo(f"upstream {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")] = False,
) -> None:  # fmt: skip
    del version


def main() -> None:
    """Run the command line; every error is a sentence on standard error, and an exit code."""
    try:
        app()  # ends the process by itself, except for what is caught here
    except Exception as error:  # noqa: BLE001 the last line of defence: a sentence, not a trace
        failure = failure_of(error)
        Console(stderr=True, soft_wrap=True, highlight=False).print(failure.sentence, style="red", markup=False)
        sys.exit(failure.code)


def _pairs(given: list[str] | None, name: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for each in given or []:
        left, equals, right = each.partition("=")
        if not equals or not left.strip():
            raise Failure(f"{name} {each!r} is not NAME=VALUE.", 2)
        pairs[left.strip()] = right
    return pairs


def _storage(option: list[str] | None) -> dict[str, str]:
    return {name.removeprefix("storage."): value for name, value in _pairs(option, "--option").items()}


def _key(given: list[str]) -> list[str]:
    try:
        return [name for each in given for name in column_names().parse(each)]
    except ValueError as error:
        raise OptionError(f"--key {' '.join(given)!r} is not a list of columns ({error})") from None


if __name__ == "__main__":
    main()
