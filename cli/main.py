"""The command line ``upstream``."""

from __future__ import annotations

import os
import re
import sys
from inspect import getdoc
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..conf.errors import OptionError
from ..conf.locations import absolute_location, checkpoint_location, format_option, is_remote, source_address
from ..core.rows.key import KEY_OPTION
from ..datasource.options import names_its_key
from .failures import CommandFailure, failure_of, with_log
from .options import (
    DEFAULT_FILE,
    Log,
    Master,
    SparkConf,
    SparkUi,
    StorageOptions,
    command_defaults,
    duration,
    name_values,
    read_settings,
    storage_options,
    with_pairs_of_the_file,
)
from .run import commands as job_commands
from .sql import commands as sql_commands
from .table_commands import commands

app = typer.Typer(
    name="upstream",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Keep a Delta table of the newest row per key, fresh even under overload.",
    epilog="Exit codes: 0 done; 1 failed; 2 usage error; 130 interrupted before the end.",
)


@app.command()
def latest(
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="TABLE",
            help="Write the table to this folder, or address in an object store. The first run creates it; later runs "
            "resume.",
        ),
    ],
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            metavar="COLUMN",
            help="Set the update key. A row replaces the earlier row with the same value in this column. "
            "For several columns, repeat the option or separate them by commas. "
            "Only change events (--format debezium) name it themselves.",
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="Read a file, a folder, or a quoted glob. Files may appear and grow. "
            "Formats: CSV, JSON lines, Parquet, Zeek; plain, gzip, or zstd. For Kafka: kafka://HOST:PORT/TOPIC. "
            "For another latest table: latest:PATH.",
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Set the format of the files or messages, if the name does not give it: csv, json, parquet, zeek, "
            "avro, protobuf, raw, debezium, or debezium-avro. "
            "With debezium, the position in the source's log orders the rows, and deletions are applied.",
        ),
    ] = None,
    time_column: Annotated[
        str | None,
        typer.Option(
            "--event-time",
            metavar="COLUMN",
            help="Name the event time: the row with the larger value is newer. By default, the later row is newer.",
        ),
    ] = None,
    sequence_by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Order the rows of a key by these columns, such as a log position, in place of the event time. The "
            "row with the larger values is newer. For several columns, repeat the option or separate them by commas.",
        ),
    ] = None,
    select: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMNS",
            help="Compute columns in SQL, in place of the feed's own: "
            "'data.s AS symbol, timestamp_millis(data.E) AS at, data.b::DOUBLE AS bid'. "
            "--key, --event-time, and --where then name these.",
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            metavar="SQL",
            help="Keep only rows for which this is true. The table then holds the newest of these rows.",
        ),
    ] = None,
    delete_when: Annotated[
        str | None,
        typer.Option(
            "--delete-when",
            metavar="SQL",
            help="Delete the key of a row for which this is true, such as \"op = 'd'\". "
            "If it is the name of a boolean column, the table does not get that column.",
        ),
    ] = None,
    once: Annotated[
        bool,
        typer.Option("--once", help="Read the present rows, then exit. By default, follow the feed until Ctrl-C."),
    ] = False,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="Keep the query's progress in this folder.  [dim]\\[default: TABLE_checkpoint][/dim]"
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-o",
            metavar="NAME=VALUE",
            callback=with_pairs_of_the_file,
            help="Set an option of the source or of the table, or storage.NAME=VALUE for an object store. "
            "[bold]upstream options[/bold] lists them. Repeatable.",
        ),
    ] = None,
    buckets: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Divide a new table into this many parts by its key.  "
            "[dim]\\[default: by --expected-keys, or 16][/dim]",
        ),
    ] = None,
    expected_keys: Annotated[
        int | None,
        typer.Option(
            "--expected-keys",
            min=1,
            metavar="NUMBER",
            help="Expect this many keys. A new table gets a part for each 500,000 keys, and at least 16.",
        ),
    ] = None,
    trigger: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Wait at least this long between batches, such as '1 second'. "
            "By default, a batch starts as soon as there are rows.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET",
            help="Set a bound on staleness, such as 'p99 < 10 s'. The live line shows how many batches met it.",
        ),
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Keep a Delta table of metrics here, one row for each commit.")
    ] = None,
    master: Master = None,
    conf: SparkConf = None,
    spark_ui: SparkUi = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one line of JSON for each commit to standard output, instead of the live line."
        ),
    ] = False,
    as_sql: Annotated[
        bool, typer.Option("--sql", help="Print the job as a file for [bold]upstream run[/bold], and exit.")
    ] = False,
    log: Log = None,
) -> None:
    """Follow a feed and keep the newest row per key in a Delta table.

    Each batch is committed exactly once. Stop at any moment, with Ctrl-C or kill -9; the same command then resumes.
    Rows that cannot be read go to the Delta table TABLE_dead_letters, with their place and the reason. If a null means
    that a value has not changed, add -o nullMeans=unchanged.

    [bold]upstream latest --from 'feed/*.csv' --key vehicle_id --event-time timestamp --to ./latest[/bold]

    The live line shows the rows per second, the keys in the table, and the superseded updates. Then come conflicts
    (same key and time, other content) and the staleness of the last commit. The last figures are the time up to which
    the table is complete, and the duration of the last batch.
    """
    from .latest import LatestJob, divided_options, follow, statements_of

    source, implied = source_address(source)
    options = {**implied, **name_values(option, "--option")}
    if form is not None:
        options[format_option(options)] = form
    if not key and not names_its_key(options):
        raise CommandFailure("Missing option '--key'. Only change events and latest tables name it.", 2)
    storage = {name[8:]: value for name, value in options.items() if name.lower().startswith("storage.")}
    options = {name: value for name, value in options.items() if not name.lower().startswith("storage.")}
    if select is not None:
        options["select"] = select
    if where is not None:
        options["where"] = where
    options, of_table = divided_options(options)
    base = to.rstrip("/")
    if checkpoint is None and is_remote(to):
        raise CommandFailure("The table is in an object store. Name a checkpoint with --checkpoint.", 2)
    job = LatestJob(
        source=source,
        key=tuple(_key(key or [])),
        time=time_column,
        sequence=tuple(_key(sequence_by or [])),
        delete_when=delete_when,
        table=to,
        checkpoint=checkpoint_location(checkpoint or base + "_checkpoint"),
        dead_letters=absolute_location((checkpoint or "upstream" if is_remote(base) else base) + "_dead_letters"),
        buckets=buckets,
        once=once,
        trigger=trigger,
        target=target,
        metrics=metrics,
        options=options,
        of_table=of_table,
        storage=storage,
        conf=name_values(conf, "--conf"),
        master=master,
        spark_ui=spark_ui,
        expected_keys=expected_keys,
        as_json=as_json,
    )
    if as_sql:
        typer.echo(statements_of(job))
        return
    console = _console()
    raise typer.Exit(with_log(log, lambda path: follow(job, console, path)))


