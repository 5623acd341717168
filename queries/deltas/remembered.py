"""A cache for functions of plan nodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from ..relations.nodes import Node

__all__ = ["remembered"]

T = TypeVar("T")

_MOST = 50_000


def remembered(function: Callable[[Node], T]) -> Callable[[Node], T]:
    """Cache a function by the node's identity, as comparing or hashing nodes would cost as much as the function."""
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
