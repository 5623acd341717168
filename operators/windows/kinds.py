"""Window specifications as functions of numbers (Li's WID semantics, thesis ch. 5)."""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import Literal

import numpy as np

from ...conf.errors import OptionError
from ...core.rows.exact_integers import HIGHEST, LOWEST, Int64s, Whole, affine, as_int64, fits, floor_div

__all__ = ["Attribute", "LandmarkWindows", "SlideByTupleWindows", "SlidingWindows", "Windows"]

Attribute = Literal["time", "row number", "rank"]
"""The meaning of x: event time, row number in the stream, or rank in the partition. The formulas are the same."""


class Windows(abc.ABC):
    """A window specification.

    A row with value x is in window w iff ``low <= x < high`` for ``low, high = extent(w)``, and iff ``first <= w <=
    last`` for ``first, last = wids(x)``. Since x alone decides, neither the order of arrival nor the batches matter.

    x is an int64: microseconds since the epoch, a row number from 0, or a rank in a partition. All functions take one
    number or an array. A result that does not fit 64 bits is an error, never another window.
    """

    @abc.abstractmethod
    def extent(self, w: Whole) -> tuple[Int64s, Int64s]:
        """Return the low (inclusive) and high (exclusive) ends of windows in x; LOWEST for one without a beginning."""

    @abc.abstractmethod
    def wids(self, x: Whole) -> tuple[Int64s, Int64s]:
        """Return the first and last window-id (both inclusive) of rows; last < first for a row between two windows.

        A last id of HIGHEST means that the row is in every later window.
        """

    @abc.abstractmethod
    def last_complete(self, bound: Whole) -> Int64s:
        """Return the greatest window-id that is complete once every row with x < bound has arrived.

        It never decreases with the bound. Any int64 is a bound: LOWEST before any is known, HIGHEST if all rows have
        arrived.
        """

    def first_live(self, bound: Whole) -> Int64s:
        """Return the least window-id that may still get rows once every row with x < bound has arrived."""
        return affine(self.last_complete(bound), 1, 1)

    def start_and_end(self, w: Whole) -> tuple[Int64s, Int64s]:
        """Return the `window_start` and `window_end` of results, as the kind defines them."""
        return self.extent(w)

    def last_instant(self, w: Whole) -> Int64s:
        """Return the greatest x inside each window: the `window_time` of its result, and x for later windows."""
        return affine(self.extent(w)[1], 1, -1)


@dataclasses.dataclass(frozen=True)
class SlidingWindows(Windows):
    """Windows of a fixed RANGE, one every SLIDE (Eq. 5.2); tumbling if they are equal, with gaps if SLIDE is larger."""

    range: int  # in units of x; it need not be a multiple of SLIDE
    slide: int  # in units of x
    origin: int = 0  # window 0 ends at ``origin + slide``; the paper's least x is known too late
    attribute: Attribute = "time"  # "rank" partitions windows by rows: a window is named by its id and its partition

    def __post_init__(self) -> None:
        _check_length("RANGE", self.range)
        _check_length("SLIDE", self.slide)
        _check_origin(self.origin)

    @property
    def tumbling(self) -> bool:
        return self.range == self.slide

    def extent(self, w: Whole) -> tuple[Int64s, Int64s]:
        high = self.origin + self.slide
        return affine(w, self.slide, high - self.range), affine(w, self.slide, high)

    def wids(self, x: Whole) -> tuple[Int64s, Int64s]:
        first = floor_div(x, self.slide, shift=-self.origin)
        if self.tumbling:
            return first, first
        return first, floor_div(x, self.slide, shift=self.range - self.origin, add=-1)

    def last_complete(self, bound: Whole) -> Int64s:
        return floor_div(bound, self.slide, shift=-self.origin, add=-1, saturate=True)

    @property
    def pane(self) -> int:
        """The largest length that divides both RANGE and SLIDE (thesis §6.2)."""
        return math.gcd(self.range, self.slide)

    def panes(self) -> SlidingWindows:
        """Return the panes as tumbling windows, with the panes' numbers as ids."""
        return SlidingWindows(self.pane, self.pane, self.origin, self.attribute)

    def pane_of(self, x: Whole) -> Int64s:
        """Return the pane of each row. A row between two windows has one too."""
        return self.panes().wids(x)[0]

    def panes_of(self, w: Whole) -> tuple[Int64s, Int64s]:
        """Return the first and last pane (both inclusive) of windows; together they are the extent."""
        first = (self.slide - self.range) // self.pane
        steps = self.slide // self.pane
        return affine(w, steps, first), affine(w, steps, steps - 1)


