"""The steps whose rows matter only as far as they are the newest of their keys."""

from __future__ import annotations

from .newest_nodes import Grouped, LatestJoin, Versions
from .nodes import Node, Queue, Reorder, Transform, walk
from .row_steps import Filter

__all__ = ["newest_demanded"]


def newest_demanded(plan: Node, newest: bool) -> dict[Node, bool]:
    """Return for each step whether all that follows it demands the newest row of each key alone.

    An older row then changes nothing.

    Parameters
    ----------
    plan
        The last step.
    newest
        Whether what takes its rows demands no more.
    """
    found = {plan: newest}
    for node in reversed(list(walk(plan))):
        for each in node.inputs:
            found[each] = found.get(each, True) and _demands_newest(node, found[node])
    return found


def _demands_newest(node: Node, behind: bool) -> bool:
    """Return whether a step demands the newest row alone, if all behind it does or not."""
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
