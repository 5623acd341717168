"""A join with a table, as a step of a plan."""

from __future__ import annotations

import dataclasses
from typing import Any

from .nodes import Node, walk

__all__ = ["TableJoin", "joins_tables"]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class TableJoin(Node):
    """Each row with the row of a table that has its key. It keeps no state: the batch's offsets name the version.

    Attributes
    ----------
    specification : TableJoinPlan
    """

    specification: Any

    @property
    def text(self) -> str:
        """See :class:`~upstream.plan.nodes.Node`."""
        return self.specification.text


def joins_tables(plan: Node) -> bool:
    """Return whether some step joins a table, and so needs the query's checkpoint."""
    return any(isinstance(each, TableJoin) for each in walk(plan))
