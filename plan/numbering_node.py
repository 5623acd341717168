"""The step that numbers the rows of a stream, for windows over them."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from ..core.feedback.checkpoint_layout import Kind
from .nodes import Operator

__all__ = ["Numbering"]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Numbering(Operator):
    """Each row with its number in the stream, by arrival. One task gets all rows."""

    kind: ClassVar[Kind | None] = "numbering"

    @property
    def word(self) -> str:
        return "row numbers"

    @property
    def keeps(self) -> str:
        return "one number: how many rows there have been"
