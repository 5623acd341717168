"""The clock of a plan's evaluation: the event times of its rows, or their order of arrival."""

from __future__ import annotations

from typing import Literal, TypeAlias

from .nodes import Changes, Latest, Node, Stream, Windowed, walk

__all__ = ["Clock", "clock_of", "is_periodic", "on_arrival"]

Clock: TypeAlias = Literal["event", "arrival"]
"""By ``event``, a row counts from its event time, once the low-watermark passes it; by ``arrival``, at once."""


def clock_of(plan: Node) -> Clock:
    """Return the clock for a hosted plan: arrival wherever possible, since it does not wait."""
    return "arrival" if on_arrival(plan) and not is_periodic(plan) else "event"


def is_periodic(plan: Node) -> bool:
    """Return whether a plan emits all its rows at the multiples of a period."""
    return any(isinstance(each, Changes) and each.every_us is not None for each in walk(plan))


def on_arrival(plan: Node) -> bool:
    """Return whether a plan can be evaluated as rows arrive, without waiting for the low-watermark.

    Each window must be :class:`~.nodes.Latest` or over a stored relation. A row then replaces an older one of its key,
    or is superseded. Other windows depend on times that are certain only once the low-watermark passes them.
    """
    return all(_is_newest(each) for each in walk(plan) if isinstance(each, Windowed))


def _is_newest(node: Windowed) -> bool:
    origin = node.origin
    return isinstance(origin, Stream) and (origin.static or isinstance(node.window, Latest))
