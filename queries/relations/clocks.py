"""By which clock a plan is evaluated: the times of its rows, or the order in which they arrive."""

from __future__ import annotations

from typing import Literal, TypeAlias

from .nodes import Changes, Latest, Node, Stream, Windowed, walk

__all__ = ["Clock", "clock_of", "is_periodic", "on_arrival"]

Clock: TypeAlias = Literal["event", "arrival"]
"""``event``: a row counts from its event time on, once the low-watermark has passed it. ``arrival``: at once."""


def clock_of(plan: Node) -> Clock:
    """Return the clock of a plan that is hosted: that of arrival wherever it can be, since it waits for nothing."""
    return "arrival" if on_arrival(plan) and not is_periodic(plan) else "event"


def is_periodic(plan: Node) -> bool:
    """Return whether a plan gives all its rows at the multiples of a period."""
    return any(isinstance(each, Changes) and each.every_us is not None for each in walk(plan))


def on_arrival(plan: Node) -> bool:
    """Return whether a plan can be evaluated as rows arrive, without waiting for the low-watermark.

    It can if it reads newest rows only: each window is :class:`~.nodes.Latest`, or over a stored relation. A row that
    arrives then replaces an older one of its key, and one that arrives too late to be the newest is superseded. Every
    other window depends on when a row enters or leaves, which is known when the low-watermark has passed that time.

    Parameters
    ----------
    plan : Node

    Returns
    -------
    bool

    Examples
    --------
    >>> import pyarrow as pa
    >>> from upstream.queries.relations.nodes import Distinct, Latest, Range, Stream, Windowed
    >>> schema = pa.schema({"bus": pa.string(), "t": pa.int64()})
    >>> buses = Stream("buses", schema, key=("bus",), event_time="t", updates=True)
    >>> on_arrival(Distinct(Windowed(buses, Latest()))), on_arrival(Windowed(buses, Range(5)))
    (True, False)
    """
    return all(_is_newest(each) for each in walk(plan) if isinstance(each, Windowed))


def _is_newest(node: Windowed) -> bool:
    origin = node.origin
    return isinstance(origin, Stream) and (origin.static or isinstance(node.window, Latest))
