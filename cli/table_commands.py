"""The commands that read or maintain a table. None needs Java."""

from __future__ import annotations

import datetime as dt
import enum
import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ..conf.progress import progress
from ..core.rows.key import KEY_OPTION
from .failures import MISUSED, CommandFailure
from .options import StorageOptions, duration, storage_options

if TYPE_CHECKING:
    from ..sink.admin.erase import Erasure
    from ..sink.spec.maintenance_rules import MaintenanceResult


commands = typer.Typer()


def _folder(path: str) -> str:
    """Refuse a file, such as the one of a job."""
    if os.path.isfile(path):
        run = f" To run its job, use `upstream run {path} --to FOLDER`." if path.endswith(".sql") else ""
        raise CommandFailure(f"{path} is a file, and a table is a folder.{run}", MISUSED)
    return path


_Table = Annotated[
    str,
    typer.Argument(metavar="TABLE", callback=_folder, help="Use the table in this folder, or at this address."),
]


class Format(str, enum.Enum):
    """The output formats of ``upstream show``."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


@commands.command()
def show(
    table: _Table,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Print at most this many rows; 0 means all.")] = 20,
    where: Annotated[
        str | None,
        typer.Option(
            metavar="SQL", help='Print only rows for which this is true, such as "speed > 10 AND route_id = 7".'
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMNS",
            help="Print these columns, separated by commas.  [dim]\\[default: all of your own][/dim]",
        ),
    ] = None,
    order_by: Annotated[
        str | None, typer.Option(metavar="SQL", help='Sort the rows by this, such as "speed DESC".')
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Include the columns of UpStream itself (_upstream_…, row_key).")
    ] = False,
    output: Annotated[
        Format,
        typer.Option(
            "--format", case_sensitive=False, help="Choose the form of the output; json is one object per line."
        ),
    ] = Format.TABLE,
    option: StorageOptions = None,
) -> None:
    """Print rows of a table, also while a query writes to it.

    [bold]upstream show ./latest --where "speed > 10" --order-by "speed DESC" --limit 5[/bold]
    """
    from .status import show as print_table

    print_table(
        table,
        limit=limit,
        where=where,
        columns=KEY_OPTION.parse(columns) if columns else (),
        order_by=order_by,
        everything=everything,
        output=output.value,
        storage=storage_options(option),
    )


@commands.command()
def check(
    table: _Table,
    source: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Compare with the table's input, as Parquet or a Delta table, and report rows that are newer there.",
        ),
    ] = None,
    option: StorageOptions = None,
) -> None:
    """Check a table: one row per key, in its bucket; files, deletions, log, and counts as recorded.

    The command reads the whole table, a bucket at a time, also while a query writes to it. If anything is wrong, the
    exit code is 1.

    [bold]upstream check ./latest --source 'archive/'[/bold]
    """
    from ..sink.admin.check import check_table

    with progress(f"checking {table}"):
        report = check_table(table, storage=storage_options(option), source=source)
    say = _console()
    say.print(
        f"{report.location}, version {report.version}: {report.rows:,} rows in {report.buckets} buckets, "
        f"{report.files:,} files; {report.tombstones:,} tombstones"
    )
    log = report.log
    checkpoint = "no checkpoint" if log.checkpoint is None else f"checkpoint at version {log.checkpoint}"
    say.print(f"log: from version {log.first}, {checkpoint}, {log.since:,} entries after it", style="dim")
    if report.compared is not None:
        say.print(f"source: {report.compared:,} keys compared", style="dim")
    if report.wanted_buckets is not None:
        say.print(
            f"outgrown: {report.rows // report.buckets:,} rows per bucket, which makes batches slow; "
            f"run `upstream rebucket {table} {report.wanted_buckets}`",
            style="yellow",
        )
    for finding in report.findings:
        say.print(
            f"wrong: {finding.text}" + ("" if finding.mends else "; `upstream repair` cannot repair this"), style="red"
        )
    if not report.healthy:
        if any(finding.mends for finding in report.findings):
            say.print(f"`upstream repair {table} --dry-run` lists the repairs")
        raise typer.Exit(1)
    compared = "" if report.compared is None else ", no row of the source is newer"
    say.print(
        f"ok: one row per key, each in its bucket; files, deletions, log and counts as recorded{compared}",
        style="green",
    )


@commands.command()
def repair(
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE",
            callback=_folder,
            help="Repair the table in this folder, or at this address. First stop the query that writes to it.",
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what the command would do, and change nothing.")
    ] = False,
    orphans: Annotated[
        bool, typer.Option("--orphans", help="Remove files that no version within the retention needs.")
    ] = False,
    retention: Annotated[
        str, typer.Option(metavar="DURATION", help="Remove only files that are older than this.")
    ] = "7 days",
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Remove rows that are not duplicates, too: "
            "those of missing or damaged files, and those older than a deletion.",
        ),
    ] = False,
    option: StorageOptions = None,
) -> None:
    """Repair what [bold]upstream check[/bold] finds, in one commit, and print each change.

    If a key has several rows, the newest row stays. Rows move to their bucket. With --force, missing or damaged files
    leave the table. The output ends with the number of rows before and after, and the version to restore.

    [bold]upstream repair ./latest --dry-run[/bold]
    """
    from ..sink.admin.repair import repair_table

    retention_us = duration(retention, "--retention")
    with progress(f"checking {table}"):
        repairs = repair_table(
            table,
            storage=storage_options(option),
            dry_run=dry_run,
            orphans=orphans,
            retention_us=retention_us,
            force=force,
        )
    say = _console()
    for text in repairs.done:
        say.print(("would be done: " if dry_run else "done: ") + text)
    for text in repairs.left:
        say.print("left: " + text, style="red")
    if not repairs.done and not repairs.left:
        say.print("nothing to repair", style="green")
    else:
        say.print(f"rows: {repairs.rows_before:,} before, {repairs.rows_after:,} after")
        say.print(f"{repairs.location} is at version {repairs.version}", style="dim")
        if repairs.version != repairs.version_before:
            back = f"RESTORE TABLE delta.`{repairs.location}` TO VERSION AS OF {repairs.version_before}"
            say.print(f"to undo: {back}", style="dim")
    if repairs.left:
        raise typer.Exit(1)


@commands.command()
def rebucket(
    table: _Table,
    buckets: Annotated[
        int,
        typer.Argument(metavar="PARTS", min=1, help="Set the number of parts: one for each 500,000 to 1 million keys."),
    ],
    option: StorageOptions = None,
) -> None:
    """Divide a table that has grown into more parts. Readers continue; restart the query that writes to it.

    [bold]upstream rebucket ./latest 64[/bold]
    """
    from ..sink.admin.layout_change import rebucket_table

    with progress(f"dividing {table}"):
        version = rebucket_table(table, buckets, storage=storage_options(option))
    typer.echo(f"{table} has {buckets} buckets since version {version}")


@commands.command("set-history")
def set_history(
    table: _Table,
    rows: Annotated[
        str,
        typer.Argument(
            metavar="HISTORY", help="Keep the newest row of each key, 'latest', or its newest N rows, 'latest N'."
        ),
    ],
    option: StorageOptions = None,
) -> None:
    """Change how many of the newest rows of each key a table keeps.

    If it keeps fewer, the others leave it at once. Readers continue. Restart the query that writes to it, with the new
    [bold]history[/bold].

    [bold]upstream set-history ./latest 'latest 3'[/bold]
    """
    from ..sink.admin.layout_change import change_history

    with progress(f"rewriting {table}"):
        version = change_history(table, rows, storage=storage_options(option))
    typer.echo(f"{table} keeps {rows.strip().lower()} since version {version}")


@commands.command()
def erase(
    table: _Table,
    key: Annotated[
        list[str],
        typer.Option(
            "--key",
            metavar="[COLUMN=]VALUE",
            help="Set the key: one value for each of its columns. For a key of one column, its name is optional.",
        ),
    ],
    output: Annotated[
        list[str] | None,
        typer.Option(
            "--output",
            metavar="TABLE",
            help="Search this dead-letter table, too, which the table's log does not name. Repeatable.",
        ),
    ] = None,
    index_location: Annotated[
        str | None,
        typer.Option(
            "--index-location",
            metavar="FOLDER",
            help="Give the value of the query's option indexLocation, if it is set.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what the command would do, and change nothing.")
    ] = False,
    option: StorageOptions = None,
) -> None:
    """Erase a key for good, with its dead rows, recorded deletions, dead letters, and this machine's index cache.

    The output lists what remains, and until when: earlier versions hold the key until their retention ends. A query can
    write to the table meanwhile.

    [bold]upstream erase ./latest --key 4711 --dry-run[/bold]

    [bold]upstream erase ./latest --key region=eu --key id=4711[/bold]
    """
    from ..sink.admin.erase import erase_key, text_key

    storage, outputs = storage_options(option), output or ()
    with progress(f"erasing from {table}"):
        done = erase_key(
            table,
            *key,
            parse=text_key,
            storage=storage,
            outputs=outputs,
            index_location=index_location,
            dry_run=dry_run,
        )
    say = _console()
    for line in _erasure_lines(done, dry=dry_run):
        say.print(line)


@commands.command()
def maintain(
    table: _Table,
    retention: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Keep a version readable for this long after the next one.  "
            "[dim]\\[default: what the table records][/dim]",
        ),
    ] = None,
    versions: Annotated[
        int | None,
        typer.Option(min=1, help="Keep at most this many versions.  [dim]\\[default: what the table records][/dim]"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what the command would remove, and change nothing.")
    ] = False,
    compact: Annotated[
        bool,
        typer.Option(
            "--compact",
            help="Rewrite each bucket that has small files or dead rows. "
            "A scan is then as fast as that of a new table.",
        ),
    ] = False,
    option: StorageOptions = None,
) -> None:
    """Remove what is past its retention from a table: log entries, data files, and files of failed tasks.

    With the option maintenance=auto, a query does this between its batches. Use the command if its query has that off,
    also while the query runs.

    [bold]upstream maintain ./latest --dry-run[/bold]

    [bold]upstream maintain ./latest --compact[/bold], each night for instance.
    """
    from ..sink.maintenance.runner import maintain_table

    with progress(f"maintaining {table}"):
        done = maintain_table(
            table,
            storage=storage_options(option),
            retention_us=None if retention is None else duration(retention, "--retention"),
            versions=versions,
            dry_run=dry_run,
            compact=compact,
        )
    for line in _maintenance_lines(done, dry=dry_run):
        typer.echo(line)


@commands.command()
def release(
    table: _Table,
    option: StorageOptions = None,
) -> None:
    """Let another query write to a table at once, after you stopped the one that did.

    You need it only if that query ran on another machine, or in a process that is still alive. A query that still runs
    takes the table again with its next batch, or fails if another query has taken it.
    """
    from ..conf.locations import absolute_location
    from ..sink.commit.lease import TableLease
    from ..storage.folder import TableFolder

    taken = TableLease(TableFolder(absolute_location(table), storage_options(option))).release()
    typer.echo("no query held the table" if taken is None else f"released from query {taken.holder}")


@commands.command()
def status(
    table: _Table,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, or one for each query.")] = False,
    prometheus: Annotated[
        bool,
        typer.Option("--prometheus", help="Print metrics for node_exporter's textfile collector, without sums."),
    ] = False,
    option: StorageOptions = None,
) -> None:
    """Print how fresh and how complete a table is, and which query writes it. Needs no Java.

    For the checkpoint of continuous queries, print the queries: state, reason, staleness.

    [bold]upstream status ./latest[/bold]
    """
    from .status import print_prometheus, print_status

    if prometheus:
        print_prometheus(table, storage_options(option))
        return
    print_status(table, as_json=as_json, storage=storage_options(option), console=_console())


@commands.command()
def why(
    table: _Table,
    key: Annotated[
        list[str],
        typer.Argument(
            metavar="[COLUMN=]VALUE…",
            help="Set the key: one value for each of its columns. For a key of one column, its name is optional.",
        ),
    ],
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Read the journal and the reports of this checkpoint.  "
            "[dim]\\[default: the folder beside the table with the query's id][/dim]",
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="Search files for this long. What this leaves out is printed.")
    ] = 0.8,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    option: StorageOptions = None,
) -> None:
    """Explain where a key's row comes from, or why there is none. Needs no Java.

    For a row, it prints the line or message that decided it, and its way in time from the event to the commit. Then
    come superseded updates and earlier versions. For an absent key, it prints the deletion, the queue or the unread
    line, the dead letter, or the condition that dropped it. It also prints what cannot be known, and why.

    [bold]upstream why ./latest 4711[/bold]

    [bold]upstream why ./latest region=eu id=4711 --json[/bold]
    """
    from .why import print_answer

    print_answer(
        table,
        key,
        checkpoint=checkpoint,
        seconds=seconds,
        as_json=as_json,
        storage=storage_options(option),
        console=_console(),
    )


@commands.command("commits")
def list_commits(
    table: _Table,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", "-n", min=0, help="Print at most this many of the last commits; 0 means all in the log."
        ),
    ] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each commit.")] = False,
    option: StorageOptions = None,
) -> None:
    """Print the commits of queries, oldest first: rows, superseded updates, keys, staleness, and completeness.

    [bold]upstream commits ./latest --limit 5[/bold]
    """
    from .status import print_commits

    print_commits(table, limit=limit, as_json=as_json, storage=storage_options(option), console=_console())


@commands.command("set")
def set_controls(
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE", help="Change the query that writes the table in this folder, or that has this checkpoint."
        ),
    ],
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ENTITY.ATTRIBUTE=VALUE]…",
            help="Set these values; 'default' is the value with which the query was started. Without any, print all.",
        ),
    ] = None,
    option: StorageOptions = None,
) -> None:
    """Change settings of a query while it runs, from its next batch on, or print them.

    A queue and a view with one have a budget, a source limits of a batch, the sink a target, a hosted query a weight.
    A batch that is repeated after a crash has the same settings again.

    [bold]upstream set ./latest queue.budget=20000 sink.target='p99 < 10 s'[/bold]
    """
    from .status import print_controls

    print_controls(table, changes or [], storage=storage_options(option), console=_console())


def _erasure_lines(done: Erasure, *, dry: bool) -> list[str]:
    verb = "would be erased" if dry else "erased"
    lines = [
        (
            f"{verb}: {done.rows:,} rows, {done.dead:,} rows marked as dead, "
            f"{done.tombstones:,} tombstones of {done.location}"
        )
    ]
    lines += [f"{verb}: {count:,} rows of {place}" for place, count in done.outputs.items()]
    if not done.outputs:
        lines.append("the log names no dead-letter table; name others with --output")
    if not dry:
        lines.append(f"removed: {done.indexes:,} files of this machine's index cache")
        lines.append(f"{done.location} is at version {done.version}")
    if not done.found:
        lines.append("the key has no current row, dead row, or tombstone")
    for each in done.remains:
        until = "no date" if each.until_us is None else f"until {_time(each.until_us)}"
        lines.append(f"remains, {until}: {each.what} ({each.how})")
    return lines


def _time(micros: int) -> str:
    return dt.datetime.fromtimestamp(micros / 1e6, dt.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def _maintenance_lines(done: MaintenanceResult, *, dry: bool) -> list[str]:
    verb = "would be removed" if dry else "removed"
    lines = [
        f"{done.entries:,} versions {verb} from the log, with {done.files:,} files that only they had",
        f"{done.orphans:,} files {verb} that no version had",
        f"{done.bytes:,} bytes in all, by the log",
    ]
    if done.compacted:
        lines.append(f"{done.compacted:,} files rewritten: merged, and without dead rows")
    if done.held:
        lines.append(f"not more: {done.held}")
    lines.append(f"versions {done.oldest} to {done.version} can be read")
    return lines


def _console() -> Console:
    # Into a pipe goes the whole line, however wide.
    return Console(highlight=False, markup=False, soft_wrap=True, width=None if sys.stdout.isatty() else 10_000)
