"""``upstream sql``: the prompt, the execution of its statements, and the tables that it shows."""

from __future__ import annotations

import collections
import re
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, get_args

from ..conf.errors import OptionError, TableError, UpstreamError
from ..conf.units import length_text, now_us
from ..core.rows.event_times import python_rows
from ..hosting.edits import readers_of, record
from ..hosting.job_file import created
from ..hosting.journal import Change, known_name
from ..hosting.registry import RegisteredQuery, Registry, registry_now, text_of
from ..hosting.reports import Reports, completeness, view_backlogs
from ..language import bind, statements
from ..storage.folder import TableFolder, folder_at
from .status import cell

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from rich.console import Console, RenderableType

    from ..api.queries import Queries


_NAN = float("nan")

Snapshot = tuple[int, "pl.DataFrame"]
"""A version of a table, and its rows."""

Changes = list[tuple[str, tuple[Any, ...]]]
"""``-`` and a removed row, or ``+`` and an added one."""


def snapshot(location: str, after: int) -> Snapshot | None:
    """Return the newest version of a table and its rows; None if no version is newer than `after`."""
    from ..delta_format.scan import open_table, scan_columns

    try:
        table = open_table(location)
    except TableError:
        return None  # its query has had no batch yet
    if table.version() <= after:
        return None
    return table.version(), scan_columns(table, None).collect()


def changes(before: pl.DataFrame | None, after: pl.DataFrame) -> Changes:
    """Return the removed rows, then the added ones, each as often as it changed, in a fixed order."""
    had = (
        collections.Counter() if before is None else collections.Counter(_hashable(row) for row in python_rows(before))
    )
    has = collections.Counter(_hashable(row) for row in python_rows(after))
    gone = sorted((had - has).elements(), key=_order)
    come = sorted((has - had).elements(), key=_order)
    return [*(("-", row) for row in gone), *(("+", row) for row in come)]


def grid(rows: pl.DataFrame, most: int) -> RenderableType:
    """Return a table for a terminal, with at most so many rows."""
    from rich.console import Group
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for name, kind in rows.schema.items():
        table.add_column(name, justify="right" if kind.is_numeric() else "left", overflow="fold")
    ordered = sorted(python_rows(rows), key=_order)
    for row in ordered[:most]:
        table.add_row(*map(cell, row))
    return Group(table, f"{most:,} of {len(ordered):,} rows") if len(ordered) > most else table


def _hashable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(_plain(value) for value in row)


def _plain(value: Any) -> Any:
    """Return a hashable form of a value, which is one and the same object for each NaN."""
    if isinstance(value, (list, dict)):
        return cell(value)
    return _NAN if _is_nan(value) else value


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value  # noqa: PLR0124 what NaN is


