"""Queries that are dropped with their tables, which the job deletes when the queries no longer run."""

from __future__ import annotations

import logging

from ..conf.errors import CheckpointError, UpstreamError
from ..sink.commit.last_commit import read_query_id
from ..sink.results.deletion import delete_table as delete_result
from ..sink.results.deletion import refuse_foreign
from ..storage.folder import folder_at
from .registry.changes import Change, known_name
from .registry.edits import record
from .registry.registry import Registry, registry_now

_LOG = logging.getLogger("upstream.queries")

Options = tuple[tuple[str, str], ...]


def drop_query(checkpoint: str, name: str, *, delete_table: bool = False, options: Options = ()) -> Registry:
    """Drop a query, and have the job delete its table if `delete_table` is set.

    Raises OptionError if there is no such query, and TableError if the table to delete is not the query's own.
    """
    if not delete_table:
        return record(checkpoint, Change("drop", name))
    registry = registry_now(checkpoint)
    spelled = known_name(name, registry.queries, "query")
    refuse_foreign(registry.settings.table_of(spelled), spelled, _host(checkpoint), options)
    return record(checkpoint, Change("drop", spelled, delete_table=True))


def _host(checkpoint: str) -> str | None:
    """Return the streaming query's id; None if it has never run."""
    folder = folder_at(checkpoint)
    try:
        return read_query_id(folder)
    except CheckpointError:
        if folder.has("metadata"):
            raise
        return None


class DroppedTables:
    """Deletes the tables of dropped queries on the driver, each once per process."""

    def __init__(self, options: Options = ()) -> None:
        self._options = options
        self._done: dict[str, int] = {}

    def delete(self, registry: Registry, host: str) -> None:
        """Delete the tables that a registry marks as deleted; warn about those that cannot be deleted.

        The registry is that of the batch that begins, so no running batch writes to these tables. `host` is the
        streaming query's id.
        """
        for name, version in registry.deleted.items():
            if self._done.get(name) == version:
                continue
            self._done[name] = version
            location = registry.settings.table_of(name)
            try:
                if delete_result(location, name, host, version, self._options):
                    _LOG.info("deleted the table of the query %s, which was dropped: %s", name, location)
            except (UpstreamError, OSError) as error:
                _LOG.warning("the table of the query %s, which was dropped, stays: %s", name, error)
