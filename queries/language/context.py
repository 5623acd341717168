"""What the binder carries along while it binds one text."""

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
    """A query that is bound.

    ``streams`` is whether it is an ISTREAM by CQL's default: without aggregates, over a stream in the outermost FROM.
    """

    node: Relation | Changes
    streams: bool = False


@dataclass
class Context:
    """The text, what it can name, and how to bind a query inside of it."""

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
        """Note where a node of the plan stands in the text, and return it."""
        self.places.setdefault(node, (self.text, at if isinstance(at, tuple) else span(at)))
        return node

    def fresh(self, name: str) -> str:
        """Return a name that no column of the text has."""
        self.count[0] += 1
        return f"{name}#{self.count[0]}"

    def within(self, ctes: Mapping[str, Bound]) -> Context:
        """Return the context below a WITH."""
        return replace(self, ctes={**self.ctes, **ctes})
