"""The jobs that host queries, as the watch finds them: their registries, their last batch, and their tables."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from functools import cached_property
from typing import TYPE_CHECKING

from ..conf.errors import CheckpointError
from ..conf.locations import relation_of_places
from ..storage.folder import TableFolder
from .watch import UnknownNameError

# The modules of hosted queries weigh as much as all others together: a workbench of other tables does without them.
if TYPE_CHECKING:
    from ..hosting.journal import Settings
    from ..hosting.messages import Command
    from ..hosting.registry import RegistryTexts
    from ..language import Catalog
    from .watch import Watch, WatchedTable

__all__ = ["HostedJob", "hosted_jobs", "job_of"]

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

    def runs(self, now_us: int) -> bool:
        """Return whether a process hosts the queries."""
        from ..hosting.host_lease import CheckpointLease

        lease = CheckpointLease(self.folder).read()
        return lease is not None and not lease.has_ended(now_us)

    def query_of(self, table: WatchedTable) -> str:
        """Return the query that writes a table."""
        return os.path.basename(table.location.rstrip("/"))

    def table_of(self, watch: Watch, query: str) -> WatchedTable | None:
        """Return the watched table of a query; None before its first batch."""
        place = self.settings.table_of(self.spelled(query))
        return next((each for each in watch.tables() if each.location.rstrip("/") == place.rstrip("/")), None)


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
    """Return the job of a name, or the one that hosts the query of a table; None for a table of a query of its own.

    Without either it is the first job, if no table is watched. Raises UnknownNameError for an unknown name.
    """
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
