"""The steps after which only the newest row of each key matters."""

from __future__ import annotations

from .newest_nodes import Grouped, LatestJoin, Versions
from .nodes import Node, Queue, Reorder, Transform, walk
from .row_steps import Filter

__all__ = ["newest_demanded"]


def newest_demanded(plan: Node, newest: bool) -> dict[Node, bool]:
    """Return for each step whether the steps after it need only the newest row of each key.

    `newest` is the answer for the consumer of the plan's rows.
    """
    found = {plan: newest}
    for node in reversed(list(walk(plan))):
        for each in node.inputs:
            found[each] = found.get(each, True) and _demands_newest(node, found[node])
    return found


def _demands_newest(node: Node, behind: bool) -> bool:
    """Return whether a step needs only the newest row of each key, given whether the steps behind it do."""
    match node:
        case Versions() | LatestJoin() | Grouped():
            return True
        case Queue():  # two policies give every row
            return behind or node.specification.changeable()["policy"] not in ("append", "shed")
        case Reorder():  # a distinct gives the first of equal rows
            return behind and node.name != "distinct"
        case Transform():  # where a filter drops a newer row, the older one counts
            return behind and not (isinstance(node.step, Filter) and node.step.on_leave == "keep")
        case _:
            return False
