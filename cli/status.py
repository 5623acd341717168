"""``upstream status``, ``commits`` and ``show``: commits and rows of a table, without a JVM."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..conf.errors import TableError, UpstreamError
from ..conf.units import format_duration_us, now_us
from ..core.rows.event_times import python_rows
from ..sink.figures.dead_letters import letter_folders, shown_letters
from ..sink.figures.waits import bound_text, complete_to, feed_lines
from .failures import MISUSED, CommandFailure
from .live import how_rows_came, short_count

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console

    from ..core.feedback.offsets import SourceCounts
    from ..sink.figures.summary import CommitSummary
    from ..storage.folder import TableFolder


# The commits that are read to find how long a feed has held the others back.
_LOOK_BACK = 100


def commit_line(version: int, summary: CommitSummary) -> str:
    """Return a commit as a line of JSON: the table's version, and the fields of its summary."""
    return _json({"version": version, **summary.to_json()})


def recent_commits(path: str, version: int, storage: Mapping[str, str]) -> list[tuple[int, CommitSummary]]:
    """Return the last commits of queries up to a version, oldest first.

    If none of the last hundred commits is a query's, the whole log is searched.
    """
    from ..sink.figures.summary import read_summaries

    return read_summaries(path, max(version - _LOOK_BACK, -1), storage) or read_summaries(path, -1, storage)


def print_commits(path: str, *, limit: int, as_json: bool, storage: Mapping[str, str], console: Console) -> None:
    """Print the last `limit` commits of queries, oldest first; 0 prints all that the log has."""
    from ..delta_format.scan import open_table
    from ..sink.figures.summary import read_summaries

    open_table(path, storage)
    commits = read_summaries(path, -1, storage)[-limit:]
    if as_json:
        for version, summary in commits:
            console.out(commit_line(version, summary), highlight=False)
        return
    from rich.table import Table

    grid = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("version", "committed", "batch", "rows", "applied", "superseded", "keys", "staleness p50", "p99"):
        grid.add_column(name, justify="left" if name == "committed" else "right", no_wrap=True)
    grid.add_column("complete to", no_wrap=True)
    for version, summary in commits:
        grid.add_row(*_cells(version, summary))
    console.print(grid)
    if not commits:
        console.print("The log has no commit of a query.", style="dim")


def print_controls(path: str, changes: Sequence[str], *, storage: Mapping[str, str], console: Console) -> None:
    """Make changes of a query's settings, or print the settings if there are none."""
    import getpass

    from ..workbench.control import control_tables

    tables = control_tables(path, storage)
    for text in changes:
        name, sign, value = (part.strip() for part in text.partition("="))
        entity, dot, attribute = name.rpartition(".")
        if not (sign and dot):
            raise CommandFailure(f"{text!r} is not ENTITY.ATTRIBUTE=VALUE, such as queue.budget=20000", MISUSED)
        given = None if value == "default" else value
        found = tables.change(entity, attribute, given, by=getpass.getuser())
        (now,) = (each for each in found["attributes"] if each["name"] == attribute)
        change = now["changed"]
        if change is None:
            console.print(f"{found['id']}.{attribute} is {now['value']}: nothing changed")
            continue
        console.print(
            f"{found['id']}.{attribute}: {_setting(change['before'])} -> {_setting(change['after'])}, "
            "from the next batch on"
        )
    if changes:
        return
    from rich.table import Table

    grid = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("attribute", "value", "changes", "last change, or why not"):
        grid.add_column(title, no_wrap=True)
    for entity in tables.to_json()["entities"]:
        for each in entity["attributes"]:
            unit = "" if each["value"] == "none" else each["unit"]
            value = "" if each["value"] is None else f"{each['value']} {unit}".strip()
            grid.add_row(
                f"{entity['id']}.{each['name']}", value, each["mode"], _last_change(each["changed"]) or each["why"]
            )
    console.print(grid)


def _setting(value: object) -> str:
    return "default" if value is None else str(value)


def _last_change(change: Mapping[str, Any] | None) -> str:
    if change is None:
        return ""
    taken, by = change["taken"], change["by"] and f" by {change['by']}"
    since = "" if taken is None else f" since batch {taken['batch']}"
    return f"{_setting(change['before'])} -> {_setting(change['after'])}{by}{since}"


