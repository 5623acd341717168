"""``upstream queries``: the continuous queries of a checkpoint, with a running job or without. None needs Java."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from ..conf.locations import checkpoint_location
from ..hosting.journal import Change
from .options import StorageOptions, storage_options
from .table_commands import Format

if TYPE_CHECKING:
    from ..hosting.registry import Registry


app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The query's name.")]
_Relation = Annotated[str, typer.Argument(metavar="NAME", help="The relation's name.")]
_Text = Annotated[str, typer.Argument(metavar="QUERY", help="The query; - reads it from standard input.")]
_TimeZone = Annotated[
    str, typer.Option(metavar="ZONE", help="The time zone in which functions of timestamps have their values.")
]
_Weight = Annotated[
    float | None,
    typer.Option(help="How much the freshness of its results counts, compared with the other queries'."),
]


@app.callback()
def _checkpoint(
    context: typer.Context,
    checkpoint: Annotated[
        str, typer.Argument(metavar="CHECKPOINT", help="The checkpoint of the job that runs the queries.")
    ],
) -> None:
    """Change the continuous queries of a checkpoint. A running job takes a change over with its next batch.

    upstream queries ./checkpoint register fast "SELECT * FROM LATEST(buses) WHERE speed > 10"
    """
    context.obj = checkpoint_location(checkpoint)


@app.command(name="list")
def list_queries(
    context: typer.Context,
    output: Annotated[
        Format,
        typer.Option("--format", case_sensitive=False, help="The form of the output; json is one object per line."),
    ] = Format.TABLE,
) -> None:
    """Print the queries, views and relations."""
    from ..conf.units import now_us
    from ..hosting.reports import Reports, listed
    from ..storage.folder import folder_at

    registry = _registry(context)
    frame = listed(registry, Reports(folder_at(context.obj)).read(), now_us())
    if output is Format.CSV:
        sys.stdout.write(frame.write_csv())
        return
    if output is Format.JSON:
        sys.stdout.write(frame.write_ndjson())
        return
    table = Table("query", "weight", "active", "whole from", "staleness", "waiting", "text")
    for name, text, weight, active, reason, whole_from, *ages in frame.rows():
        state = "yes" if active else f"no: {reason}" if reason else "no"
        since = "" if whole_from is None else "the beginning" if whole_from.year == 1 else f"{whole_from:%F %T} UTC"
        shown = ("" if age is None else f"{age:.1f} s" for age in ages)
        table.add_row(name, f"{weight:g}", state, since, *shown, text)
    for name, text in registry.catalog.views.items():
        table.add_row(name, "", "view", "", "", "", text)
    for name, stored in registry.catalog.relations.items():
        table.add_row(name, "", "relation", "", "", "", str(stored.table))
    # Into a pipe goes each text whole.
    width = None if sys.stdout.isatty() else 10_000
    Console(highlight=False, markup=False, width=width).print(table)


@app.command()
def register(
    context: typer.Context,
    name: _Name,
    query: _Text,
    weight: _Weight = 1.0,
    inactive: Annotated[bool, typer.Option("--inactive", help="Do not run the query yet.")] = False,
    buckets: Annotated[int, typer.Option(min=1, help="The number of parts of its table.")] = 1,
    time_zone: _TimeZone = "UTC",
) -> None:
    """Register a query. Its table has its name."""
    from ..expressions.zones import zone_of_session

    zone = zone_of_session(time_zone)
    change = Change("register", name, _read(query), weight=weight, active=not inactive, buckets=buckets, time_zone=zone)
    _record(context, change)


@app.command()
def alter(
    context: typer.Context,
    name: _Name,
    query: Annotated[
        str | None, typer.Argument(metavar="[QUERY]", help="The new text; the query restarts with it.")
    ] = None,
    weight: _Weight = None,
    time_zone: Annotated[
        str | None,
        typer.Option(metavar="ZONE", help="The time zone of the new text. By default the query keeps its own."),
    ] = None,
) -> None:
    """Give a query another text, another weight, or both."""
    from ..expressions.zones import zone_of_session

    text = None if query is None else _read(query)
    zone = None if time_zone is None else zone_of_session(time_zone)
    _record(context, Change("alter", name, text, weight=weight, time_zone=zone))


@app.command()
def activate(context: typer.Context, name: _Name) -> None:
    """Activate a query. It restarts."""
    _record(context, Change("activate", name))


@app.command()
def deactivate(
    context: typer.Context,
    name: _Name,
    reason: Annotated[str | None, typer.Option(help="Why; [bold]list[/bold] prints it.")] = None,
) -> None:
    """Stop a query. Its table stays as it is."""
    _record(context, Change("deactivate", name, reason=reason))


@app.command()
def drop(
    context: typer.Context,
    name: _Name,
    delete_table: Annotated[
        bool, typer.Option("--delete-table", help="Let the job delete its table before its next batch.")
    ] = False,
) -> None:
    """Forget a query. Its table stays as it is, unless it is to be deleted."""
    from ..hosting.edits import drop_query

    registry = drop_query(context.obj, name, delete_table=delete_table)
    typer.echo(f"drop {name}: version {registry.version}")


@app.command()
def view(
    context: typer.Context, name: Annotated[str, typer.Argument(metavar="NAME", help="The view's name.")], query: _Text
) -> None:
    """Create a view."""
    _record(context, Change("view", name, _read(query)))


@app.command()
def drop_view(
    context: typer.Context, name: Annotated[str, typer.Argument(metavar="NAME", help="The view's name.")]
) -> None:
    """Forget a view that no query and no other view names."""
    _record(context, Change("drop_view", name))


@app.command()
def relation(
    context: typer.Context,
    name: _Relation,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The folder or address of a Delta table.")],
    option: StorageOptions = None,
) -> None:
    """Declare a Delta table, as it is now, that queries read."""
    from ..conf.locations import absolute_location
    from ..hosting.edits import declare

    before = _registry(context).version
    registry = declare(context.obj, name, absolute_location(table), storage_options(option))
    _say(before, registry, f"relation {name}")


@app.command()
def refresh(context: typer.Context, name: _Relation, option: StorageOptions = None) -> None:
    """Refresh a relation. The queries that read it restart."""
    from ..hosting.edits import refresh as refresh_relation

    before = _registry(context).version
    _say(before, refresh_relation(context.obj, name, storage_options(option)), f"refresh {name}")


@app.command()
def drop_relation(context: typer.Context, name: _Relation) -> None:
    """Forget a relation that no query and no view names. Its table stays as it is."""
    _record(context, Change("drop_relation", name))


@app.command()
def explain(
    context: typer.Context,
    query: Annotated[
        str,
        typer.Argument(
            metavar="QUERY", help="The name of a query or a view, or the text of a query; - reads standard input."
        ),
    ],
) -> None:
    """Print the plan of a query: its result, its operators, what each keeps, and which queries share it."""
    from ..hosting.shared_parts import explain_among

    typer.echo(explain_among(_read(query), _registry(context)))


def _registry(context: typer.Context) -> Registry:
    from ..hosting.registry import registry_now

    return registry_now(context.obj)


def _record(context: typer.Context, change: Change) -> None:
    from ..hosting.edits import record

    before = _registry(context).version
    _say(before, record(context.obj, change), f"{change.kind.replace('_', ' ')} {change.name}")


def _say(before: int, registry: Registry, done: str) -> None:
    if registry.version == before:
        typer.echo(f"nothing to change: version {registry.version}")
        return
    typer.echo(f"{done}: version {registry.version}")


def _read(query: str) -> str:
    return sys.stdin.read().rstrip() if query == "-" else query
