"""Refusals of retracting streams: by steps that need final results, and by tables with too small a key."""

from __future__ import annotations

from collections.abc import Sequence

from ..conf.errors import SchemaError
from .nodes import Node

__all__ = ["check_final", "check_table_key"]


def check_final(plan: Node, what: str, otherwise: str, hint: str | None = None) -> None:
    """Refuse a step on a stream with retractions; `otherwise` is what the step would do with them."""
    if plan.retracts:
        problem = "earlier steps take results back" if plan.left_out is None else plan.left_out.problem
        raise SchemaError(
            f"{what} {otherwise}: {problem}",
            expected="results that are final",
            hint=hint or f"put {what} before the step that takes results back, or leave out early=True there",
        )


def check_table_key(plan: Node, key: Sequence[str]) -> None:
    """Refuse a table with so few key columns that a tombstone would delete other results too."""
    missing = [name for name in plan.least_key if name not in key]
    if plan.retracts and missing:
        raise SchemaError(
            f"the table's key {', '.join(key)} lacks {', '.join(missing)}: a result that is taken back would take "
            "others with it",
            expected="at least " + ", ".join(plan.least_key),
            hint="leave key out: the table then has the stream's",
        )
