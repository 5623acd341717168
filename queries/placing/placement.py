"""How a plan is divided between two stages of slots: the parts, and by what rows and changes go to slots.

A slot of the first stage sees some rows of the streams. It evaluates a fragment over them, and the fragment's result is
all slots' results together. What needs rows together that the first stage has apart is evaluated in the second stage,
over the changes of the fragments.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from ..expressions.nodes import Expression
from ..relations.nodes import Node, Stream, walk

__all__ = ["Fragment", "Placement", "Route"]


@dataclass(frozen=True)
class Route:
    """By what a stream's rows go to the slots of the first stage.

    Attributes
    ----------
    stream : str
        The stream's name.
    by : tuple of Expression
        Over the stream's columns; rows of equal values go to one slot (:func:`.slots.slots_of`). They never fail. None
        of them: all rows go to the slot :meth:`Fragment.gathered_in`.
    """

    stream: str
    by: tuple[Expression, ...]


@dataclass(frozen=True)
class Fragment:
    """A part of a plan that the slots of the first stage evaluate, each over its rows.

    Attributes
    ----------
    plan : Node
        The whole plan, or a relation in it.
    routes : tuple of Route
        One for each stream that the fragment reads. All are by as many expressions, with the same meaning in the same
        place, except where the fragment needs nothing together.
    onward : tuple of Expression or None
        By which of its columns the fragment's changes go to the slots of the second stage. None: they are the result.
        None of them, ``()``: all go to the slot :meth:`Placement.gathered_in`.
    every_change : bool
        Whether each change point matters to what stands above. Otherwise what holds at the end of a step is enough.
    """

    plan: Node
    routes: tuple[Route, ...]
    onward: tuple[Expression, ...] | None
    every_change: bool = False

    def gathered_in(self, slots: int) -> int:
        """Return the slot of the first stage to which rows go that are gathered.

        It goes by the streams, so queries that gather one stream do that once.
        """
        names = sorted({each.name for each in walk(self.plan) if isinstance(each, Stream)})
        return _chosen(repr(names), slots)


@dataclass(frozen=True)
class Placement:
    """A plan, divided.

    Attributes
    ----------
    fragments : tuple of Fragment
        What the first stage evaluates.
    second : Node or None
        What the second stage evaluates: the plan, in which the fragments' plans are given. None: the one fragment is
        the plan.
    together : bool
        Whether one slot has all changes of the rows of one key (:func:`~..relations.keys.key_of`). Otherwise, within a
        batch, a row can leave in one slot while the row of the same key comes in another: what comes wins.
    """

    fragments: tuple[Fragment, ...]
    second: Node | None
    together: bool = True

    def gathered_in(self, slots: int) -> int:
        """Return the slot of the second stage to which changes go that are gathered.

        It goes by the plan, so that not all queries gather in the same slot.
        """
        return _chosen(repr(self.second), slots)


def _chosen(text: str, slots: int) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % slots
