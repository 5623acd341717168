"""A graph of steps as SVG: layers from the inputs down, few crossings, each step once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from textwrap import wrap
from typing import NamedTuple


class StepBox(NamedTuple):
    """A step in a picture."""

    name: str  # unique in the picture
    title: str
    facts: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()  # names; those that the picture lacks are left out
    kind: str = "plain"  # classes for style sheets, such as "operator shared"


Edge = tuple[str, str]
"""The names of a step and of the one that takes its rows."""

_WIDTH, _GAP, _LINE, _PADDING = 300, 48, 16, 10
_LETTERS = 44
_SWEEPS = 6
_FONT = 'font-family="system-ui, sans-serif" font-size="12"'
_BEND = 24  # the width that a long arrow takes in the layers that it crosses


class _Slot(NamedTuple):
    """A box in its layer, or the bend of an arrow that crosses the layer."""

    name: str
    width: float
    height: float
    lines: tuple[tuple[str, str], ...] = ()


def draw(
    boxes: Sequence[StepBox], rates: Mapping[Edge, str] | None = None, marked: Collection[str] = (), label: str = "plan"
) -> str:
    """Return boxes and the arrows between them as SVG, inputs on top.

    `rates` are texts at arrows. An arrow is `marked` if both of its ends are. Colours are attributes, which the page's
    style sheet can replace. A strict content security policy allows the picture, as it has no style inside.
    """
    known = {each.name: each for each in boxes}
    edges = [(before, each.name) for each in boxes for before in dict.fromkeys(each.inputs) if before in known]
    layers, ways = _layered(boxes, edges)
    left = _columns(layers, ways)
    top: dict[str, float] = {}
    below = _GAP / 2
    for number, layer in enumerate(layers):
        top |= {each.name: below for each in layer}
        tall = max(each.height for each in layer)
        layers[number] = [each if each.lines else each._replace(height=tall) for each in layer]
        below += tall + _GAP
    wide = max((left[each.name] + each.width for layer in layers for each in layer), default=0) + _GAP / 2
    places = {each.name: each for layer in layers for each in layer}
    size = f'width="{wide:.0f}" height="{below:.0f}" viewBox="0 0 {wide:.0f} {below:.0f}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(label)}" {_FONT}>',
            *(_arrow(edge, way, places, left, top, (rates or {}).get(edge, ""), marked) for edge, way in ways.items()),
            *(
                line
                for each in boxes
                for line in _drawn(each, places[each.name], left[each.name], top[each.name], each.name in marked)
            ),
            "</svg>",
        ]
    )


def _layered(boxes: Sequence[StepBox], edges: Sequence[Edge]) -> tuple[list[list[_Slot]], dict[Edge, list[str]]]:
    """Return the places of each layer, in an order with few crossings, and the places along each arrow."""
    depth: dict[str, int] = {}
    after: dict[str, list[str]] = {}
    for before, each in edges:
        after.setdefault(before, []).append(each)
    waiting = list(boxes)
    while waiting:  # a box is below all of its inputs
        ready = [each for each in waiting if all(name in depth for name, to in edges if to == each.name)]
        if not ready:
            raise ValueError("the steps form a circle")
        for each in ready:
            depth[each.name] = 1 + max((depth[name] for name, to in edges if to == each.name), default=-1)
        waiting = [each for each in waiting if each.name not in depth]
    for each in sorted(boxes, key=lambda box: -depth[box.name]):  # inputs go down to the first step that takes them
        if each.name in after and all(before not in depth for before, to in edges if to == each.name):
            depth[each.name] = min(depth[name] for name in after[each.name]) - 1
    layers: list[list[_Slot]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for each in boxes:
        lines = [("step", line) for line in wrap(each.title, _LETTERS - 6)]  # bold letters are wider
        lines += [("fact", line) for fact in each.facts for line in wrap(fact, _LETTERS)]
        height = len(lines) * _LINE + 2 * _PADDING
        layers[depth[each.name]].append(_Slot(each.name, _WIDTH, height, tuple(lines)))
    ways: dict[Edge, list[str]] = {}
    for before, each in edges:
        bends = [f"{before}\n{each}\n{at}" for at in range(depth[before] + 1, depth[each])]
        ways[before, each] = [before, *bends, each]
        for at, name in enumerate(bends, depth[before] + 1):
            layers[at].append(_Slot(name, _BEND, 0))
    above, under = _neighbours(ways)
    for sweep in range(_SWEEPS):
        if sweep % 2 == 0:
            for at in range(1, len(layers)):
                layers[at] = _ordered(layers[at], layers[at - 1], above)
        else:
            for at in range(len(layers) - 2, -1, -1):
                layers[at] = _ordered(layers[at], layers[at + 1], under)
    return layers, ways


def _ordered(layer: Sequence[_Slot], beside: Sequence[_Slot], near: Mapping[str, Sequence[str]]) -> list[_Slot]:
    """Return a layer by the mean place of each one's neighbours in the layer beside it."""
    order = {each.name: float(number) for number, each in enumerate(beside)}
    turns = {each.name: _mean([order[other] for other in near.get(each.name, ())]) for each in layer}
    places = [float(number) if turns[each.name] is None else turns[each.name] for number, each in enumerate(layer)]
    return [layer[number] for number in sorted(range(len(layer)), key=lambda at: (places[at], at))]