@app.command()
def plan(
    rate: Annotated[float, typer.Option(help="Set the rows that arrive per second.")],
    keys: Annotated[int, typer.Option(min=1, help="Set the number of keys.")],
    cost: Annotated[str, typer.Option(metavar="DURATION", help="Set the time to process one row, such as '0.5ms'.")],
    skew: Annotated[
        float, typer.Option(min=0, help="Set the skew of updates over keys, as Zipf's exponent; 0 means none.")
    ] = 0.0,
    fixed: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help="Set the time of a batch besides its rows. Rows are then processed in batches."
        ),
    ] = "0s",
    budget: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Limit the rows in a batch.  [dim]\\[default: 1; with --fixed, all rows that wait][/dim]",
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Simulate only this policy: append, shed, fifo, in-place, linecutting, or auto. Repeatable."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET",
            help="Set a bound on staleness, such as 'p99 < 10 s'. The exit code is 1 if no policy meets it.",
        ),
    ] = None,
    long: Annotated[
        str | None,
        typer.Option("--for", metavar="DURATION", help="Simulate this long.  [dim]\\[default: long enough][/dim]"),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Run each policy this many times.")] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="Print only the first, rough answer.")] = False,
) -> None:
    """Predict the staleness of each policy by simulation, before you build anything.

    A rough answer comes within seconds, and a better one after it. The rough answer processes several rows as one. Its
    error is at most 1/50 of the time in which every key is processed once.

    [bold]upstream plan --rate 10000 --keys 20000 --skew 0.5 --cost 0.5ms --fixed 0.5s --target "p99 < 10 s"[/bold]
    """
    from ..conf.units import StalenessTarget
    from ..workbench.prediction import Question
    from .plan import print_plan

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
def demo(
    seconds: Annotated[
        float, typer.Option(min=5, help="Compare the tables for this long, once each key has a row.")
    ] = 30,
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="Put the tables and the plot here.")] = Path(
        "upstream-demo"
    ),
    ui: Annotated[
        bool,
        typer.Option("--ui/--no-ui", help="Show the first table in a browser too, if the extra `ui` is installed."),
    ] = True,
) -> None:
    """Show an overloaded feed in two tables: with an update queue, and with foreachBatch and MERGE.

    Ten times as many rows arrive as can be processed. The demo prints how old the rows of both tables are, and plots
    it at the end.
    """
    from .demo import demo as run_demo

    run_demo(seconds, to, _console(), ui=ui)


