"""A plan as text: the last step first, with its inputs below."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from html import escape
from typing import NamedTuple

from .fingerprint import operators
from .nodes import InputRows, Intake, ManyStreams, Map, Node, Reorder, StatefulNode, Window, walk
from .picture import StepBox, draw


class PlanText(str):
    """A plan as text or SVG, which a notebook shows as it is."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return str(self) if self.startswith("<svg") else f"<pre>{escape(self)}</pre>"


def fusable(plan: Node) -> frozenset[StatefulNode]:
    """Return the operators that need no shuffle of their own.

    Such an operator has the keys and shards of the operator before it, with only Python steps between. Each of its
    shards then needs the output of one shard alone, so both run in one ``transformWithState``.
    """
    return frozenset(each for each in operators(plan) if before_in_stage(each) is not None)


def before_in_stage(node: StatefulNode) -> StatefulNode | None:
    """Return the operator in whose stage an operator can run; None if it needs its own."""
    if not isinstance(node, Window | Reorder) or len(node.inputs) != 1 or node.shards is None or node.paced:
        return None
    before = node.inputs[0]
    while isinstance(before, Map):
        before = before.inputs[0]
    if isinstance(before, Window | Reorder) and (before.key, before.shards) == (node.key, node.shards):
        return before
    return None


def explain_plan(
    plan: Node, folders: Mapping[StatefulNode, str] | None = None, fused: Collection[StatefulNode] = ()
) -> str:
    """Return a plan's steps with their rows, state and retention; `fused` ones run in the stage before."""
    return "\n".join(_lines(plan, "", "", folders or {}, fused))


def _lines(
    node: Node, first: str, others: str, folders: Mapping[StatefulNode, str], fused: Collection[StatefulNode]
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


def facts_of(node: Node, folders: Mapping[StatefulNode, str], fused: Collection[StatefulNode]) -> Iterator[str]:
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
    if isinstance(node, StatefulNode):
        yield f"keeps {node.keeps}"
        if node in fused:
            yield f"in one stage with the {_before(node)} before it: same key, same shards, no shuffle between them"
        if node in folders:
            yield f"reports to {folders[node]}"


def _before(node: StatefulNode) -> str:
    before = before_in_stage(node)
    assert before is not None
    return before.word


def _where(node: Map) -> str:
    before = node.inputs[0]
    while isinstance(before, Map):
        before = before.inputs[0]
    return f"in the worker of the {before.word}" if isinstance(before, StatefulNode) else "where the rows are read"


def draw_plan(
    plan: Node, folders: Mapping[StatefulNode, str] | None = None, fused: Collection[StatefulNode] = ()
) -> str:
    """Return the steps of a plan as SVG, each with the facts of :func:`~upstream.plan.explain.explain_plan`."""
    return draw([each.box for each in plan_steps(plan, folders or {}, fused)])


class PlanStep(NamedTuple):
    """A step of a plan, for a picture and for programs that have only its record."""

    name: str  # unique in the plan
    kind: str  # "source", "input" (any DataFrame), "operator", "step", or "query" where streams meet
    text: str
    facts: tuple[str, ...]
    inputs: tuple[str, ...]  # names of steps
    folder: str = ""  # of its reports, relative to the checkpoint
    # the settings of an operator, to which the checkpoint is bound, and others
    fixed: Mapping[str, str] = {}
    changeable: Mapping[str, str] = {}

    @property
    def box(self) -> StepBox:
        return StepBox(self.name, self.text, self.facts, self.inputs, self.kind if self.kind != "input" else "operator")


def plan_steps(
    plan: Node,
    folders: Mapping[StatefulNode, str],
    fused: Collection[StatefulNode] = (),
    checkpoint: str | None = None,
) -> list[PlanStep]:
    """Return each step of a plan once, inputs first, with folders of reports if there is a checkpoint."""
    names: dict[Node, str] = {}
    found: list[PlanStep] = []
    for node in walk(plan):
        names[node] = f"step-{len(names)}"
        folder = folders.get(node, "") if isinstance(node, StatefulNode) and checkpoint is not None else ""
        facts = facts_of(node, folders if checkpoint is None else {}, fused)
        before = tuple(names[each] for each in node.inputs)
        place = folder.removeprefix((checkpoint or "").rstrip("/") + "/")
        fixed, changeable = node.settings if isinstance(node, StatefulNode) else ({}, {})
        found.append(PlanStep(names[node], _kind(node), node.text, tuple(facts), before, place, fixed, changeable))
    return found


def _kind(node: Node) -> str:
    if isinstance(node, ManyStreams):
        return "query"
    if isinstance(node, StatefulNode):
        return "input" if isinstance(node, Intake) else "operator"
    return "source" if isinstance(node, InputRows) else "step"
