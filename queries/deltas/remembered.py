"""What is computed of the nodes of plans again and again, and remembered by a process."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from ..relations.nodes import Node

__all__ = ["remembered"]

T = TypeVar("T")

_MOST = 50_000


def remembered(function: Callable[[Node], T]) -> Callable[[Node], T]:
    """Return a function that is asked once for each node, as long as there are not too many.

    To compare nodes, or to hash them, costs about what is remembered. So two nodes are the same if they are one object:
    the plans of a registry are, in all batches of a process.

    Examples
    --------
    >>> asked = []
    >>> length = remembered(lambda node: asked.append(node) or len(node))
    >>> length(node := "abc"), length(node), len(asked)
    (3, 3, 1)
    """
    known: dict[int, tuple[Node, T]] = {}

    @wraps(function)
    def asked(node: Node) -> T:
        found = known.get(id(node))
        if found is None or found[0] is not node:
            if len(known) >= _MOST:
                known.clear()
            found = known[id(node)] = node, function(node)
        return found[1]

    return asked
