"""The paths in a plan: those that it reads, and the folders of late and malformed rows."""

from __future__ import annotations

import os

from ..conf.locations import Place, check_apart, real_location
from ..core.pushdown.at_source import paths_read, source_options
from ..plan.nodes import Intake, Node, Operator, Rows, walk
from ..plan.table_node import TableJoin
from .tables.plan import TableJoinPlan

__all__ = ["check_aside", "places_aside", "places_read"]


def places_read(plan: Node) -> tuple[Place, ...]:
    """Return the paths and patterns that a plan's sources read, and the tables that it joins."""
    found: dict[str, str] = {}
    for node in walk(plan):
        if isinstance(node, Rows | Intake):
            found |= dict.fromkeys(paths_read(node.frame), "the source")
        elif isinstance(node, TableJoin) and isinstance(node.specification, TableJoinPlan):
            found[node.specification.location] = "the joined table"
    return tuple((name, place) for place, name in found.items())


def places_aside(plan: Node) -> tuple[Place, ...]:
    """Return the distinct folders for late and malformed rows, as operators and sources received them."""
    found: dict[str, Place] = {}
    for node in walk(plan):
        given: dict[str, str | None] = {}
        if isinstance(node, Operator):
            given["late_location"] = node.late_location
        if isinstance(node, Intake):
            given["quarantine_location"] = node.quarantine_location
        if isinstance(node, Rows):
            given["quarantineLocation"] = (source_options(node.frame) or {}).get("quarantinelocation")
        found |= {real_location(place): (name, place) for name, place in given.items() if place is not None}
    return tuple(found.values())


def check_aside(plan: Node, checkpoint: str | os.PathLike[str] | None) -> None:
    """Raise OptionError if a folder of late or malformed rows overlaps with a checkpoint or a path that is read."""
    aside = places_aside(plan)
    if aside:
        known = () if checkpoint is None else (("the checkpoint", os.fspath(checkpoint)),)
        for each in aside:
            check_apart([each], [*known, *places_read(plan)])
