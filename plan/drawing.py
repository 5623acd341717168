"""A plan as a picture: rows flow down, from the sources to the last step."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from html import escape
from textwrap import wrap
from typing import NamedTuple

from .explain import facts_of
from .nodes import Node, Operator

__all__ = ["draw_plan"]

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


def draw_plan(plan: Node, folders: Mapping[Operator, str] | None = None, fused: Collection[Operator] = ()) -> str:
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


def _placed(plan: Node, folders: Mapping[Operator, str], fused: Collection[Operator]) -> list[_Box]:
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
    kind = "operator" if isinstance(box.node, Operator) else "plain"
    yield (
        f'<rect class="{kind}" x="{box.left:.0f}" y="{box.top:.0f}" width="{_WIDTH}" height="{box.height:.0f}" rx="4"/>'
    )
    for number, (style, line) in enumerate(box.lines, start=1):
        x, y = box.left + _PADDING, box.top + _PADDING + number * _LINE - 4
        yield f'<text class="{style}" x="{x:.0f}" y="{y:.0f}">{escape(line)}</text>'
