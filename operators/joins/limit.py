"""The limit of a join's state: the time from which on rows stay, and the error if none may go."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...conf.errors import StateLimitError
from ...core.rows.exact_integers import Int64s

__all__ = ["STANDS_STILL", "cut_time", "over_limit"]

STANDS_STILL = (
    "or drop rows with on_limit='drop_oldest'; a stream whose watermark stands still makes the join keep all rows of "
    "the other one"
)
"""The remedy for a join by time that exceeds its limit."""


def cut_time(sides: Sequence[tuple[Int64s, int]], segment: int, least: int) -> int:
    """Return a time such that the rows before it have about `least` bytes or more.

    `sides` has the times of each side's rows and their bytes; there must be a row. The time is the end of a segment,
    unless no row would be left.
    """
    times = np.concatenate([times for times, _ in sides])
    each = np.concatenate([np.full(len(times), size / max(len(times), 1)) for times, size in sides])
    order = np.argsort(times, kind="stable")
    last = min(int(np.searchsorted(np.cumsum(each[order]), least)), len(times) - 1)
    time = int(times[order[last]])
    whole = (time // segment + 1) * segment
    return whole if whole <= int(times[order[-1]]) else time + 1


def over_limit(shard: int, size: int, on: Sequence[str], state_limit: int, parts: int, hint: str) -> StateLimitError:
    """Return the error of a shard that keeps more bytes than its part of the limit; `hint` adds a remedy."""
    part = state_limit // parts
    return StateLimitError(
        f"shard {shard} of the join on {', '.join(on)} keeps {size:,} bytes",
        expected=f"at most {part:,}, which is its part of state_limit={state_limit} among {parts} shards",
        hint=f"raise state_limit, which may change from run to run; {hint}",
    )