def print_status(path: str, *, as_json: bool, storage: Mapping[str, str], console: Console) -> None:
    """Print how fresh and how complete a table is, and its writer; or the queries of a checkpoint."""
    from ..conf.locations import absolute_location
    from ..delta_format.scan import open_table
    from ..hosting.host_lease import writer_lease
    from ..hosting.journal import Journal
    from ..sink.figures.freshness import JournaledBatch, freshness
    from ..storage.folder import TableFolder
    from ..workbench.condition import process_loss
    from ..workbench.watch import checkpoint_of

    location, now = absolute_location(path), now_us()
    try:
        table = open_table(path, storage)
    except TableError:
        if Journal(location).settings() is None:
            raise
        _print_queries(location, as_json=as_json, storage=storage, console=console)
        return
    commits = recent_commits(path, table.version(), storage)
    last = commits[-1][1] if commits else None
    query, folder = "" if last is None else last.query_id, TableFolder(location, storage)
    checkpoint = checkpoint_of(folder, query) if query else None
    lease = writer_lease(folder, checkpoint)
    writer = None if lease is None or lease.has_ended(now) else lease.holder
    journal = JournaledBatch.read(TableFolder(checkpoint, storage)) if checkpoint is not None else None
    fresh = freshness([each for _, each in commits], journal, now, is_written=writer is not None)
    if as_json:
        found: dict[str, Any] = {"table": path, "version": table.version(), "writer": writer, "last_commit": None}
        if last is not None:
            found["last_commit"] = {"version": commits[-1][0], **last.to_json()}
            found["since_commit_s"] = (now - last.committed_at_us) / 1e6
        if fresh is not None:
            found |= fresh.to_json()
        console.out(_json(found), highlight=False)
        return
    lost = "" if lease is None or lease.released or writer is not None else f": {process_loss(lease, now)}"
    console.print(f"{path}, version {table.version()}: {_written_by(writer, query, checkpoint)}{lost}")
    if last is None or fresh is None:
        console.print("The log has no commit of a query.")
        return
    console.print("; ".join(each for each in (fresh.stale_text, fresh.batch_text, fresh.target_text) if each))
    ago = format_duration_us(fresh.since_commit_us)
    keys = "" if last.keys is None else f"{last.keys:,} keys; "
    console.print(f"{keys}complete to {complete_to(last)}; last commit {ago} ago, batch {last.batch_id}")
    console.print(", ".join([_applied(last), *how_rows_came(last.sources)]))
    for line in feed_lines([summary for _, summary in commits]):
        console.print(line, style="dim")
    if last.sources is not None and last.sources.hint:
        console.print(last.sources.hint)
    print_letters(console, letter_folders(location, checkpoint, storage))


def print_letters(console: Console, folders: Sequence[TableFolder]) -> None:
    """Print how many rows are dead letters, the first reason, and where they are; nothing if there are none."""
    if text := shown_letters(folders).text:
        console.print(text, markup=False, soft_wrap=True)


def print_prometheus(path: str, storage: Mapping[str, str]) -> None:
    """Print the metrics of a table, or of the tables in a folder, in Prometheus's text format.

    A process that ends has no sums, so counters over commits are left out.
    """
    from ..workbench.exposition import text
    from ..workbench.metrics import MetricsCollector
    from ..workbench.watch import Watch

    watch = Watch([path], storage)
    watch.refresh()
    found = MetricsCollector(watch, None).families(now_us())
    if not found:
        raise CommandFailure(f"There is no table at {path} that a query has written.")
    sys.stdout.write(text(found).decode())


def _print_queries(checkpoint: str, *, as_json: bool, storage: Mapping[str, str], console: Console) -> None:
    import polars as pl
    from rich.table import Table

    from ..core.feedback.offsets import journaled_counts, noted_batches
    from ..hosting.registry import registry_now
    from ..hosting.reports import Reports, completeness, listed, view_backlogs
    from ..storage.folder import TableFolder

    folder, now = TableFolder(checkpoint, storage), now_us()
    registry, reports = registry_now(checkpoint), Reports(folder).read()
    frame, queues = listed(registry, reports, now), view_backlogs(folder, registry)
    if as_json:
        found = [queue and queue.to_json(now) for queue in (queues.get(each.id) for each in registry.queries.values())]
        frame = frame.with_columns(queue=pl.Series(found)) if queues else frame
        console.out(frame.write_ndjson(), end="", highlight=False)
        return
    table = Table("query", "weight", "active", "complete from", "staleness", "waiting", "text", box=None)
    for name, text, weight, active, reason, _, _, staleness, committed_at, waiting in frame.rows():
        state = "yes" if active else f"no: {reason}" if reason else "no"
        since = completeness(reports.get(registry.queries[name].id))
        age = "" if staleness is None else f"{staleness:.1f} s"
        if age and committed_at is not None:
            age += f", {format_duration_us(max(now_us() - committed_at.timestamp() * 1e6, 0))} ago"
        table.add_row(name, f"{weight:g}", state, since, age, "" if waiting is None else f"{waiting:.1f} s", text)
    console.print(table)
    for each in registry.queries.values():
        if each.id in queues:
            console.print(f"{each.name}: {queues[each.id].text(now)}")
    last = max(noted_batches(folder, "commits"), default=None)
    if last is not None:
        print_counts(console, journaled_counts(folder, last))
    print_letters(console, letter_folders(None, checkpoint, storage))