@dataclasses.dataclass(frozen=True)
class LandmarkWindows(Windows):
    """Windows from the beginning of the stream to every SLIDE: RANGE ALL (Eq. 5.8)."""

    slide: int
    origin: int = 0
    attribute: Attribute = "time"

    def __post_init__(self) -> None:
        _check_length("SLIDE", self.slide)
        _check_origin(self.origin)

    def extent(self, w: Whole) -> tuple[Int64s, Int64s]:
        high = affine(w, self.slide, self.origin + self.slide)
        return np.full_like(high, LOWEST), high

    def wids(self, x: Whole) -> tuple[Int64s, Int64s]:
        first = floor_div(x, self.slide, shift=-self.origin)
        return first, np.full_like(first, HIGHEST)

    def last_complete(self, bound: Whole) -> Int64s:
        return floor_div(bound, self.slide, shift=-self.origin, add=-1, saturate=True)


@dataclasses.dataclass(frozen=True)
class SlideByTupleWindows(Windows):
    """Windows of the last RANGE before every n-th row, which opens the window (Eq. 5.10-5.18).

    A window's id is the time of its row, so the windows depend on the stream: :meth:`windows` returns those that some
    rows open. A row's windows are among the ids ``wids(x)``, which needs no other rows. Those that exist are known once
    the rows up to ``x + range`` are (the paper's forward context), and :meth:`among` finds them. Rows with equal times
    open one window.
    """

    range: int  # in units of x; the extent is ``w - range < x <= w``
    every: int = 1  # SLIDE in rows: the n-th, 2n-th, ... row opens a window
    # order in which rows are counted; ties in time are in the order of arrival
    order: Literal["arrival", "time"] = "arrival"

    def __post_init__(self) -> None:
        _check_length("RANGE", self.range)
        _check_length("SLIDE", self.every)

    def windows(self, x: Whole, number: Whole) -> Int64s:
        """Return the ids of the windows that some rows open, increasing; `number` counts the rows from 0 by `order`."""
        numbers = as_int64(number)
        return np.unique(as_int64(x)[numbers % self.every == self.every - 1])

    def extent(self, w: Whole) -> tuple[Int64s, Int64s]:
        return affine(w, 1, 1 - self.range), affine(w, 1, 1)

    def start_and_end(self, w: Whole) -> tuple[Int64s, Int64s]:
        """Return the window's beginning, which is outside it, and its end, the time of its row, which is inside."""
        return affine(w, 1, -self.range), as_int64(w)

    def wids(self, x: Whole) -> tuple[Int64s, Int64s]:
        """Return the first and last id that a window of each row may have. Only those in :meth:`windows` exist."""
        return as_int64(x), affine(x, 1, self.range - 1)

    def among(self, ids: Int64s, x: Whole) -> tuple[Int64s, Int64s]:
        """Return the first and last position in `ids` (increasing) of each row's windows; last < first if in none."""
        first, last = self.wids(x)
        return np.searchsorted(ids, first), np.searchsorted(ids, last, "right") - 1

    def last_complete(self, bound: Whole) -> Int64s:
        """Return the greatest id that a complete window can have: its row and all rows in it have arrived."""
        return floor_div(bound, 1, add=-1, saturate=True)


def _check_length(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= HIGHEST:
        raise OptionError(
            f"{name} is {value!r}", expected=f"a whole number from 1 to {HIGHEST}, in the windowing attribute's unit"
        )


def _check_origin(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not fits(value):
        raise OptionError(f"origin is {value!r}", expected=f"a whole number from {LOWEST} to {HIGHEST}")
