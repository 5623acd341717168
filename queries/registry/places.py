"""Checks that tables of queries are apart from checkpoints, sources of streams, and stored relations."""

from __future__ import annotations

from collections.abc import Iterable

from ...conf.errors import OptionError
from ...conf.locations import Place, check_apart, relation_of_places
from .changes import Change
from .registry import Registry
from .stored import relation_of

__all__ = ["check_change", "check_folder", "check_stream", "check_tables"]


def check_folder(to: str, others: Iterable[Place]) -> None:
    """Raise OptionError if a folder of tables is at or inside another place, as all its tables would be."""
    for other, there in others:
        if relation_of_places(to, there) in ("at", "inside"):
            check_apart([("to", to)], [(other, there)])


def check_stream(name: str, paths: Iterable[str], registry: Registry) -> None:
    """Raise OptionError if a stream's sources read where tables of queries are or may be."""
    inputs = _inputs(name, paths)
    check_folder(registry.settings.to, inputs)
    for each in registry.queries:
        check_apart([_table(each, registry)], inputs)


def check_tables(registry: Registry, checkpoint: str, inputs: Iterable[Place], aside: Iterable[Place]) -> None:
    """Raise OptionError if a table of a job overlaps the checkpoint, the streams' sources, or rows set aside."""
    known = [("the checkpoint", checkpoint), *inputs, *aside]
    check_folder(registry.settings.to, known)
    for each in registry.queries:
        check_apart([_table(each, registry)], known)


def check_change(change: Change, registry: Registry, checkpoint: str) -> None:
    """Raise OptionError if a change puts a table where other files are, or deletes a relation's table."""
    if change.kind == "register":
        known = [("the checkpoint", checkpoint), *_relations(registry)]
        for name, paths in registry.settings.inputs:
            known += _inputs(name, paths)
        check_apart([_table(change.name, registry)], known)
    elif change.kind == "relation" and (table := relation_of(change).table) is not None:
        # A relation may be a query's table, but a table cannot be inside another one.
        for each in registry.queries:
            name, place = _table(each, registry)
            if relation_of_places(place, table.location) != "at":
                check_apart([(name, place)], [(f"the relation '{change.name}'", table.location)])
    elif change.kind == "drop" and change.delete_table:
        _, place = _table(change.name, registry)
        users = [name for name, there in _relations(registry) if relation_of_places(place, there)]
        if users:
            raise OptionError(
                f"the table of the query '{change.name}' is to be deleted, and it is that of {users[0]}",
                expected="a table that no relation reads",
                hint="drop the relation first, or drop the query without its table",
            )


def _table(query: str, registry: Registry) -> Place:
    return f"the table of the query '{query}'", registry.settings.table_of(query)


def _inputs(name: str, paths: Iterable[str]) -> list[Place]:
    return [(f"the source of the stream '{name}'", path) for path in paths]


def _relations(registry: Registry) -> list[Place]:
    known = registry.catalog.relations.items()
    return [(f"the relation '{name}'", each.table.location) for name, each in known if each.table is not None]
