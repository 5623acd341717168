"""Steps that cannot take results back, and tables whose key has too few columns for that."""

from __future__ import annotations

from collections.abc import Sequence

from ..conf.errors import SchemaError
from .nodes import Node

__all__ = ["check_final", "check_table_key"]


def check_final(plan: Node, what: str, otherwise: str, hint: str | None = None) -> None:
    """Refuse a step on a stream whose results are taken back.

    Parameters
    ----------
    plan
        The step before it.
    what
        The step, as its user calls it.
    otherwise
        What it would do with such results.
    hint
        What to do instead, if not to put the step before.

    Raises
    ------
    SchemaError
        They are.
    """
    if plan.retracts:
        problem = "earlier steps take results back" if plan.left_out is None else plan.left_out.problem
        raise SchemaError(
            f"{what} {otherwise}: {problem}",
            expected="results that are final",
            hint=hint or f"put {what} before the step that takes results back, or leave out early=True there",
        )


def check_table_key(plan: Node, key: Sequence[str]) -> None:
    """Refuse a table whose key has too few columns for the results that are taken back.

    Raises
    ------
    SchemaError
        A tombstone would delete other results with its own.
    """
    missing = [name for name in plan.least_key if name not in key]
    if plan.retracts and missing:
        raise SchemaError(
            f"the table's key {', '.join(key)} lacks {', '.join(missing)}: a result that is taken back would take "
            "others with it",
            expected="at least " + ", ".join(plan.least_key),
            hint="leave key out: the table then has the stream's",
        )
