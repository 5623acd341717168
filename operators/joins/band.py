"""The times that meet in a join, and until when rows are kept for them."""

from __future__ import annotations

import dataclasses
from typing import Protocol

import numpy as np

from ...core.rows.exact_integers import HIGHEST, LOWEST, Int64s
from ...core.watermark.bounds import AFTER_ALL, BEFORE_ALL

__all__ = ["LEFT", "RIGHT", "SIDES", "Band", "IntervalBand", "TumblingBand", "reach_back", "shifted", "shifted_bound"]

LEFT, RIGHT = 0, 1
SIDES = ("left", "right")
"""The sides' names in states and errors, which also begin those of their input partitions: ``left/partition``."""


class Band(Protocol):
    """The times of the two sides that meet, as pure arithmetic on int64 times of any unit.

    A bound of a side is inclusive for its later rows: each has this time or a later one.
    """

    @property
    def segment(self) -> int:
        """The length of the segments of time in which rows are kept."""
        ...

    def partners(self, side: int, times: Int64s) -> tuple[Int64s, Int64s]:
        """Return the least and the greatest time of the other side that meets each time of a side, both inclusive."""
        ...

    def kept_from(self, side: int, bound: int) -> int:
        """Return the least time of a side that can still meet a later row, given the bound of the other side."""
        ...

    def kept_from_each(self, side: int, bounds: Int64s) -> Int64s:
        """Return :meth:`kept_from` of each of several bounds."""
        ...


@dataclasses.dataclass(frozen=True)
class IntervalBand:
    """Rows meet if ``-before <= right - left <= after``; one of the two may be negative."""

    before: int
    after: int

    @property
    def segment(self) -> int:
        return max(1, (self.before + self.after + 1) // 4)

    def partners(self, side: int, times: Int64s) -> tuple[Int64s, Int64s]:
        before, after = (self.before, self.after) if side == LEFT else (self.after, self.before)
        return shifted(times, -before), shifted(times, after)

    def kept_from(self, side: int, bound: int) -> int:
        return shifted_bound(bound, -(self.after if side == LEFT else self.before))

    def kept_from_each(self, side: int, bounds: Int64s) -> Int64s:
        found = shifted(bounds, -(self.after if side == LEFT else self.before))
        finite = (bounds != BEFORE_ALL) & (bounds != AFTER_ALL)
        return np.where(finite, np.clip(found, BEFORE_ALL + 1, AFTER_ALL - 1), bounds)


@dataclasses.dataclass(frozen=True)
class TumblingBand:
    """Rows meet if they are in one window of a length."""

    size: int

    @property
    def segment(self) -> int:
        return self.size

    def partners(self, side: int, times: Int64s) -> tuple[Int64s, Int64s]:
        del side
        first = shifted(times, 0) // self.size
        least = np.where(first * self.size > times, LOWEST, first * self.size)  # wrapped below the least int64
        return least, shifted(least, self.size - 1)

    def kept_from(self, side: int, bound: int) -> int:
        del side
        if bound in (BEFORE_ALL, AFTER_ALL):
            return bound
        return max(bound // self.size * self.size, LOWEST)

    def kept_from_each(self, side: int, bounds: Int64s) -> Int64s:
        return np.where(bounds == AFTER_ALL, bounds, self.partners(side, bounds)[0])


def reach_back(band: Band) -> float:
    """Return how far a row looks back on the other side, averaged over both sides: half of the band's width."""
    least, greatest = band.partners(LEFT, np.zeros(1, dtype=np.int64))
    return (int(greatest[0]) - int(least[0])) / 2


def shifted(times: Int64s, by: int) -> Int64s:
    """Return times moved by a distance, at most to the ends of int64."""
    if by >= 0:
        return np.where(times > HIGHEST - by, HIGHEST, times + np.int64(by))
    return np.where(times < LOWEST - by, LOWEST, times + np.int64(by))


def shifted_bound(bound: int, by: int) -> int:
    """Return a bound moved by a distance. The two infinities stay."""
    if bound in (BEFORE_ALL, AFTER_ALL):
        return bound
    return min(max(bound + by, BEFORE_ALL + 1), AFTER_ALL - 1)
