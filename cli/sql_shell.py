"""The execution of the statements of ``upstream sql``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from ..conf.errors import OptionError
from ..queries.language import bind
from ..queries.placing.results import result_of
from ..queries.registry.listing import text_of
from ..queries.registry.names import known_name
from ..queries.registry.registry import Registered, Registry, registry_now
from .show import cell
from .sql_results import changes, grid, snapshot
from .sql_statements import (
    HELP,
    Activate,
    Alter,
    Create,
    Describe,
    Drop,
    Explain,
    Help,
    Quit,
    Select,
    Statement,
)

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from rich.console import Console

    from ..api.queries import Queries

__all__ = ["Job", "Shell"]

_LOOK_S = 0.2
_MOST_ROWS = 40


class Job(Protocol):
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

    def __init__(self, queries: Queries, console: Console, job: Job) -> None:
        self._queries = queries
        self._console = console
        self._job = job
        self.passing: list[str] = []

    def run(self, statement: Statement) -> bool:
        """Run a statement; return whether to continue after it."""
        match statement:
            case Quit():
                return False
            case Help():
                self._say(HELP)
            case Describe(name):
                self._describe(name)
            case Explain(text):
                self._say(self._queries.explain(text))
            case Create(name, text, True):
                self._queries.view(name, text)
                self._say(f"{name} can be named in queries.")
            case Create(name, text, _, weight, buckets):
                self._queries.register(name, text, weight=weight, buckets=buckets)
                self._job.start()
                self._say(f"{name} is registered. Its table: {self._registered(name).location}")
            case Alter(name, text, weight):
                self._queries.alter(name, text, weight=weight)
                self._say(f"{name} is altered.")
            case Activate(name, active):
                (self._queries.activate if active else self._queries.deactivate)(name)
                self._say(f"{name} is {'active' if active else 'at rest'}.")
            case Drop(name, True):
                self._queries.drop_view(name)
                self._say(f"{name} is dropped.")
            case Drop(name):
                location = self._registered(name).location
                self._queries.drop(name)
                self._say(f"{name} is dropped. Its table stays: {location}")
            case Select(text):
                self._select(text)
        return True

    def look_at(self, name: str, text: str) -> None:
        """Register a query, and show its result whenever it changes, until the job ends or Ctrl-C.

        A terminal shows the whole result. Other output has a line with ``-`` for each removed row, and one with ``+``
        for each added row.
        """
        self._queries.register(name, text)
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
        columns = {column for each in streams for column in each.schema.names}
        return [*(each.name for each in streams), *columns, *registry.catalog.views, *registry.queries]

    def _show(self, name: str) -> None:
        from rich.live import Live

        version, (location, added) = -1, self._table(name)
        most = min(_MOST_ROWS, max(self._console.height - 4, 1))
        with Live(console=self._console, auto_refresh=False, vertical_overflow="crop") as live:
            ending = False
            while not ending:
                ending = self._wait(name)
                found = snapshot(location, version, added)
                if found is not None:
                    version, rows = found
                    live.update(grid(rows, most), refresh=True)

    def _print_changes(self, name: str) -> None:
        version, (location, added) = -1, self._table(name)
        before: pl.DataFrame | None = None
        ending = False
        while not ending:
            ending = self._wait(name)  # before the last look, or what comes between them would be lost
            found = snapshot(location, version, added)
            if found is not None:
                version, rows = found
                if before is None:
                    self._say("  ".join(["", *rows.columns]))
                for sign, row in changes(before, rows):
                    self._say("  ".join([sign, *map(cell, row)]))
                before = rows

    def _select(self, text: str) -> None:
        """Register a query while its result is shown, then drop it."""
        there = {each.lower() for each in self._registry().queries}
        name = next(each for number in range(1, len(there) + 2) if (each := f"select_{number}") not in there)
        try:
            self.look_at(name, text)
        finally:
            if name in self._registry().queries:
                self.passing.append(self._registered(name).location)
                self._queries.drop(name)

    def _describe(self, name: str | None) -> None:
        from rich.table import Table

        registry = self._registry()
        found = Table(box=None, header_style="bold", pad_edge=False)
        if name is None:
            for column in ("name", "kind", "weight", "state", "columns or text"):
                found.add_column(column, overflow="fold")
            for stream in registry.catalog.streams.values():
                kind = "relation" if stream.static else "stream"
                found.add_row(stream.name, kind, "", "", ", ".join(stream.schema.names))
            for view, text in registry.catalog.views.items():
                found.add_row(view, "view", "", "", text)
            for each in registry.queries.values():
                state = "active" if each.active else f"at rest: {each.reason}" if each.reason else "at rest"
                found.add_row(each.name, "query", f"{each.weight:g}", state, each.text)
        else:
            for column in ("column", "type"):
                found.add_column(column)
            for field in self._columns(name):
                found.add_row(field.name, str(field.type))
        self._console.print(found)

    def _columns(self, name: str) -> pa.Schema:
        registry = self._registry()
        stream = registry.catalog.stream(name)
        if stream is not None:
            return stream.schema
        return bind(text_of(name, registry), registry.catalog).plan.schema

    def _registry(self) -> Registry:
        return registry_now(self._queries.checkpoint)

    def _registered(self, name: str) -> Registered:
        queries = self._registry().queries
        return queries[known_name(name, queries, "query")]

    def _table(self, name: str) -> tuple[str, str | None]:
        """Return the location of a query's table, and the column that identifies its rows if the query has none."""
        found = self._registered(name)
        return found.location, result_of(found.query.plan).row_key

    def _wait(self, name: str) -> bool:
        """Wait a little; return whether the job has ended."""
        if self._job.has_ended():
            return True
        time.sleep(_LOOK_S)
        found = self._registered(name)
        if not found.active:
            raise OptionError(
                f"{name} no longer runs: {found.reason or 'it was deactivated'}", expected="a query that runs"
            )
        return False

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)
