"""Stored relations, declared and refreshed: each is a change of the registry that names the version of a table."""

from __future__ import annotations

from collections.abc import Mapping

from .editing import record
from .names import known_name
from .registry import Registry, registry_now
from .stored import change_to, pinned

__all__ = ["declare", "refresh"]


def declare(checkpoint: str, name: str, location: str, storage: Mapping[str, str] | None = None) -> Registry:
    """Let queries name a Delta table as it is now, and return the registry with that.

    If there is a relation of this name over this table, it stays as it is, whatever the table has become.

    Parameters
    ----------
    checkpoint : str
        The checkpoint of the job that hosts the queries, whether it runs or not.
    name : str
        The relation's.
    location : str
        The table's absolute folder, or its address.
    storage : mapping of str to str, optional
        Options of the object store, beside those of the environment.

    Raises
    ------
    OptionError
        The name cannot be one or is taken, or there is a relation of this name over another table.
    TableError
        There is no table, or it cannot be opened.
    SchemaError
        A column has a type that Spark does not have.
    """
    registry = registry_now(checkpoint)
    known = registry.catalog.relations.get(name)
    if known is not None and known.table is not None and known.table.location == location:
        return registry
    return record(checkpoint, change_to(pinned(name, location, storage)))


def refresh(checkpoint: str, name: str, storage: Mapping[str, str] | None = None) -> Registry:
    """Let queries read a stored relation as its table is now, and return the registry with that.

    Parameters
    ----------
    checkpoint : str
        The checkpoint of the job that hosts the queries, whether it runs or not.
    name : str
        The relation's.
    storage : mapping of str to str, optional
        Options of the object store, beside those of the environment.

    Raises
    ------
    OptionError
        There is no relation of this name, or a query that reads it does not fit.
    TableError
        The table is gone, or cannot be opened.
    """
    registry = registry_now(checkpoint)
    name = known_name(name, registry.catalog.relations, "relation")
    table = registry.catalog.relations[name].table
    return registry if table is None else record(checkpoint, change_to(pinned(name, table.location, storage)))
