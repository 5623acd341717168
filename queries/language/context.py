"""The binder's context for one text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from ..relations.nodes import Changes, Node, Relation
from .catalog import Catalog
from .places import Text, span
from .scope import Scope

__all__ = ["Bound", "Context"]


@dataclass(frozen=True)
class Bound:
    """A bound query."""

    node: Relation | Changes
    streams: bool = False  # An ISTREAM by CQL's default: no aggregates, over a stream in the outermost FROM.


@dataclass
class Context:
    """The text, the names it can use, and the functions that bind a query inside it."""

    text: Text
    catalog: Catalog
    query: Callable[[exp.Expr, Context, Scope | None], Bound]
    view: Callable[[str, str, Context], Bound]
    ctes: Mapping[str, Bound] = field(default_factory=dict[str, Bound])
    views: tuple[str, ...] = ()
    places: dict[Node, tuple[Text, tuple[int, int]]] = field(default_factory=dict[Node, Any])
    count: list[int] = field(default_factory=lambda: [0])
    viewed: set[str] = field(default_factory=set[str])
    """The views that the text names, directly or through other views."""

    def noted(self, node: Any, at: Any) -> Any:
        """Record a plan node's place in the text, and return the node."""
        self.places.setdefault(node, (self.text, at if isinstance(at, tuple) else span(at)))
        return node

    def fresh(self, name: str) -> str:
        self.count[0] += 1
        return f"{name}#{self.count[0]}"

    def within(self, ctes: Mapping[str, Bound]) -> Context:
        return replace(self, ctes={**self.ctes, **ctes})
