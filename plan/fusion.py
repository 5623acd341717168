"""Which operators can run in the stage of the operator before them."""

from __future__ import annotations

from .nodes import Map, Node, Operator, Reorder, Window
from .places import operators

__all__ = ["before_in_stage", "fusable"]


def fusable(plan: Node) -> frozenset[Operator]:
    """Return the operators that need no shuffle of their own.

    Such an operator divides the same keys among as many shards as the operator before it, and there are only Python
    steps between the two. So each of its shards needs the rows and punctuation of one shard alone, and both run in one
    ``transformWithState``: one shuffle, one commit of state and one start of Python workers less in each batch.
    """
    return frozenset(each for each in operators(plan) if before_in_stage(each) is not None)


def before_in_stage(node: Operator) -> Operator | None:
    """Return the operator in whose stage an operator can run; None if it needs its own."""
    if not isinstance(node, Window | Reorder) or len(node.inputs) != 1 or node.shards is None or node.paced:
        return None
    before = node.inputs[0]
    while isinstance(before, Map):
        before = before.inputs[0]
    if isinstance(before, Window | Reorder) and (before.key, before.shards) == (node.key, node.shards):
        return before
    return None