def _names(layer: Sequence[_Slot]) -> list[str]:
    return [each.name for each in layer]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _neighbours(ways: Mapping[Edge, Sequence[str]]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return the places one layer above and one layer below each place."""
    above: dict[str, list[str]] = {}
    under: dict[str, list[str]] = {}
    for way in ways.values():
        for before, after in pairwise(way):
            above.setdefault(after, []).append(before)
            under.setdefault(before, []).append(after)
    return above, under


def _columns(layers: Sequence[Sequence[_Slot]], ways: Mapping[Edge, Sequence[str]]) -> dict[str, float]:
    """Return the left side of each place: near its neighbours in the layers above and below, none over another."""
    above, under = _neighbours(ways)
    middle: dict[str, float] = {}
    for layer in layers:
        right = 0.0
        for each in layer:
            middle[each.name] = right + each.width / 2
            right += each.width + _GAP
    for sweep in range(_SWEEPS):
        near = above if sweep % 2 == 0 else under
        for layer in layers if sweep % 2 == 0 else list(reversed(layers)):
            wanted = [_mean([middle[other] for other in near.get(each.name, ())]) for each in layer]
            found = _apart(
                layer, [middle[each.name] if at is None else at for each, at in zip(layer, wanted, strict=True)]
            )
            middle |= dict(zip(_names(layer), found, strict=True))
    widths = {each.name: each.width for layer in layers for each in layer}
    least = min((at - widths[name] / 2 for name, at in middle.items()), default=0.0)
    return {name: at - widths[name] / 2 - least + _GAP / 2 for name, at in middle.items()}


def _apart(layer: Sequence[_Slot], wanted: Sequence[float]) -> list[float]:
    """Return the middles nearest to the wanted ones (least squares) that keep the order and the gaps of a layer."""
    offsets: list[float] = [0.0]
    for one, other in pairwise(layer):
        offsets.append(offsets[-1] + (one.width + other.width) / 2 + _GAP / 2)
    pools: list[tuple[float, int]] = []  # the sum of wanted middles without offsets, and how many places share it
    for want, offset in zip(wanted, offsets, strict=True):
        pools.append((want - offset, 1))
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
            (total, many), (more, others) = pools[-2:]
            pools[-2:] = [(total + more, many + others)]
    level = [total / many for total, many in pools for _ in range(many)]
    return [at + offset for at, offset in zip(level, offsets, strict=True)]


def _arrow(
    edge: Edge,
    way: Sequence[str],
    places: Mapping[str, _Slot],
    left: Mapping[str, float],
    top: Mapping[str, float],
    rate: str,
    marked: Collection[str],
) -> str:
    def middle(name: str) -> float:
        return left[name] + places[name].width / 2

    x, y = middle(way[0]), top[way[0]] + places[way[0]].height
    path = f"M{x:.0f},{y:.0f}"
    for name in way[1:]:
        to_x, to_y = middle(name), top[name]
        half = (y + to_y) / 2
        path += f" C{x:.0f},{half:.0f} {to_x:.0f},{half:.0f} {to_x:.0f},{to_y:.0f}"
        x, y = to_x, to_y
        if name != way[-1]:  # straight through a layer between the two
            y += places[name].height
            path += f" L{x:.0f},{y:.0f}"
    critical = edge[0] in marked and edge[1] in marked
    color, width = ("#d55e00", 3) if critical else ("#8a93a6", 1.5)
    text = f'<text class="rate" x="{x + 6:.0f}" y="{y - 8:.0f}" fill="#5a6275">{escape(rate)}</text>' if rate else ""
    ends = f'data-from="{escape(edge[0])}" data-to="{escape(edge[1])}"'
    return (
        f'<g class="edge{" critical" if critical else ""}" {ends}><path d="{path}" fill="none" stroke="{color}" '
        f'stroke-width="{width}"/>{text}</g>'
    )


def _drawn(box: StepBox, place: _Slot, left: float, top: float, critical: bool) -> Iterator[str]:
    strong = "operator" in box.kind.split()
    fill, stroke = ("#eef4ff", "#3566c4") if strong else ("#ffffff", "#8a93a6")
    border = 'stroke="#d55e00" stroke-width="3"' if critical else f'stroke="{stroke}" stroke-width="1"'
    dashes = ' stroke-dasharray="6 3"' if "shared" in box.kind.split() else ""
    yield (
        f'<g class="node {escape(box.kind)}{" critical" if critical else ""}" data-node="{escape(box.name)}">'
        f'<rect x="{left:.0f}" y="{top:.0f}" width="{place.width:.0f}" height="{place.height:.0f}" rx="4" '
        f'fill="{fill}" {border}{dashes}/>'
    )
    for number, (style, line) in enumerate(place.lines, start=1):
        x, y = left + _PADDING, top + _PADDING + number * _LINE - 4
        look = 'fill="#1f2430" font-weight="bold"' if style == "step" else 'fill="#5a6275"'
        yield f'<text class="{style}" x="{x:.0f}" y="{y:.0f}" {look}>{escape(line)}</text>'
    yield "</g>"
