"""A plan as text: the last step first, with its inputs below."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from .fusion import before_in_stage
from .nodes import Map, Node, Operator

__all__ = ["explain_plan", "facts_of"]


def explain_plan(plan: Node, folders: Mapping[Operator, str] | None = None, fused: Collection[Operator] = ()) -> str:
    """Return the steps of a plan, each with the properties of its rows, its state and how long it keeps it.

    `folders` are those for the operators' reports, if known. `fused` operators run in the stage of the operator before.
    """
    return "\n".join(_lines(plan, "", "", folders or {}, fused))


def _lines(
    node: Node, first: str, others: str, folders: Mapping[Operator, str], fused: Collection[Operator]
) -> Iterator[str]:
    yield first + node.text
    below = "│  " if node.inputs else "   "
    for fact in facts_of(node, folders, fused):
        yield f"{others}{below}{fact}"
    for number, before in enumerate(node.inputs, start=1):
        last = number == len(node.inputs)
        yield from _lines(
            before, others + ("└─ " if last else "├─ "), others + ("   " if last else "│  "), folders, fused
        )


def facts_of(node: Node, folders: Mapping[Operator, str], fused: Collection[Operator]) -> Iterator[str]:
    """Yield the known facts about the rows after a step and about its state."""
    key = ", ".join(node.key)
    time = f"event time {node.time}" if node.time else "the later arrival counts"
    order = ", in order of time" if node.in_order else ""
    shards = f", {node.shards} shards" if node.shards else ""
    yield f"key {key}, {time}{order}{shards}"
    if node.left_out is None:
        yield "every row, once"
    elif all(before.left_out is not node.left_out for before in node.inputs):
        yield f"not every row: {node.left_out.problem}"
    if isinstance(node, Map) and node.moved:
        yield f"runs {_where(node)}, not in Spark: its condition means the same there"
    if isinstance(node, Operator):
        yield f"keeps {node.keeps}"
        if node in fused:
            yield f"in one stage with the {_before(node)} before it: same key, same shards, no shuffle between them"
        if node in folders:
            yield f"reports to {folders[node]}"


def _before(node: Operator) -> str:
    before = before_in_stage(node)
    assert before is not None
    return before.word


def _where(node: Map) -> str:
    before = node.inputs[0]
    while isinstance(before, Map):
        before = before.inputs[0]
    return f"in the worker of the {before.word}" if isinstance(before, Operator) else "where the rows are read"
