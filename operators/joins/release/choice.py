"""The two ways to the order of time, and which of them is worth its memory (Hammad et al. §4-6).

``sync`` orders the input: a row enters the join once neither input can show an earlier one. ``filter`` orders the
output: rows meet at once, and their results are held. The second one works while it waits, and holds more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Literal

from ....core.rows.exact_integers import HIGHEST

__all__ = ["ALPHA", "Mode", "Release", "ReleasePlan", "bounds_inside", "choose", "enters_up_to", "load_of"]

Release = Literal["sync", "filter", "adaptive"]
"""How results come into the order of time: by ordering rows, by holding results, or by whichever is worth it."""

Mode = Literal["sync", "filter"]
"""What a shard does at a time."""

ALPHA = 0.3
"""From which load on results are held: α of §6, with the value of its experiments."""


@dataclasses.dataclass(frozen=True)
class ReleasePlan:
    """How the results of a join are released in the order of time.

    Attributes
    ----------
    release : Release
    cost_s : float or None
        c: seconds to compare two rows; None to measure it.
    alpha : float
        The load from which on results are held, for ``adaptive``.
    window_s : float or None
        w: how far a row looks back among those of the other input, in seconds; None if the unit of time is not known.
    """

    release: Release = "filter"
    cost_s: float | None = None
    alpha: float = ALPHA
    window_s: float | None = None

    @property
    def first(self) -> Mode:
        """What shards do before anything is measured."""
        return "filter" if self.release == "filter" else "sync"

    @property
    def adaptive(self) -> bool:
        """Whether it is chosen from batch to batch."""
        return self.release == "adaptive"

    def options(self) -> dict[str, str]:
        """Return the options of the choices' source."""
        cost = {} if self.cost_s is None else {"cost": repr(self.cost_s)}
        return {"alpha": repr(self.alpha), "window": repr(self.window_s), **cost}

    def identity(self) -> str:
        """Return what a checkpoint is bound to, in words: the choice comes from an input of its own."""
        return "event_time, adaptive" if self.adaptive else "event_time"

    def changeable(self) -> dict[str, str]:
        """Return the other settings, in words, which may change from run to run."""
        if not self.adaptive:
            return {"release": self.release}
        return {"alpha": str(self.alpha), **({} if self.cost_s is None else {"cost": f"{self.cost_s} s"})}


def enters_up_to(mode: Mode, bounds: Sequence[int]) -> int:
    """Return the time up to which rows enter the join, that time included.

    Parameters
    ----------
    mode
    bounds
        What each input has shown or promised: its later rows have this time or a later one.

    Notes
    -----
    A row at the bound need not wait: whatever comes has its time or a later one (Bai et al. §4.1).
    """
    return HIGHEST if mode == "filter" else min(bounds)


def bounds_inside(mode: Mode, bounds: Sequence[int]) -> list[int]:
    """Return the bounds of the rows that will enter the join: what has come and waits counts as not there yet."""
    return list(bounds) if mode == "filter" else [min(bounds)] * len(bounds)


def load_of(cost_s: float, window_s: float, rates: Iterable[tuple[float, float]]) -> float:
    """Return c·w·λ₁·λ₂: half of the time that goes into comparing rows.

    Parameters
    ----------
    cost_s, window_s : float
        c and w.
    rates
        λ₁ and λ₂ of each shard. A row is compared with those of its own shard only, so the loads of shards add up.
    """
    return sum(cost_s * window_s * left * right for left, right in rates)


def choose(load: float, alpha: float) -> Mode:
    """Return what is worth it under a load: holding results takes at least α / (1 + α) off the response time."""
    return "filter" if load >= alpha else "sync"
