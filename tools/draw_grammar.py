"""Draw the grammar of continuous queries as railroads: ``make railroads``.

``draw_grammar.py [--check]`` writes docs/figures/grammar-RULE.svg for each rule of ``query_grammar.py``, or fails if a
file is not what it would write. It runs in the environment of the site, which has the library that draws.
"""

from __future__ import annotations

import hashlib
import itertools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from query_grammar import GRAMMAR, Choice, Leaf, Lines, Many, Maybe, Node, Ref, Seq, Word

__all__ = ["drawing", "main", "origin", "signed"]

_FIGURES = Path(__file__).parents[1] / "docs" / "figures"

# The background is drawn, too: readers choose dark pages without their system.
_STYLE = """
svg { background-color: #fff; border-radius: 6px; }
path { stroke: #345; stroke-width: 2; fill: none; }
text { font: 14px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; text-anchor: middle; fill: #123; }
.terminal text { font-weight: bold; }
rect { stroke: #345; stroke-width: 1.5; fill: #eef3fa; }
.non-terminal rect { fill: #f3faee; }
.leaf text { font-style: italic; }
.leaf rect { fill: none; stroke-dasharray: 5 3; }
@media (prefers-color-scheme: dark) {
svg { background-color: #14181e; }
path { stroke: #9ab; }
text { fill: #dde6f0; }
rect { stroke: #9ab; fill: #1f2c3d; }
.non-terminal rect { fill: #1f3324; }
.leaf rect { fill: none; }
}
"""


def drawing(rule: str) -> str:
    """Return the railroad of a rule as SVG."""
    import railroad  # pyright: ignore[reportMissingImports]

    railroad.INTERNAL_ALIGNMENT = "left"
    written: list[str] = []
    railroad.Diagram(_drawn(railroad, GRAMMAR[rule]), type="simple").writeStandalone(written.append, _STYLE)
    return signed("".join(written).rstrip() + "\n", rule)


def signed(svg: str, rule: str) -> str:
    """Return a drawing with a note of what it was made from, and of what it is."""
    return f"{svg}<!-- made from {origin(rule)}, is {_digest(svg)} -->\n"


def origin(rule: str) -> str:
    """Return a digest of what a drawing is made from: the rule, and this program."""
    return _digest(repr(GRAMMAR[rule]) + Path(__file__).read_text(encoding="utf-8"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _drawn(railroad: Any, node: Node) -> Any:
    if isinstance(node, Word):
        return railroad.Terminal(node.text)
    if isinstance(node, Leaf):
        return railroad.NonTerminal(node.label, cls="leaf")
    if isinstance(node, Ref):
        return railroad.NonTerminal(node.rule)
    if isinstance(node, Seq):
        return railroad.Sequence(*(_drawn(railroad, each) for each in _joined(node.parts)))
    if isinstance(node, Lines):
        return railroad.Stack(*(_drawn(railroad, each) for each in node.parts))
    if isinstance(node, Choice):
        return railroad.Choice(0, *(_drawn(railroad, each) for each in node.parts))
    if isinstance(node, Maybe):
        return railroad.Optional(_drawn(railroad, node.part))
    assert isinstance(node, Many)
    return railroad.OneOrMore(_drawn(railroad, node.part), railroad.Terminal(","))


def _joined(parts: Iterable[Node]) -> Iterator[Node]:
    """Yield words that follow each other as one."""
    for words, group in itertools.groupby(parts, key=lambda each: isinstance(each, Word)):
        if words:
            yield Word(" ".join(each.text for each in group if isinstance(each, Word)))
        else:
            yield from group


def main(arguments: list[str]) -> int:
    """Write the drawings, or check them; returns the exit code."""
    status = 0
    for rule in GRAMMAR:
        path = _FIGURES / f"grammar-{rule}.svg"
        made = drawing(rule)
        if "--check" not in arguments:
            path.write_text(made, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != made:
            print(f"{path} is out of date: run `make railroads`", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
