"""The number of rows that a batch may process, from the shards' reports."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from ...conf.errors import OptionError

__all__ = ["BatchCost", "allot", "auto_budget"]


# What a batch of Spark costs at least, as a first guess.
_FIXED_S = 0.5


@dataclasses.dataclass(frozen=True)
class BatchCost:
    """An estimate of a batch's seconds, ``fixed + per_row * rows``, from decayed sums over the batches."""

    batches: float = 0.0
    fixed_s: float = 0.0  # seconds that do not depend on the rows
    rows: float = 0.0
    rows_s: float = 0.0  # seconds in which rows were flowing

    def seen(self, rows: int, seconds: float, rows_s: float | None = None, keep: float = 0.8) -> BatchCost:
        """Return the estimate after one more batch, which took `seconds` from its plan to the next batch's.

        In `rows_s` of them rows were flowing; None for all but the guessed least cost of a batch. `keep` is the factor
        of older batches. They are forgotten after a batch of more than twice or less than half of the predicted
        seconds.
        """
        if rows <= 0 or seconds <= 0:
            return self
        flowing = max(seconds - _FIXED_S, seconds / 2) if rows_s is None else min(max(rows_s, 0.0), seconds)
        if self.batches and not 0.5 < seconds / max(self.foretell(rows), 1e-9) < 2:
            keep = 0.0
        return BatchCost(
            keep * self.batches + 1,
            keep * self.fixed_s + seconds - flowing,
            keep * self.rows + rows,
            keep * self.rows_s + flowing,
        )

    @property
    def per_row(self) -> float:
        """Seconds for each further row; 0 if nothing is known."""
        return self.rows_s / self.rows if self.rows else 0.0

    @property
    def fixed(self) -> float:
        """Seconds of a batch without a row."""
        return self.fixed_s / self.batches if self.batches else 0.0

    def foretell(self, rows: int) -> float:
        """Predict the seconds that a batch of so many rows takes."""
        return self.fixed + self.per_row * rows

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def auto_budget(cost: BatchCost, last: int, pending: int, duration_s: float | None) -> int:
    """Return the next batch's budget in rows: at least 1, and from half to twice the last one.

    `duration_s` is the intended duration of a batch; None for the one with the least staleness. With n keys waiting,
    fixed cost f and c per row, a key is served every n/b batches of f + c·b seconds. Its result is visible when the
    batch ends, and is as old as the batch by then: mean staleness ≈ (f + c·b) · (1 + n/(2b)), least at b = √(n·f/(2c)).
    """
    if not cost.batches:
        return last
    per_row = max(cost.per_row, 1e-9)
    if duration_s is None:
        wanted = min(math.sqrt(max(pending, 1) * cost.fixed / per_row / 2), max(pending, 1))
    else:
        wanted = (duration_s - cost.fixed) / per_row
        if wanted < 1:  # the fixed cost alone takes longer: as many rows as double it, or nothing would ever get done
            wanted = cost.fixed / per_row
    return max(1, round(min(max(wanted, last / 2), last * 2)))


def allot(budget: int | None, places: Sequence[Sequence[Sequence[int]]], shares: int) -> list[int | None]:
    """Divide a budget among shards so that the globally oldest places are served first.

    `places` has some ``[place, rows that wait up to it]`` for each shard, increasing. The result is exact at these
    places. Budget that no waiting row needs is divided evenly, for rows that arrive with the batch.
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
    """Refuse a budget that is neither a whole number of at least 1, nor ``auto``, nor None."""
    if budget is None or budget == "auto" or (isinstance(budget, int) and not isinstance(budget, bool) and budget >= 1):
        return
    raise OptionError(
        f"budget={budget!r}", expected="a whole number of at least 1, 'auto', or None for no limit", hint="leave it out"
    )
