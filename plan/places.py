"""The report folders of a plan's operators, below the query's checkpoint. No other module decides on them."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..conf.errors import OptionError
from ..core.feedback.checkpoint_layout import feeds_folder, operator_folder
from .nodes import Intake, Node, Operator, walk
from .table_node import joins_tables

__all__ = ["check_late_locations", "needs_checkpoint", "number_along", "operators", "places"]


def operators(plan: Node) -> list[Operator]:
    """Return the steps that keep state, inputs first."""
    return [node for node in walk(plan) if isinstance(node, Operator)]


def needs_checkpoint(plan: Node) -> bool:
    """Return whether some operator reports below the query's checkpoint, or a step reads the offsets there."""
    return joins_tables(plan) or any(each.checkpoint is None for each in operators(plan))


def places(plan: Node, checkpoint: str | os.PathLike[str] | None) -> Mapping[Operator, str]:
    """Return the folder of each operator. Without a `checkpoint`, each operator needs its own.

    An operator's number is the number of its kind before it along the stream, so an unchanged job finds its state. On
    two branches, the later one in the plan takes the next free number.
    """
    found: dict[Operator, str] = {}
    _check_branches(plan)
    for node in operators(plan):
        own = node.checkpoint if node.checkpoint is not None else checkpoint
        if own is None:
            raise OptionError(
                f"this stream keeps state below its query's checkpoint, which is not known yet: {node.text}",
                expected="a checkpoint, when the stream is written",
                hint="write it, by write_latest(stream, table, checkpointLocation=…); for a DataFrame of it call "
                "stream.dataframe(checkpoint), with the checkpoint that the query will have",
            )
        found[node] = _free(node, os.fspath(own), set(found.values()))
    return found


def number_along(node: Node, kind: str) -> int:
    """Return how many operators of a kind are on the stream up to a node, included; of several branches, the most."""
    counts: dict[Node, int] = {}
    for each in walk(node):
        counts[each] = max((counts[before] for before in each.inputs), default=0) + (each.kind == kind)
    return counts[node]


def check_late_locations(plan: Node) -> None:
    """Refuse one folder for the late rows of two operators of a kind, whose files would have the same names."""
    taken: dict[tuple[str, str], Operator] = {}
    for node in operators(plan):
        if node.late_location is None:
            continue
        other = taken.setdefault((node.late_location.rstrip("/"), node.late_name), node)
        if other is not node:
            raise OptionError(
                f"late_location={node.late_location!r} is given to two operators: {other.text}; and {node.text}",
                expected="a folder for each, since their files have the same names",
                hint="give one of them another folder",
            )


def _check_branches(plan: Node) -> None:
    """Refuse an operator in two branches: Spark runs it twice, and both runs would report to one folder."""
    seen: set[Node] = set()
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Operator):
            if node in seen:
                raise OptionError(
                    f"two branches of the stream go through one operator: {node.text}",
                    expected="an operator of its own in each branch: Spark runs it twice, and each run keeps state and "
                    "reports",
                    hint="make each branch from its source on; give two inputs of from_dataframe another name each",
                )
            seen.add(node)
        waiting += node.inputs


def _free(node: Operator, checkpoint: str, taken: set[str]) -> str:
    if isinstance(node, Intake):
        folder = feeds_folder(checkpoint, node.name)
        if folder in taken:
            raise OptionError(
                f"two inputs of the stream are called {node.name!r}",
                expected="a name for each: their reports are named by it",
                hint="give one of them another name, by from_dataframe(…, name=…)",
            )
        return folder
    assert node.kind is not None
    number = number_along(node, node.kind) - 1
    while (folder := operator_folder(checkpoint, node.kind, number)) in taken:
        number += 1
    return folder
