"""Whether a stream has every row once, as a window over it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..conf.errors import SchemaError
from ..core.pushdown.at_source import reads_coalesced
from .windows.shards.plan import WindowPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Incomplete", "check_complete", "incomplete_after", "incomplete_source"]

Incomplete = tuple[str, str]
"""Why a stream does not have every row once, so that a window over it would be wrong, and what to do instead."""


def incomplete_after(plan: WindowPlan) -> Incomplete | None:
    """Return why another window cannot count these windows' results, or None if it can."""
    if plan.early:
        return (
            f"emit={plan.emit!r} gives a window several times, and another window would count each of them",
            'give the window before emit="all": it leaves out the early results and gives each window once',
        )
    if not plan.every:
        passes = {
            "lazy": "gives only the latest of a key's windows that close in one batch",
            "eager": "passes over the windows that start while a key is committed to another one",
        }
        return (
            f"emit={plan.emit!r} {passes[plan.emit]}, so another window's results would depend on the batches",
            'give the window before emit="all", which gives every window once',
        )
    if plan.lateness_us:
        return (
            "with allowed_lateness a window that is corrected is given again, and another window would count both",
            "leave out allowed_lateness of the window before: windows close as much later if the source's progressDelay is longer",
        )
    return None


def incomplete_source(df: DataFrame) -> Incomplete | None:
    """Return why no window can count the rows of a DataFrame as it is read, or None if one can."""
    if not reads_coalesced(df):
        return None
    return (
        "the source coalesces (coalesce=true): in each batch it leaves out all rows of a key but the newest",
        'read with spark.readStream.format("upstream") without coalesce; upstream.latest always coalesces',
    )


def check_complete(incomplete: Incomplete | None) -> None:
    """Refuse a window on a stream that does not have every row once."""
    if incomplete is not None:
        problem, hint = incomplete
        raise SchemaError(f"a window would count wrongly here: {problem}", expected="every row, once", hint=hint)
