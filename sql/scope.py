"""The columns that a name can refer to at a place of a query, and the binder's context for one text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from ..expressions.nodes import Expression, Field
from ..operators.relations.plan.nodes import Changes, Node, Relation
from .catalog import Catalog
from .places import Text, near, span

# Marks a column of the query around a subquery, until the subquery has become a join.
OUTER = "\0outer\0"


def outer_field(name: str, kind: Any) -> Field:
    """Return a field that refers to a column of the outer query."""
    return Field(OUTER + name, kind)


def is_outer(name: str) -> bool:
    """Return whether a field's name refers to a column of the outer query."""
    return name.startswith(OUTER)


@dataclass(frozen=True)
class Visible:
    """One column that can be named: as ``name``, as ``table.name``, or both."""

    table: str
    name: str
    expression: Expression
    plain: bool = True
    starred: bool = True  # Included in `*`.


class Scope:
    """The columns of one SELECT's sources, in the order of ``*``, within the scope ``around`` of an outer query."""

    def __init__(self, columns: Iterable[Visible], around: Scope | None = None) -> None:
        self.columns = tuple(columns)
        self.around = around
        self._plain: dict[str, list[Visible]] = {}
        self._tables: dict[str, dict[str, list[Visible]]] = {}
        for each in self.columns:
            if each.plain:
                self._plain.setdefault(each.name.lower(), []).append(each)
            if each.table:
                self._tables.setdefault(each.table.lower(), {}).setdefault(each.name.lower(), []).append(each)

    def joined(self, columns: Iterable[Visible]) -> Scope:
        return Scope((*self.columns, *columns), self.around)

    def mapped(self, columns: Iterable[Visible]) -> Scope:
        return Scope(columns, self.around)

    def tables(self) -> set[str]:
        """Return the aliases in lower case."""
        return set(self._tables)

    def has(self, name: str) -> bool:
        """Return whether a name without a table is a column here."""
        return name.lower() in self._plain

    def _find(self, table: str, name: str) -> list[Visible]:
        if not table:
            return self._plain.get(name.lower(), [])
        return self._tables.get(table.lower(), {}).get(name.lower(), [])

    def resolve(self, table: str, name: str, at: Any, text: Text) -> Expression:
        """Return the column of the name; refuse an unknown or ambiguous one."""
        found = self._find(table, name)
        if len(found) == 1:
            return found[0].expression
        if found:
            owners = " or ".join(sorted(f"{each.table}.{each.name}" for each in found if each.table))
            raise text.error(at, f"'{name}' is ambiguous", hint=f"write {owners}" if owners else "give one an alias")
        if self.around is not None:
            outer = self.around._find(table, name)
            if len(outer) == 1 and isinstance(outer[0].expression, Field):
                return outer_field(outer[0].expression.name, outer[0].expression.type)
        if table and table.lower() not in self._tables:
            known = sorted({each.table for each in self.columns if each.table})
            raise text.error(
                at, f"there is no source '{table}' here", hint=near(table, known, all_of="the sources are")
            )
        if table:
            names = [each.name for each in self.columns if each.table.lower() == table.lower()]
            raise text.error(at, f"'{table}' has no column '{name}'", hint=near(name, names, all_of="its columns are"))
        names = [each.name for each in self.columns if each.plain]
        raise text.error(at, f"there is no column '{name}'", hint=near(name, names, all_of="the columns are"))


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
