"""Names of plans and expressions by their content: equal for equal ones only, in every process."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import lru_cache, wraps
from hashlib import sha256
from typing import Any, TypeVar

from ....core.rows.key import Key
from ....expressions.nodes import Constant, Days

# Names of operators' states and the shards of gathered rows follow from these words. So a class can be renamed.
NODES: dict[str, str] = {
    "GroupAggregates": "aggregate",
    "Changes": "changes",
    "ConstantRow": "constants",
    "Copies": "copies",
    "Distinct": "distinct",
    "Explode": "explode",
    "Join": "join",
    "Lifetime": "lifetime",
    "Project": "project",
    "QueueProject": "queue",
    "Sample": "sample",
    "SetOperation": "set",
    "Stream": "stream",
    "Top": "top",
    "Where": "where",
    "WindowFunctions": "functions",
    "WindowOver": "window",
}
_WORDS: dict[str, str] = {
    **NODES,
    "Aggregation": "aggregation",
    "AsOf": "as of",
    "Call": "call",
    "Field": "field",
    "Frame": "frame",
    "Hop": "hop",
    "Latest": "latest",
    "Now": "now",
    "Order": "order",
    "RowWindow": "rows",
    "Session": "session",
    "StoredTable": "table",
    "TimeRange": "range",
    "UnboundedWindow": "unbounded",
    "WindowFunction": "function",
}
N = TypeVar("N")
T = TypeVar("T")


def remembered(function: Callable[[N], T]) -> Callable[[N], T]:
    """Cache a function in the nodes themselves, as comparing or hashing nodes would cost as much as the function.

    A result lives as long as its node. The texts that a process registers over time are many, and some are long.
    """
    name = f"_{function.__module__}.{function.__qualname__}"

    @wraps(function)
    def asked(node: N) -> T:
        results = node.__dict__
        if name not in results:
            results[name] = function(node)
        return results[name]

    return asked


def digest(value: Any, length: int = 16) -> str:
    """Return a short name for the content of a value."""
    return sha256(content(value).encode()).hexdigest()[:length]


@remembered
def identity(node: object) -> str:
    """Return a name for the computation of a node of a plan."""
    return sha256(_parts(node).encode()).hexdigest()[:20]


def content(value: Any) -> str:
    """Return a text for an expression, a node, or a tuple of such: equal for equal ones only."""
    kind = type(value)
    if kind.__name__ in NODES:
        return identity(value)
    if kind is Constant:
        # A tuple of a long list is one value.
        days = "days " if isinstance(value.value, Days) else ""
        return f"{days}{value.value.total_seconds() if days else repr(value.value)}:{value.type}"
    if kind is tuple or kind is Key:
        return f"({', '.join(map(content, value))})"
    return _parts(value) if kind.__name__ in _WORDS else repr(value)


def _parts(value: Any) -> str:
    kind = type(value)
    return f"{_WORDS[kind.__name__]}({', '.join(content(getattr(value, name)) for name in _fields(kind))})"


@lru_cache
def _fields(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in dataclasses.fields(kind))
