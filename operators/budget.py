"""How many rows a batch may process: the planner's arithmetic, from what shards reported. Pure; the figures come in."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from ..conf.errors import OptionError

__all__ = ["BatchCost", "allot", "auto_budget"]


# What a batch of Spark costs at least, as a first guess.
_FIXED_S = 0.5
# So many batches that guess counts for.
_ANCHOR = 1.0


@dataclasses.dataclass(frozen=True)
class BatchCost:
    """A running estimate of ``seconds = fixed + per_row * rows`` of a batch, by least squares that forget.

    Attributes
    ----------
    weight, rows, seconds, rows2, rows_seconds : float
        Decayed sums over the batches seen: of 1, rows, seconds, rows², rows * seconds.
    """

    weight: float = 0.0
    rows: float = 0.0
    seconds: float = 0.0
    rows2: float = 0.0
    rows_seconds: float = 0.0

    def seen(self, rows: int, seconds: float, keep: float = 0.9) -> BatchCost:
        """The estimate after one more batch.

        A batch that took more than twice, or less than half, of what was foretold says that something costs another amount from now on: the fixed part, if it had fewer
        rows than those before, else each row. All that was seen before is forgotten but for the other of the two; else old and new
        batches together would show a mixture that never was.
        """
        if rows <= 0 or seconds <= 0:
            return self
        if self.weight and not 0.5 < seconds / max(self.foretell(rows), 1e-9) < 2:
            fewer = rows < 0.9 * self.rows / self.weight
            fixed = max(seconds - self.per_row * rows, 0.0) if fewer else min(self.fixed, seconds)
            return _two_points(fixed, rows, seconds)
        return BatchCost(
            keep * self.weight + 1,
            keep * self.rows + rows,
            keep * self.seconds + seconds,
            keep * self.rows2 + rows * rows,
            keep * self.rows_seconds + rows * seconds,
        )

    @property
    def per_row(self) -> float:
        """Seconds for each further row, by the line through the batches seen and an empty one of half a second."""
        if not self.weight:
            return 0.0
        weight, seconds = self.weight + _ANCHOR, self.seconds + _ANCHOR * _FIXED_S
        spread = weight * self.rows2 - self.rows**2
        return min(max((weight * self.rows_seconds - self.rows * seconds) / spread, 1e-9), self.seconds / self.rows)

    @property
    def fixed(self) -> float:
        """Seconds of a batch without a row. Never 0, however batches scatter: that would make the least of them look best."""
        if not self.weight:
            return 0.0
        weight, seconds = self.weight + _ANCHOR, self.seconds + _ANCHOR * _FIXED_S
        return max((seconds - self.per_row * self.rows) / weight, 0.1 * min(_FIXED_S, self.seconds / self.weight))

    def foretell(self, rows: int) -> float:
        """Seconds that a batch of so many rows would take."""
        return self.fixed + self.per_row * rows

    def to_json(self) -> dict[str, Any]:
        """A JSON value; its members are the arguments of the class."""
        return dataclasses.asdict(self)


def _two_points(fixed: float, rows: int, seconds: float) -> BatchCost:
    """The estimate that goes through an empty batch of `fixed` seconds and this one."""
    return BatchCost(2.0, rows, fixed + seconds, float(rows) * rows, rows * seconds)


def auto_budget(cost: BatchCost, last: int, pending: int, duration_s: float | None) -> int:
    """The next batch's rows.

    Parameters
    ----------
    cost : BatchCost
    last : int
        The budget before.
    pending : int
        Rows that wait.
    duration_s : float or None
        How long a batch is to take; None for whatever gives the least staleness.

    Returns
    -------
    int
        At least 1, at most twice and at least half of the last one.

    Notes
    -----
    With n keys waiting, fixed cost f and c per row, a key is served every n/b batches of f + c·b seconds, and its result shows when the
    batch ends: mean staleness ≈ (n·f/b + n·c + f + c·b) / 2, least at b = √(n·f/c).
    """
    if not cost.weight:
        return last
    per_row = max(cost.per_row, 1e-9)
    if duration_s is None:
        wanted = min(math.sqrt(max(pending, 1) * cost.fixed / per_row), max(pending, 1))
    else:
        wanted = (duration_s - cost.fixed) / per_row
        if wanted < 1:  # the fixed cost alone takes longer: as many rows as double it, or nothing would ever get done
            wanted = cost.fixed / per_row
    return max(1, round(min(max(wanted, last / 2), last * 2)))


def allot(budget: int | None, places: Sequence[Sequence[Sequence[int]]], shares: int) -> list[int | None]:
    """Divide a budget among shards so that the globally oldest places are served first.

    Parameters
    ----------
    budget : int or None
        None is no limit.
    places
        For each shard some ``[place, how many wait up to it]``, increasing; empty if nothing waits there.
    shares : int
        How many shards there are.

    Returns
    -------
    list of int or None, of length shards
        Together `budget`. What no waiting row needs is divided evenly, for rows that arrive with the batch.

    Notes
    -----
    Exact at the places given; between two of them a shard may serve rows that are newer than another's by as much as the two are apart.
    """
    if budget is None:
        return [None] * shares
    marks = sorted((place, shard, count) for shard, each in enumerate(places) for place, count in each)
    given = [0] * shares
    total = 0
    for _, shard, count in marks:
        more = min(count - given[shard], budget - total)
        given[shard] += more
        total += more
        if total == budget:
            return list(given)
    spare = budget - total
    return [each + spare // shares + (number < spare % shares) for number, each in enumerate(given)]


def check_budget(budget: int | str | None) -> None:
    """Refuse a budget that would process nothing.

    Raises
    ------
    OptionError
        It is neither a whole number of at least 1 nor ``auto``.
    """
    if budget is None or budget == "auto" or (isinstance(budget, int) and not isinstance(budget, bool) and budget >= 1):
        return
    raise OptionError(
        f"budget={budget!r}", expected="a whole number of at least 1, 'auto', or None for no limit", hint="leave it out"
    )
