"""Several streams in one query."""

from __future__ import annotations

import dataclasses

from .nodes import Node

__all__ = ["Together"]


@dataclasses.dataclass(frozen=True, eq=False)
class Together(Node):
    """Streams that one query reads; the inputs are their last steps, and the checkpoint is bound to all of them.

    Key, time and schema are those of the first: no rows leave this step.
    """

    @property
    def text(self) -> str:
        return f"{len(self.inputs)} streams in one query"
