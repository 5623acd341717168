"""The two ways to the order of time, and the choice between them (Hammad et al. §4-6)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Literal

from ....core.rows.exact_integers import HIGHEST

__all__ = ["ALPHA", "Mode", "Release", "ReleasePlan", "bounds_inside", "choose", "enters_up_to", "load_of"]

Release = Literal["sync", "filter", "adaptive"]
"""The way of results to the order of time: order rows, hold results, or choose between the two."""

Mode = Literal["sync", "filter"]
"""A shard's way to the order of time. ``sync`` orders the input: a row enters the join once neither input can bring an
earlier one. ``filter`` orders the output: rows meet at once, and results are held. It works while it waits, and holds
more.
"""

ALPHA = 0.3
"""The load from which on results are held: α of §6, with the value of its experiments."""


@dataclasses.dataclass(frozen=True)
class ReleasePlan:
    """The release of a join's results in the order of time."""

    release: Release = "filter"
    cost_s: float | None = None  # c: seconds to compare two rows; None to measure it
    alpha: float = ALPHA  # the load from which on results are held, for ``adaptive``
    # w: seconds over which a row looks back on the other side; None if the unit of time is unknown
    window_s: float | None = None

    @property
    def first(self) -> Mode:
        """The mode of shards before anything is measured."""
        return "filter" if self.release == "filter" else "sync"

    @property
    def adaptive(self) -> bool:
        """True if the mode is chosen from batch to batch."""
        return self.release == "adaptive"

    def options(self) -> dict[str, str]:
        cost = {} if self.cost_s is None else {"cost": repr(self.cost_s)}
        return {"alpha": repr(self.alpha), "window": repr(self.window_s), **cost}

    def identity(self) -> str:
        """Return the setting to which a checkpoint is bound, in words: an adaptive choice has an input of its own."""
        return "event_time, adaptive" if self.adaptive else "event_time"

    def changeable(self) -> dict[str, str]:
        if not self.adaptive:
            return {"release": self.release}
        return {"alpha": str(self.alpha), **({} if self.cost_s is None else {"cost": f"{self.cost_s} s"})}


def enters_up_to(mode: Mode, bounds: Sequence[int]) -> int:
    """Return the last time of rows that enter the join, given the bounds of both inputs.

    A row at the bound need not wait: later rows have its time or a later one (Bai et al. §4.1).
    """
    return HIGHEST if mode == "filter" else min(bounds)


def bounds_inside(mode: Mode, bounds: Sequence[int]) -> list[int]:
    """Return the bounds of the rows that will enter the join; waiting rows are among these."""
    return list(bounds) if mode == "filter" else [min(bounds)] * len(bounds)


def load_of(cost_s: float, window_s: float, rates: Iterable[tuple[float, float]]) -> float:
    """Return c·w·λ₁·λ₂: half of the time that goes into comparing rows.

    `rates` has λ₁ and λ₂ of each shard. A row is compared only with those of its own shard, so the loads of shards add
    up.
    """
    return sum(cost_s * window_s * left * right for left, right in rates)


def choose(load: float, alpha: float) -> Mode:
    """Return the mode for a load: from α on, holding results takes at least α / (1 + α) off the response time."""
    return "filter" if load >= alpha else "sync"