def _order(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a sort key: nulls come first, and NaN last."""
    return tuple((0,) if value is None else (2,) if _is_nan(value) else (1, _plain(value)) for value in row)


def _definitions(registry: Registry, checkpoint: TableFolder) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield the name, kind, weight, state, and columns or text of everything."""
    reports, queues, now = Reports(checkpoint).read(), view_backlogs(checkpoint, registry), now_us()
    for stream in registry.catalog.streams.values():
        yield stream.name, "table" if stream.static else "source", "", "", ", ".join(stream.schema.names)
    for function, text in registry.catalog.functions.items():
        yield function, "function", "", "", text
    for view, text in registry.catalog.views.items():
        yield view, "view", "", "", text
    for query in registry.queries.values():
        state = "active" if query.active else f"paused: {query.reason}" if query.reason else "paused"
        if query.id in reports and reports[query.id].late:
            state += f"; complete from {completeness(reports[query.id])}"
        state += f"; {queues[query.id].text(now)}" if query.id in queues else ""
        yield query.name, "materialized view", f"{query.weight:g}", state, query.text


_LOOK_S = 0.2
_MOST_ROWS = 40


class ShellJob(Protocol):
    """The job that hosts the queries."""

    def start(self) -> None:
        """Start the job if it does not run."""

    def has_ended(self) -> bool:
        """Return whether the job has ended; raise its error if it failed."""
        ...


class Shell:
    """An interpreter of statements, with the registry of queries and the job that hosts them.

    `passing` has the tables of queries run by SELECT, which can be removed after the job has stopped.
    """

    def __init__(
        self,
        queries: Queries,
        console: Console,
        job: ShellJob,
        define_source: Callable[[statements.CreateSource], object],
        notes: Console | None = None,  # where it is written what a statement did, if not among the results
    ) -> None:
        self._queries, self._define_source = queries, define_source
        self._note = partial((notes or console).print, markup=False, highlight=False)
        self._console = console
        self._job = job
        self.passing: list[str] = []

    def run(self, statement: statements.Statement) -> bool:
        """Run a statement; return whether to continue after it."""
        if not isinstance(statement, statements.Create | statements.CreateSource | statements.CreateTable):
            return self._run(statement)
        before = self._registry().version
        going = self._run(statement)
        # A query that was there with this text stays as it is, also its weight.
        if isinstance(statement, statements.CreateSource) or self._registry().version > before:
            record(self._queries.checkpoint, Change("statement", statement.name, statement.statement))
        return going

    def _run(self, statement: statements.Statement) -> bool:
        match statement:
            case statements.Quit():
                return False
            case statements.Help():
                self._say(statements.HELP)
            case statements.Describe(name) | statements.Show(name):
                self._describe(name)
            case statements.Explain(text):
                self._say(self._queries.explain(text))
            case statements.CreateSource(name):
                self._define_source(statement)
                self._note(f"Created source {name}.")
            case statements.CreateFunction(name):
                record(self._queries.checkpoint, Change("function", name, statement.statement))
                self._note(f"Created function {name}.")
            case statements.CreateTable(name, path):
                self._queries.table(name, path)
                self._note(f"Created table {name}, at its present version.")
            case statements.Refresh(name):
                self._queries.refresh(name)
                self._note(f"Refreshed table {name}.")
            case statements.ShowCreate(name):
                self._say(created(name, self._registry()))
            case statements.Create(name, text, True):
                self._queries.create_view(name, text)
                self._note(f"Created view {name}.")
            case statements.Create(name, text, _, weight, buckets, lateness, queue):
                late = length_text(lateness) if lateness else None
                policy, budget = queue.get("queue"), queue.get("budget")
                self._queries.create(
                    name, text, weight=weight, buckets=buckets, lateness=late,
                    queue=policy, budget=budget,
                    access_interval=queue.get("access_interval"), key_weight=queue.get("key_weight"),
                )  # fmt: skip
                self._job.start()
                self._note(f"Created materialized view {name}. Its table: {self._registered(name).location}")
            case statements.Alter():
                self._alter(statement)
            case statements.Drop():
                self._drop(statement)
            case statements.Select(text):
                self._select(text)
        return True

    def _alter(self, statement: statements.Alter) -> None:
        name = statement.name
        if statement.active:
            self._queries.activate(name)
            self._note(f"Resumed {name}.")
        elif statement.active is False:
            self._queries.deactivate(name, keep_state=statement.keep_state)
            self._note(f"Paused {name}{' and kept its state' if statement.keep_state else ''}.")
        else:
            self._queries.alter(name, statement.text, weight=statement.weight, budget=statement.budget)
            self._note(f"Altered {name}.")

    def look_at(self, name: str, text: str) -> None:
        """Register a query, and show its result whenever it changes, until the job ends or Ctrl-C.

        A terminal shows the whole result. Other output has a line with ``-`` for each removed row, and one with ``+``
        for each added row.
        """
        self._queries.create(name, text)
        try:
            self._job.start()
            if self._console.is_terminal:
                self._show(name)
            else:
                self._print_changes(name)
        except KeyboardInterrupt:
            self._say("")

    def names(self) -> list[str]:
        """Return all names that queries and statements can use now."""
        registry = self._registry()
        streams = registry.catalog.streams.values()
        columns = {column for stream in streams for column in stream.schema.names}
        return [*registry.catalog.names(), *registry.catalog.functions, *columns, *registry.queries]

    def _show(self, name: str) -> None:
        from rich.live import Live

        version, location = -1, self._registered(name).location
        most = min(_MOST_ROWS, max(self._console.height - 4, 1))
        with Live(console=self._console, auto_refresh=False, vertical_overflow="crop") as live:
            live.update("waiting for the first result", refresh=True)
            ending = False
            while not ending:
                ending = self._wait(name)
                found = snapshot(location, version)
                if found is not None:
                    version, rows = found
                    live.update(grid(rows, most), refresh=True)

    def _print_changes(self, name: str) -> None:
        version, location = -1, self._registered(name).location
        before: pl.DataFrame | None = None
        ending = False
        while not ending:
            ending = self._wait(name)  # before the last look, or what comes between them would be lost
            found = snapshot(location, version)
            if found is not None:
                version, rows = found
                if before is None:
                    self._say("  ".join(["", *rows.columns]))
                for sign, row in changes(before, rows):
                    self._say("  ".join([sign, *map(cell, row)]))
                before = rows

    def _select(self, text: str) -> None:
        """Register a query while its result is shown, then drop it."""
        there = {name.lower() for name in self._registry().queries}
        name = next(free for number in range(1, len(there) + 2) if (free := f"select_{number}") not in there)
        try:
            self.look_at(name, text)
        finally:
            if name in self._registry().queries:
                self.passing.append(self._registered(name).location)
                self._queries.drop(name)

    def _drop(self, statement: statements.Drop) -> None:
        kind, name = statement.kind, statement.name
        if kind == "SOURCE":
            raise OptionError(
                "the sources of a job are fixed", expected="a view or a table", hint="begin a job in another folder"
            )
        if kind == "MATERIALIZED VIEW":
            location = self._registered(name).location
            self._queries.drop(name, delete_table=statement.purge)
            self._note(f"Dropped {name}. Its table {'goes' if statement.purge else 'stays'}: {location}")
            return
        if statement.cascade:
            for reader_kind, reader in readers_of(name, self._registry()):
                self._drop(statements.Drop(reader_kind, reader))
        if kind == "FUNCTION":
            record(self._queries.checkpoint, Change("drop_function", name))
        else:
            (self._queries.drop_view if kind == "VIEW" else self._queries.drop_table)(name)
        self._note(f"Dropped {name}.")

    def _describe(self, name: str | None) -> None:
        from rich.table import Table

        registry = self._registry()
        table = Table(box=None, header_style="bold", pad_edge=False)
        if name is None or name in get_args(statements.Kind):
            for column in ("name", "kind", "weight", "state", "columns or text"):
                table.add_column(column, overflow="fold")
            for row in _definitions(registry, folder_at(self._queries.checkpoint)):
                if name in (None, row[1].upper()):
                    table.add_row(*row)
        else:
            for column in ("column", "type"):
                table.add_column(column)
            for field in self._columns(name):
                table.add_row(field.name, str(field.type))
        self._console.print(table)

    def _columns(self, name: str) -> pa.Schema:
        registry = self._registry()
        stream = registry.catalog.stream(name)
        if stream is not None:
            return stream.schema
        function = registry.catalog.function(name)
        if function is not None:
            return function.schema
        return bind(text_of(name, registry), registry.catalog).plan.schema

    def _registry(self) -> Registry:
        return registry_now(self._queries.checkpoint)

    def _registered(self, name: str) -> RegisteredQuery:
        queries = self._registry().queries
        return queries[known_name(name, queries, "query")]

    def _wait(self, name: str) -> bool:
        """Wait a little; return whether the job has ended."""
        if self._job.has_ended():
            return True
        time.sleep(_LOOK_S)
        query = self._registered(name)
        if not query.active:
            raise OptionError(
                f"{name} no longer runs: {query.reason or 'it was deactivated'}", expected="a query that runs"
            )
        return False

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)


