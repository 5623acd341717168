"""Names of plans and expressions by their content: equal for equal ones only, in every process."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable
from functools import wraps
from hashlib import sha256
from typing import Any, TypeVar

from ....expressions.nodes import Call, Constant, Days, Expression, Field
from .nodes import (
    Aggregation,
    AsOf,
    Changes,
    ConstantRow,
    Copies,
    Distinct,
    Explode,
    Frame,
    GroupAggregates,
    Hop,
    Join,
    Latest,
    Lifetime,
    Node,
    Now,
    Order,
    Project,
    RowWindow,
    Sample,
    Session,
    SetOperation,
    StoredTable,
    Stream,
    TimeRange,
    Top,
    UnboundedWindow,
    Where,
    WindowFunction,
    WindowFunctions,
    WindowOver,
)

# Names of operators' states and the shards of gathered rows follow from these words. So a class can be renamed.
_NODES: dict[type, str] = {
    GroupAggregates: "aggregate",
    Changes: "changes",
    ConstantRow: "constants",
    Copies: "copies",
    Distinct: "distinct",
    Explode: "explode",
    Join: "join",
    Lifetime: "lifetime",
    Project: "project",
    Sample: "sample",
    SetOperation: "set",
    Stream: "stream",
    Top: "top",
    Where: "where",
    WindowFunctions: "functions",
    WindowOver: "window",
}
_WORDS: dict[type, str] = {
    **_NODES,
    Aggregation: "aggregation",
    AsOf: "as of",
    Call: "call",
    Field: "field",
    Frame: "frame",
    Hop: "hop",
    Latest: "latest",
    Now: "now",
    Order: "order",
    RowWindow: "rows",
    Session: "session",
    StoredTable: "table",
    TimeRange: "range",
    UnboundedWindow: "unbounded",
    WindowFunction: "function",
}
_FIELDS = {kind: tuple(each.name for each in dataclasses.fields(kind)) for kind in _WORDS}

T = TypeVar("T")


def remembered(function: Callable[[Node], T]) -> Callable[[Node], T]:
    """Cache a function by the node's identity, as comparing or hashing nodes would cost as much as the function.

    A result lives as long as its node. The texts that a process registers over time are many, and some are long.
    """
    known: dict[int, tuple[weakref.ref[Node], T]] = {}

    @wraps(function)
    def asked(node: Node) -> T:
        place = id(node)
        found = known.get(place)
        if found is None or found[0]() is not node:
            result = function(node)
            found = known[place] = weakref.ref(node, lambda _: known.pop(place, None)), result
        return found[1]

    return asked


def digest(value: Any, length: int = 16) -> str:
    """Return a short name for the content of a value."""
    return sha256(content(value).encode()).hexdigest()[:length]


@remembered
def identity(node: Node) -> str:
    """Return a name for the computation of a node."""
    return sha256(_parts(node).encode()).hexdigest()[:20]


def content(value: Any) -> str:
    """Return a text for an expression, a node, or a tuple of such: equal for equal ones only."""
    kind = type(value)
    if kind in _NODES:
        return identity(value)
    if kind is Constant:
        # A tuple of a long list is one value.
        days = "days " if isinstance(value.value, Days) else ""
        return f"{days}{value.value.total_seconds() if days else repr(value.value)}:{value.type}"
    if kind is tuple:
        return f"({', '.join(map(content, value))})"
    return _parts(value) if kind in _WORDS else repr(value)


def _parts(value: Node | Expression) -> str:
    kind = type(value)
    return f"{_WORDS[kind]}({', '.join(content(getattr(value, name)) for name in _FIELDS[kind])})"