def print_counts(console: Console, counts: SourceCounts | None) -> None:
    """Print how many rows of a job's sources came late, and what became of them; then the hint on suspect rows."""
    if counts is not None and counts.late:
        console.print(
            f"{counts.late:,} of {counts.received:,} rows came late: LATEST keeps the newer row of a key, and windows "
            "that have closed leave them out.",
            soft_wrap=True,
        )
    if counts is not None and counts.hint:
        console.print(counts.hint, markup=False, soft_wrap=True)


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)


def _written_by(writer: str | None, query: str, checkpoint: str | None) -> str:
    if writer is None:
        return "no query writes it"
    return f"the job of {checkpoint} writes it" if "/" in query else f"query {writer} writes it"


def _applied(summary: CommitSummary) -> str:
    said = [f"{summary.applied:,} keys changed, {summary.superseded:,} updates superseded"]
    if summary.staleness is not None:
        p50, p99 = (format_duration_us(each * 1e6) for each in (summary.staleness.p50, summary.staleness.p99))
        said.append(f"staleness at this commit p50 {p50}, p99 {p99}")
    if summary.pending is not None:
        oldest = "" if summary.oldest is None else f", the oldest for {format_duration_us(summary.oldest * 1e6)}"
        said.append(f"{short_count(summary.pending)} waiting{oldest}")
    return ", ".join(said)


def _cells(version: int, summary: CommitSummary) -> list[str]:
    import datetime as dt

    at = dt.datetime.fromtimestamp(summary.committed_at_us / 1e6, dt.timezone.utc).isoformat(timespec="milliseconds")
    ages = summary.staleness
    return [
        f"{version:,}",
        bound_text(at.removesuffix("+00:00") + "Z"),
        f"{summary.batch_id:,}",
        f"{summary.rows:,}",
        f"{summary.applied:,}",
        f"{summary.superseded:,}",
        "" if summary.keys is None else f"{summary.keys:,}",
        "" if ages is None else format_duration_us(ages.p50 * 1e6),
        "" if ages is None else format_duration_us(ages.p99 * 1e6),
        complete_to(summary),
    ]


FORMATS = ("table", "csv", "json")


def show(
    path: str,
    *,
    limit: int,
    where: str | None,
    columns: Sequence[str],
    order_by: str | None,
    everything: bool,
    output: str,
    storage: dict[str, str],
) -> None:
    """Print rows of a table.

    A `limit` of 0 prints all rows. `where` and `order_by` are SQL. Without `columns`, all of the user's are printed;
    `everything` adds the package's own. An SQL or column that does not fit raises a Failure.
    """
    import polars as pl

    from ..delta_format.scan import open_table, scan_table, users_columns
    from ..workbench.table_view import matching as matching_rows
    from ..workbench.table_view import ordered

    table = open_table(path, storage)
    frame = scan_table(table)
    names = frame.collect_schema().names()
    wanted = list(columns) or (names if everything else users_columns(table, names))
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise CommandFailure(f"The table has no column {', '.join(unknown)}. It has {', '.join(names)}.", MISUSED)
    try:
        matching = frame if where is None else matching_rows(frame, where)
        found = int(matching.select(pl.len()).collect().item())
        if order_by is not None:
            matching = ordered(matching, order_by)
    except UpstreamError as error:
        raise CommandFailure(str(error), MISUSED) from error
    rows = (matching if limit == 0 else matching.head(limit)).select(wanted).collect()
    if output == "csv":
        rows.with_columns(_flat(rows)).write_csv(sys.stdout)
    elif output == "json":
        rows.write_ndjson(sys.stdout.buffer)
    else:
        _print(rows, found, path, table.version(), storage)


def _print(rows: pl.DataFrame, found: int, path: str, version: int, storage: dict[str, str]) -> None:
    from rich.console import Console
    from rich.table import Table

    # Into a pipe, a column is as wide as it must be.
    console = Console(width=None if sys.stdout.isatty() else 10_000, soft_wrap=not sys.stdout.isatty())
    grid = Table(box=None, header_style="bold", pad_edge=False)
    for name, kind in rows.schema.items():
        grid.add_column(name, justify="right" if kind.is_numeric() else "left", overflow="fold")
    for row in python_rows(rows):
        grid.add_row(*map(cell, row))
    console.print(grid)
    summaries = [each for _, each in recent_commits(path, version, storage)]
    facts = [f"complete to {complete_to(summaries[-1])}", *how_rows_came(summaries[-1].sources)] if summaries else []
    console.print(", ".join([f"{len(rows):,} of {found:,} rows; version {version}", *facts]), style="dim")
    for line in feed_lines(summaries):
        console.print(line, style="dim", highlight=False)


def cell(value: Any) -> str:
    """Return a value as text; empty for null."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, (list, dict)):
        return json.dumps(value, default=str, ensure_ascii=False)
    return str(value)


def _flat(rows: pl.DataFrame) -> list[pl.Expr]:
    """Replace lists and structs by JSON text, because CSV has neither."""
    import polars as pl

    return [
        pl.col(name).map_elements(cell, return_dtype=pl.String)
        for name, kind in rows.schema.items()
        if kind.is_nested()
    ]
