"""Several streams in one query: their operators have different places, and the checkpoint is bound to all of them."""

from __future__ import annotations

import dataclasses

from .nodes import Node

__all__ = ["Together"]


@dataclasses.dataclass(frozen=True, eq=False)
class Together(Node):
    """Streams that one query reads; the inputs are their last steps.

    Key, time and schema are those of the first: no rows leave this step.
    """

    @property
    def text(self) -> str:
        """See :class:`~upstream.plan.nodes.Node`."""
        return f"{len(self.inputs)} streams in one query"
