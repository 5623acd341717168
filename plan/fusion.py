"""Operators that can run in the stage of the operator before them."""

from __future__ import annotations

from .nodes import Map, Node, Operator, Reorder, Window
from .places import operators

__all__ = ["before_in_stage", "fusable"]


def fusable(plan: Node) -> frozenset[Operator]:
    """Return the operators that need no shuffle of their own.

    Such an operator has the keys and shards of the operator before it, with only Python steps between. Each of its
    shards then needs the output of one shard alone, so both run in one ``transformWithState``.
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