@app.command()
def serve(
    tables: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]TABLE…", help="Serve these tables: folders or addresses, each with its name in SQL."
        ),
    ],
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Read this table of [bold]upstream latest --metrics[/bold], and add a view NAME_freshness for each "
            "table.",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Listen on this address. Anyone who can reach it can read and write as you can.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Listen on this port.")] = 10000,
    master: Master = None,
    conf: SparkConf = None,
    spark_ui: SparkUi = False,
) -> None:
    """Serve tables to BI tools over JDBC with Spark's Thrift server, until Ctrl-C.

    [bold]upstream serve positions=./latest --metrics ./metrics[/bold]
    """
    from .serve import ServeRequest
    from .serve import serve as serve_tables

    console = Console(highlight=False, soft_wrap=True)
    served, settings = ServeRequest.of(tables, metrics, host, port), name_values(conf, "--conf")
    serve_tables(served, console, master, settings, spark_ui=spark_ui)


def _print_grafana(parameter: typer.CallbackParam, wanted: bool) -> None:
    if wanted:
        from ..workbench import __file__ as room

        name = {"dashboard": "dashboard.json", "alerts": "alerts.yaml"}[parameter.name or ""]
        sys.stdout.write((Path(room).parent / "grafana" / name).read_text(encoding="utf-8"))
        raise typer.Exit


@app.command()
def ui(
    locations: Annotated[
        list[str],
        typer.Argument(metavar="TABLE…", help="Watch these tables, checkpoints, or folders of tables."),
    ],
    host: Annotated[
        str, typer.Option(help="Listen on this address. Who has the printed address can see and change what you can.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Listen on this port; 0 takes a free one.")] = 8383,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="UPSTREAM_UI_TOKEN",
            help="Expect this token in each request. Use the variable: all users of this machine can read options.  "
            "[dim]\\[default: random, kept for the tables and port][/dim]",
        ),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Take no changes.")] = False,
    otlp: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Send the metrics to this OpenTelemetry collector, by OTLP over HTTP."),
    ] = None,
    dashboard: Annotated[
        bool,
        typer.Option(
            "--dashboard", callback=_print_grafana, is_eager=True, help="Print a dashboard for Grafana, and exit."
        ),
    ] = False,
    alerts: Annotated[
        bool,
        typer.Option(
            "--alerts", callback=_print_grafana, is_eager=True, help="Print alert rules for Prometheus, and exit."
        ),
    ] = False,
    option: StorageOptions = None,
) -> None:
    """Show tables and their queries in a browser, until Ctrl-C. It needs no Java, and works after a query has ended.

    [bold]upstream ui ./latest[/bold]
    """
    from .serve import show_workbench

    del dashboard, alerts
    show_workbench(
        locations,
        storage_options(option),
        _console(),
        host=host,
        port=port,
        token=token,
        control=not read_only,
        otlp=otlp,
    )


app.add_typer(commands)
app.add_typer(job_commands)
app.add_typer(sql_commands)


@app.command()
def options() -> None:
    """Print every option of the source and the sink as Markdown (docs/options.md)."""
    from .options import options_reference

    sys.stdout.write(options_reference())


for each in (app, commands, job_commands, sql_commands):
    for command in each.registered_commands:
        # Typer keeps the ends of lines, which are elsewhere on a terminal.
        command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", getdoc(command.callback) or "")


def _version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        typer.echo(f"upstream {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="UPSTREAM_CONFIG",
            help="Read defaults of options from this TOML file.  [dim]\\[default: upstream.toml, if it exists][/dim]",
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    del version
    if (folder := os.getcwd()) not in sys.path:  # of modules with functions, as `python` and Spark's workers have it
        sys.path.append(folder)
    path = Path(DEFAULT_FILE) if config is None else config
    if config is None and not path.exists():
        return
    context.default_map = command_defaults(read_settings(path, os.environ), _parameters(), path)


def _parameters() -> dict[str, dict[str, str]]:
    """Return the parameter that each long option of each command sets."""
    return {
        name: {
            flag.removeprefix("--"): parameter.name or ""
            for parameter in command.params
            for flag in parameter.opts
            if flag.startswith("--")
        }
        for name, command in typer.main.get_group(app).commands.items()
    }


def main() -> None:
    """Run the command line; each error becomes a sentence on standard error, and an exit code."""
    try:
        app()  # ends the process by itself, except for what is caught here
    except Exception as error:  # noqa: BLE001 the last line of defence: a sentence, not a trace
        failure = failure_of(error)
        Console(stderr=True, soft_wrap=True, highlight=False).print(failure.sentence, style="red", markup=False)
        sys.exit(failure.code)


def _console() -> Console:
    """Return standard error: a terminal wraps lines, and a file gets them whole."""
    console = Console(stderr=True, highlight=False)
    console.soft_wrap = not console.is_terminal
    return console


def _key(given: list[str]) -> list[str]:
    try:
        return [name for each in given for name in KEY_OPTION.parse(each)]
    except ValueError as error:
        raise OptionError(f"--key {' '.join(given)!r} is not a list of columns ({error})") from None


if __name__ == "__main__":
    main()
