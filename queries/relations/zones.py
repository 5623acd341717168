"""Set the time zone of a plan's expressions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from ..expressions.nodes import Call, Constant, Field
from ..expressions.zones import in_zone
from .nodes import Node, Stream

__all__ = ["zoned"]

_Plan = TypeVar("_Plan", bound=Node)


def zoned(zone: str) -> Callable[[_Plan], _Plan]:
    """Return the function that sets a time zone in plans' expressions; it rewrites shared nodes once."""
    made: dict[int, tuple[Any, Any]] = {}  # with what it was made of, so that ids stay

    def put(value: Any) -> Any:
        if isinstance(value, Call):
            return in_zone(value, zone)
        if isinstance(value, tuple):
            found = tuple(put(each) for each in value)
            return value if all(one is other for one, other in zip(found, value, strict=True)) else found
        if not dataclasses.is_dataclass(value) or isinstance(value, (type, Stream, Field, Constant)):
            return value
        if id(value) not in made:
            parts = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
            changed = {name: new for name, old in parts.items() if (new := put(old)) is not old}
            made[id(value)] = value, dataclasses.replace(value, **changed) if changed else value
        return made[id(value)][1]

    return put