Lines = Callable[[str], str]
"""Reads a line after a prompt; raises EOFError at the end, and KeyboardInterrupt on Ctrl-C."""

_FIRST, _NEXT = "upstream=> ", "upstream-> "
_WORDS = re.findall(
    r"\w+",
    "SELECT FROM WHERE GROUP BY HAVING QUALIFY ORDER LIMIT JOIN LEFT RIGHT FULL ON AS AND OR NOT IN EXISTS BETWEEN "
    "CASE  WHEN THEN ELSE END DISTINCT UNION EXCEPT INTERSECT ALL WITH RANGE ROWS SLIDE PARTITION NOW UNBOUNDED "
    "LATEST HOP TUMBLE SESSION ISTREAM DSTREAM RSTREAM EMIT CHANGES WINDOW CLOSE PERIODIC INTERVAL SECONDS MINUTES "
    "HOURS DAYS SAMPLE  COUNT SUM AVG MIN MAX CREATE MATERIALIZED VIEW ALTER SET DROP PURGE PAUSE "
    "KEEP STATE RESUME EXPLAIN",
)


def completions(begun: str, names: Iterable[str]) -> list[str]:
    """Return the words of the language (in the case begun) and the names that complete the beginning of a word."""
    words = _WORDS if begun[:1].isupper() else [word.lower() for word in _WORDS]
    every = [*names, *words]
    return sorted({word for word in every if begun and word.lower().startswith(begun.lower())})


def converse(shell: Shell, lines: Lines, complain: Callable[[UpstreamError], object]) -> None:
    """Run typed statements until the end or ``quit``, reporting errors. Ctrl-C discards an unfinished statement."""
    buffer = ""
    while True:
        try:
            buffer += lines(_NEXT if buffer else _FIRST) + "\n"
        except EOFError:
            return
        except KeyboardInterrupt:
            buffer = ""
            continue
        statement_texts, buffer = statements.split(buffer)
        for text in statement_texts:
            try:
                if not shell.run(statements.parse(text)):
                    return
            except UpstreamError as error:
                complain(error)
                buffer = ""
                break


def terminal(names: Callable[[], Iterable[str]]) -> Lines:
    """Return a prompt for a terminal, with history and completion of `names` if this Python has readline."""
    try:
        import readline
    except ImportError:  # not on every platform
        return input

    def complete(begun: str, state: int) -> str | None:
        endings = completions(begun, names())
        return endings[state] + " " if state < len(endings) else None

    readline.set_completer(complete)
    readline.set_completer_delims(re.sub(r"[\w-]", "", readline.get_completer_delims()))
    readline.parse_and_bind("tab: complete")
    return input
