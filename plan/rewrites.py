"""Rules that give a plan the same rows at lower cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from ..core.pushdown.source_steps import ArrowStep
from .newest_nodes import GroupBy, LatestJoin, Versions
from .nodes import Filter, InputRows, Map, Node, Queue, Reorder, StatefulNode, Transform, walk


def newest_demanded(plan: Node, newest: bool) -> dict[Node, bool]:
    """Return whether the steps after each, in the end the consumer's `newest`, need only each key's newest row."""
    found = {plan: newest}
    for node in reversed(list(walk(plan))):
        for each in node.inputs:
            found[each] = found.get(each, True) and _demands_newest(node, found[node])
    return found


def _demands_newest(node: Node, behind: bool) -> bool:
    """Return whether a step needs only the newest row of each key, given whether the steps behind it do."""
    match node:
        case Versions() | LatestJoin() | GroupBy():
            return True
        case Queue():  # two policies give every row
            return behind or node.specification.changeable()["policy"] not in ("append", "shed")
        case Reorder():  # a distinct gives the first of equal rows
            return behind and node.name != "distinct"
        case Transform():  # where a filter drops a newer row, the older one counts
            return behind and not (isinstance(node.step, Filter) and node.step.on_leave == "keep")
        case _:
            return False


Translate = Callable[[Transform], ArrowStep | None]
"""Returns the Arrow step with Spark's results, or None if they could differ."""


def rewritten(plan: Node, translate: Translate, *, newest: bool = False) -> Node:
    """Apply the rules to each step, inputs first; `newest` is as for :func:`~upstream.plan.rewrites.newest_demanded`.

    Steps before one with a Column of the user's stay: the Column belongs to a DataFrame that the user has seen.
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
    """Let a union drop rows older than a passed row of their key, if no later step needs them."""
    if not (newest and isinstance(node, Reorder) and node.name == "union"):
        return node
    return dataclasses.replace(node, newest=True)


def _in_arrow(node: Node, translate: Translate) -> Node:
    """Move a filter or a choice of columns to the Python worker that has the rows in Arrow.

    It then runs in the source, or in the worker of the shard that released the rows, where it separates no stages.
    Spark would convert each row and back.
    """
    if not isinstance(node, Transform) or node.step.opaque:
        return node
    (before,) = node.inputs
    if not (isinstance(before, Map | StatefulNode) or (isinstance(before, InputRows) and before.ours)):
        return node
    step = translate(node)
    if step is None:
        return node
    return Map(
        node.key, node.time, node.schema, node.left_out, node.in_order, node.shards,
        inputs=node.inputs, says=node.text, step=step, moved=True,
    )  # fmt: skip
