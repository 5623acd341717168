"""Rules that give a plan the same rows at less cost.

Each looks at one step and what is before it, so that a step is rewritten in the same way whatever follows; but for a
union, which drops rows that nothing behind it needs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from ..core.pushdown.source_steps import ArrowStep
from .demand import newest_demanded
from .nodes import Map, Node, Operator, Reorder, Rows, Transform, walk

__all__ = ["Translate", "rewritten"]

Translate = Callable[[Transform], ArrowStep | None]
"""Gives the step in Arrow that does what Spark would; None where that is not sure."""


def rewritten(plan: Node, translate: Translate, *, newest: bool = False) -> Node:
    """Apply the rules to each step, the inputs of a step before it.

    Steps before one that Spark computes from a user's columns stay as they are: such a column belongs to a DataFrame
    that the user has had.

    Parameters
    ----------
    plan
        The last step.
    translate
        For :func:`_in_arrow`.
    newest
        Whether what takes the rows demands the newest row of each key alone.
    """
    fixed = {each for node in walk(plan) if isinstance(node, Transform) and node.step.opaque for each in walk(node)}
    demanded = newest_demanded(plan, newest)
    made: dict[Node, Node] = {}
    for node in walk(plan):
        inputs = tuple(made[each] for each in node.inputs)
        same = all(new is old for new, old in zip(inputs, node.inputs, strict=True))
        again = node if same else dataclasses.replace(node, inputs=inputs)
        made[node] = again if node in fixed else _in_arrow(_superseding(again, demanded[node]), translate)
    return made[plan]


def _superseding(node: Node, newest: bool) -> Node:
    """Let a union drop rows that are older than one of their key that has passed, if nothing behind needs them."""
    if not (newest and isinstance(node, Reorder) and node.name == "union"):
        return node
    return dataclasses.replace(node, newest=True)


def _in_arrow(node: Node, translate: Translate) -> Node:
    """Move a filter, or a choice of columns, to the Python worker that has the rows in Arrow.

    It runs where the rows are read, with the steps behind it, or stays in the worker of the shard that released them,
    which leaves operators on both sides in one stage. Between them, Spark would convert each row into its own form and
    back.
    """
    if not isinstance(node, Transform) or node.step.opaque:
        return node
    (before,) = node.inputs
    if not (isinstance(before, Map | Operator) or (isinstance(before, Rows) and before.ours)):
        return node
    step = translate(node)
    if step is None:
        return node
    return Map(
        node.key, node.time, node.schema, node.left_out, node.in_order, node.shards,
        inputs=node.inputs, says=node.text, step=step, moved=True,
    )  # fmt: skip
