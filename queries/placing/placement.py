"""The division of a plan between two stages of slots.

A slot of the first stage sees some rows of the streams, and evaluates a fragment of the plan over them. The second
stage evaluates, over the fragments' changes, the parts that need rows of several first-stage slots together.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from ..expressions.nodes import Expression
from ..relations.nodes import Node, Stream, walk

__all__ = ["Fragment", "Placement", "Route"]


@dataclass(frozen=True)
class Route:
    """The expressions by which a stream's rows go to the slots of the first stage. They never fail.

    Rows of equal values go to one slot (:func:`.slots.slots_of`). Without expressions, all rows go to
    :meth:`Fragment.gathered_in`.
    """

    stream: str
    by: tuple[Expression, ...]


@dataclass(frozen=True)
class Fragment:
    """A part of a plan that the slots of the first stage evaluate, each over its rows.

    There is one route for each stream it reads. Unless it needs no rows together, all have as many expressions, with
    the same meaning in the same place. Without ``onward``, its changes are the result.
    """

    plan: Node
    routes: tuple[Route, ...]
    # Routes its changes to the second stage; () means all to `Placement.gathered_in`.
    onward: tuple[Expression, ...] | None
    every_change: bool = False  # Operators above need each change point; otherwise a step's net change is enough.

    def gathered_in(self, slots: int) -> int:
        """Return the first-stage slot for gathered rows: by the streams, so queries gather a stream only once."""
        names = sorted({each.name for each in walk(self.plan) if isinstance(each, Stream)})
        return _chosen(repr(names), slots)


@dataclass(frozen=True)
class Placement:
    """A divided plan.

    Unless ``together``, one slot can retract a key's row in a batch while another emits its new one, which wins.
    """

    fragments: tuple[Fragment, ...]
    second: Node | None  # The second stage's plan, with the fragments' plans given; None if one fragment is the plan.
    together: bool = True  # One slot has all changes of the rows of one key.

    def gathered_in(self, slots: int) -> int:
        """Return the second-stage slot for gathered changes. It depends on the plan, so queries use different slots."""
        return _chosen(repr(self.second), slots)


def _chosen(text: str, slots: int) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % slots
