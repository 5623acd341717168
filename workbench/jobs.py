"""The jobs that host queries, as the watch finds them: their registries, their last batch, and their tables."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from functools import cached_property
from typing import TYPE_CHECKING, cast

from ..conf.errors import CheckpointError, UpstreamError
from ..conf.locations import relation_of_places
from ..storage.folder import TableFolder
from .watch import UnknownNameError

# The modules of hosted queries weigh as much as all others together: a workbench of other tables does without them.
if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from ..hosting.journal import Settings
    from ..hosting.messages import Command
    from ..hosting.registry import RegistryTexts
    from ..language import Catalog
    from ..operators.relations.plan.nodes import Node
    from ..storage.lease import Lease
    from .key_answer import Verdict
    from .watch import Watch, WatchedTable

__all__ = ["HostedJob", "absence_from_query", "hosted_jobs", "job_of"]

_SUFFIX = "_checkpoint"


@dataclasses.dataclass(frozen=True)
class HostedJob:
    """A job that hosts queries, whether it runs or not."""

    name: str  # unique in the watch
    checkpoint: str
    settings: Settings

    @property
    def folder(self) -> TableFolder:
        return TableFolder(self.checkpoint, {})

    @cached_property
    def registered(self) -> tuple[RegistryTexts, Catalog]:
        """The registry without plans, read once, and the names that queries can use."""
        from ..hosting.registry import texts_now

        texts, catalog, _ = texts_now(self.checkpoint)
        return texts, catalog

    def spelled(self, name: str) -> str:
        """Return a query's name as it is registered; raise UnknownNameError."""
        from ..hosting.journal import found

        spelled = found(name, self.registered[0].entries)
        if spelled is None:
            raise UnknownNameError(f"the job {self.name} has no query {name[:100]!r}", expected="a registered query")
        return spelled

    def last_batch(self) -> int:
        """Return the number of the last batch that was planned; -1 before the first."""
        return max((int(each) for each in self.folder.names("offsets") if each.isdigit()), default=-1)

    def last_command(self) -> Command | None:
        """Return the command of the last batch that was planned; None before the first."""
        from ..hosting.messages import command_of_batch

        batch = self.last_batch()
        with contextlib.suppress(CheckpointError, OSError, ValueError):
            return None if batch < 0 else command_of_batch(self.checkpoint, batch)
        return None

    def lease(self) -> Lease | None:
        """Return the newest lease of those who host the queries, even if it has ended."""
        from ..hosting.host_lease import CheckpointLease

        return CheckpointLease(self.folder).newest()

    def runs(self, now_us: int) -> bool:
        """Return whether a process hosts the queries."""
        lease = self.lease()
        return lease is not None and not lease.has_ended(now_us)

    def query_of(self, table: WatchedTable) -> str:
        """Return the query that writes a table."""
        return os.path.basename(table.location.rstrip("/"))

    def table_of(self, watch: Watch, query: str) -> WatchedTable | None:
        """Return the watched table of a query; None before its first batch."""
        place = self.settings.table_of(self.spelled(query))
        found = next((each for each in watch.tables() if each.location.rstrip("/") == place.rstrip("/")), None)
        return None if found is None else watch.shown(found.name)


class _UndecidedError(Exception):
    """A step of a query that a single row does not decide."""


def absence_from_query(table: str, checkpoint: str, newest: pa.Table | None) -> tuple[Verdict, str]:
    """Explain why a hosted query's table lacks a key whose newest row the query has read; None is a deletion."""
    from ..hosting.registry import texts_now
    from ..language import bind

    if newest is None:
        return "deleted", "The newest row of the key is a deletion."
    try:
        texts, catalog, _ = texts_now(checkpoint)
        query = texts.entries[os.path.basename(table.rstrip("/"))]
        kept = _kept(bind(query.text, catalog.in_zone(query.time_zone)).plan, newest)
    except (_UndecidedError, UpstreamError, LookupError, ValueError, TypeError):
        return "waiting", (
            "The query has read a row of the key. A step leaves it out, or holds it until the low-watermark passes: "
            "only conditions on newest rows can be tried again."
        )
    if isinstance(kept, str):
        return "filtered", f"The query leaves out the key's newest row: {kept}."
    return "waiting", "The query has read a row of the key, and a later batch commits it."


def _kept(node: Node, row: pa.Table) -> pl.DataFrame | str:
    """Return what a part of a plan makes of the row, or the condition that drops it."""
    import polars as pl

    from ..operators.relations.operator import computed
    from ..operators.relations.plan.nodes import Latest, Project, Stream, Where, WindowOver

    if isinstance(node, WindowOver) and isinstance(node.window, Latest) and isinstance(node.stream, Stream):
        return cast("pl.DataFrame", pl.from_arrow(row.select(node.schema.names).cast(node.schema)))
    if not isinstance(node, Where | Project):
        raise _UndecidedError
    rows = _kept(node.source, row)
    if isinstance(rows, str):
        return rows
    if isinstance(node, Project):
        made = [computed(each, node.source.schema).series(rows, name) for name, each in node.columns]
        return pl.DataFrame(made)
    condition = computed(node.condition, node.source.schema)
    if condition.series(rows, "holds")[0]:
        return rows
    values = ", ".join(f"{name}={rows[name][0]}" for name in rows.columns if name in condition.columns)
    text = condition.text[1:-1] if condition.text.startswith("(") else condition.text
    return f"{text} does not hold" + (f" for {values}" if values else "")


def hosted_jobs(watch: Watch) -> dict[str, HostedJob]:
    """Return the jobs below the watched locations, by name, in the order in which they were found."""
    jobs: dict[str, HostedJob] = {}
    # `upstream run job.sql --to lake` has its checkpoint beside the folder of its tables.
    folders = [*watch.locations, *(os.path.dirname(each.location) for each in watch.tables())]
    for place in dict.fromkeys(
        [*watch.checkpoints, *watch.locations, *(each.rstrip("/") + _SUFFIX for each in folders)]
    ):
        if not TableFolder(place, {}).has("queries/streams.json"):
            continue
        from ..hosting.journal import Journal

        settings = Journal(place).settings()
        if settings is None:
            continue
        parts = place.rstrip("/").split("/")
        parts[-1] = parts[-1].removesuffix(_SUFFIX) or parts[-1]
        names = ("/".join(parts[-count:]) for count in range(1, len(parts) + 1))
        name = next(each for each in names if each not in jobs)
        jobs[name] = HostedJob(name, place, settings)
    return jobs


def job_of(watch: Watch, name: str | None, table: str | None) -> HostedJob | None:
    """Return the job of a name, or of a table's hosted query, or without tables the first; refuse an unknown name."""
    jobs = hosted_jobs(watch)
    if name is not None:
        if name not in jobs:
            known = ", ".join(map(repr, [*jobs][:10])) or "no job is watched"
            raise UnknownNameError(f"no job that hosts queries is named {name[:100]!r}", expected=known)
        return jobs[name]
    if not watch.tables() and table is None:
        return next(iter(jobs.values()), None)
    location = watch.table(table).location
    return next((each for each in jobs.values() if relation_of_places(location, each.settings.to) == "inside"), None)
