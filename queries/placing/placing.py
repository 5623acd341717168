"""Which parts of a plan the first stage evaluates, which the second, and by what rows go to their slots."""

from __future__ import annotations

from ..relations.nodes import Node, Stream, walk
from .placement import Fragment, Placement, Route

__all__ = ["placed"]


def placed(plan: Node) -> Placement:
    """Divide a plan between the two stages.

    Parameters
    ----------
    plan : Node
        A plan that can be shared: :func:`~..relations.sharing.shareable`.
    """
    streams = sorted({each.name for each in walk(plan) if isinstance(each, Stream)})
    return Placement((Fragment(plan, tuple(Route(name, ()) for name in streams), None),), None)
