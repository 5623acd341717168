"""The columns that a name can refer to at a place of a query, and the binder's context for one text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sqlglot import exp

from ..expressions.nodes import Expression, Field
from ..expressions.places import Text, span
from ..expressions.scalars import ColumnScope, Visible
from ..operators.relations.plan.nodes import Changes, Node, Relation
from .catalog import Catalog, function_of
from .dialect import parse

# Marks a column of the query around a subquery, until the subquery has become a join.
OUTER = "\0outer\0"


def outer_field(name: str, kind: Any) -> Field:
    """Return a field that refers to a column of the outer query."""
    return Field(OUTER + name, kind)


def is_outer(name: str) -> bool:
    """Return whether a field's name refers to a column of the outer query."""
    return name.startswith(OUTER)


class Scope(ColumnScope):
    """The columns of one SELECT's sources, within the scope ``outer`` of the query around."""

    def __init__(self, columns: Iterable[Visible], outer: ColumnScope | None = None) -> None:
        super().__init__(columns)
        self.outer = outer

    def joined(self, columns: Iterable[Visible]) -> Scope:
        return Scope((*self.columns, *columns), self.outer)

    def mapped(self, columns: Iterable[Visible]) -> Scope:
        return Scope(columns, self.outer)

    def outer_column(self, table: str, name: str) -> Expression | None:
        found = () if self.outer is None else self.outer.found(table, name)
        if len(found) != 1 or not isinstance(found[0].expression, Field):
            return None
        return outer_field(found[0].expression.name, found[0].expression.type)


def unseen(columns: Iterable[Visible], scope: Scope) -> list[Visible]:
    """Return the columns whose names no source has."""
    return [each for each in columns if not scope.has(each.name)]


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
    viewed: dict[str, Bound] = field(default_factory=dict[str, Bound])
    """The views that the text names, directly or through other views."""
    called: set[str] = field(default_factory=set[str])
    """The functions in Python that it calls, or its views do."""
    phase: Literal["", "open", "closed"] = ""
    """For results of open windows, which it binds twice: the windows whose rows the functions of FROM give."""
    closes: dict[Node, tuple[int, int]] = field(default_factory=dict[Node, tuple[int, int]])
    """The rows of windows over relations, with the slide and for how long after its end a window gets rows."""

    def parsed(self, sql: str) -> exp.Expr:
        """Return a text's tree, in which the calls of functions in Python have their declaration."""
        tree = parse(sql, self.text.view)
        functions = {name.lower(): name for name in self.catalog.functions}
        for each in tree.find_all(exp.Anonymous) if functions else ():
            name = functions.get(each.name.lower())
            if name is not None:
                self.called.add(name)
                each.set("declared", function_of(self.catalog.functions[name]))
        return tree

    def noted(self, node: Any, at: Any) -> Any:
        """Record a plan node's place in the text, and return the node."""
        self.places.setdefault(node, (self.text, at if isinstance(at, tuple) else span(at)))
        return node

    def fresh(self, name: str) -> str:
        self.count[0] += 1
        return f"{name}#{self.count[0]}"

    def within(self, ctes: Mapping[str, Bound]) -> Context:
        return replace(self, ctes={**self.ctes, **ctes})
