"""Stored relations: changes of the registry that declare or refresh the version of a table."""

from __future__ import annotations

from collections.abc import Mapping

from .editing import record
from .names import known_name
from .registry import Registry, registry_now
from .stored import change_to, pinned

__all__ = ["declare", "refresh"]


def declare(checkpoint: str, name: str, location: str, storage: Mapping[str, str] | None = None) -> Registry:
    """Declare a Delta table's current version as a relation for queries, and return the changed registry.

    A relation of this name over the same table stays as it is, even if the table has changed. `storage` has options of
    the object store beside those of the environment.
    """
    registry = registry_now(checkpoint)
    known = registry.catalog.relations.get(name)
    if known is not None and known.table is not None and known.table.location == location:
        return registry
    return record(checkpoint, change_to(pinned(name, location, storage)))


def refresh(checkpoint: str, name: str, storage: Mapping[str, str] | None = None) -> Registry:
    """Pin a stored relation to its table's current version, and return the changed registry.

    Raises OptionError if there is no such relation or a query that reads it does not fit.
    """
    registry = registry_now(checkpoint)
    name = known_name(name, registry.catalog.relations, "relation")
    table = registry.catalog.relations[name].table
    return registry if table is None else record(checkpoint, change_to(pinned(name, table.location, storage)))
