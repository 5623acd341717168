"""A plan as text: the last step first, with its inputs below."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from html import escape
from textwrap import wrap
from typing import NamedTuple

from .fingerprint import operators
from .nodes import Map, Node, Reorder, StatefulNode, Window


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
    """Return the steps of a plan, each with the properties of its rows, its state and how long it keeps it.

    `folders` are those for the operators' reports, if known. `fused` operators run in the stage of the operator before.
    """
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


_WIDTH, _GAP, _LINE, _PADDING = 420, 40, 16, 10
_LETTERS = 62
_STYLE = (
    "text{font:12px sans-serif;fill:#1f2430}.step{font-weight:bold}.fact{fill:#5a6275}"
    "rect{fill:#ffffff;stroke:#8a93a6}.operator{fill:#eef4ff;stroke:#3566c4}path{stroke:#8a93a6;fill:none}"
)


class _Box(NamedTuple):
    node: Node
    left: float
    top: float
    lines: tuple[tuple[str, str], ...]

    @property
    def height(self) -> float:
        return len(self.lines) * _LINE + 2 * _PADDING

    @property
    def middle(self) -> float:
        return self.left + _WIDTH / 2


def draw_plan(
    plan: Node, folders: Mapping[StatefulNode, str] | None = None, fused: Collection[StatefulNode] = ()
) -> str:
    """Return the steps of a plan as SVG, each with the facts of :func:`~upstream.plan.explain.explain_plan`."""
    boxes = _placed(plan, folders or {}, fused)
    size = max(box.left for box in boxes) + _WIDTH + _GAP, max(box.top + box.height for box in boxes) + _GAP
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]:.0f}" height="{size[1]:.0f}">',
            f'<style>{_STYLE}</style><rect width="100%" height="100%" style="fill:#f7f8fa;stroke:none"/>',
            *_arrows(boxes),
            *(line for box in boxes for line in _drawn(box)),
            "</svg>",
        ]
    )


def _placed(plan: Node, folders: Mapping[StatefulNode, str], fused: Collection[StatefulNode]) -> list[_Box]:
    """Return the boxes of all steps, inputs first. Each branch has a column; a step is below its lowest input."""
    boxes: list[_Box] = []
    columns = 0

    def place(node: Node) -> _Box:
        nonlocal columns
        before = [place(each) for each in node.inputs]
        if before:
            left = (before[0].left + before[-1].left) / 2
            top = max(box.top + box.height for box in before) + _GAP
        else:
            left, top = _GAP + columns * (_WIDTH + _GAP), _GAP
            columns += 1
        lines = [("step", line) for line in wrap(node.text, _LETTERS)]
        lines += [("fact", line) for fact in facts_of(node, folders, fused) for line in wrap(fact, _LETTERS)]
        boxes.append(_Box(node, left, top, tuple(lines)))
        return boxes[-1]

    place(plan)
    return boxes


def _arrows(boxes: list[_Box]) -> Iterator[str]:
    """Yield an arrow from each step to the next.

    A step in two branches has a box in each, so each box has one arrow.
    """
    waiting: list[_Box] = []
    for box in boxes:
        count = len(box.node.inputs)
        for before in waiting[len(waiting) - count :] if count else []:
            bottom = before.top + before.height
            yield f'<path d="M{before.middle:.0f},{bottom:.0f} L{box.middle:.0f},{box.top:.0f}"/>'
        waiting = [*waiting[: len(waiting) - count], box]


def _drawn(box: _Box) -> Iterator[str]:
    kind = "operator" if isinstance(box.node, StatefulNode) else "plain"
    yield (
        f'<rect class="{kind}" x="{box.left:.0f}" y="{box.top:.0f}" width="{_WIDTH}" height="{box.height:.0f}" rx="4"/>'
    )
    for number, (style, line) in enumerate(box.lines, start=1):
        x, y = box.left + _PADDING, box.top + _PADDING + number * _LINE - 4
        yield f'<text class="{style}" x="{x:.0f}" y="{y:.0f}">{escape(line)}</text>'
