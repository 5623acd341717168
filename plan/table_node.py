"""The step that joins a stream with a table."""

from __future__ import annotations

import dataclasses
from typing import Any

from .nodes import Node, walk

__all__ = ["TableJoin", "joins_tables"]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class TableJoin(Node):
    """Each row with the row of a table that has its key. It has no state: the batch's offsets name the version."""

    specification: Any

    @property
    def text(self) -> str:
        return self.specification.text


def joins_tables(plan: Node) -> bool:
    """Return whether a step joins a table, and so needs the query's checkpoint."""
    return any(isinstance(each, TableJoin) for each in walk(plan))
