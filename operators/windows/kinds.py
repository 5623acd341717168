"""Window specifications as functions between numbers: `extent`, `wids`, and what a low-watermark completes.

Each kind defines which rows a window holds by their windowing attribute x alone (Li's WID semantics, thesis ch. 5), so
neither the order of arrival nor the split into batches can matter. x is an int64: microseconds since the epoch, a row
number counted from 0, a row's rank in its partition, or any other number that grows with the stream. All functions take
one number or an array of them and are array operations; a result that does not fit 64 bits is an error, never another
window.
"""

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
"""What x is: the event time, the row's number in the stream, or its rank in its partition. The formulas are the same.
"""


class Windows(abc.ABC):
    """A window specification.

    A row with value x is in window w iff ``low <= x < high`` for ``low, high = extent(w)``, and iff ``first <= w <=
    last`` for ``first, last = wids(x)``. Both state one relation; the tests hold one against the other.
    """

    @abc.abstractmethod
    def extent(self, w: Whole) -> tuple[Int64s, Int64s]:
        """Return the low (inclusive) and high (exclusive) ends of windows in x; LOWEST for one without a beginning."""

    @abc.abstractmethod
    def wids(self, x: Whole) -> tuple[Int64s, Int64s]:
        """Return the first and last window-id (both inclusive) of rows; last < first for a row between two windows.

        If the last one is HIGHEST, there is none: the row is in every later window.
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
        """Return the `window_start` and `window_end` of results: the ends as the definition of the kind writes them."""
        return self.extent(w)

    def last_instant(self, w: Whole) -> Int64s:
        """Return the greatest x inside each window: the `window_time` of its result, by which later windows hold it."""
        return affine(self.extent(w)[1], 1, -1)


@dataclasses.dataclass(frozen=True)
class SlidingWindows(Windows):
    """Windows of a fixed RANGE, one every SLIDE (Eq. 5.2); tumbling if they are equal, with gaps if SLIDE is larger.

    Attributes
    ----------
    range, slide : int
        In units of x. RANGE need not be a multiple of SLIDE.
    origin : int
        Window 0 ends at ``origin + slide``. The paper takes the least value in the stream, which is known only
        afterwards.
    attribute : Attribute
        "rank" makes them windows partitioned by rows: x is the rank from :func:`.rows.ranks`, and a window is named by
        its id and its partition.

    Examples
    --------
    Ten minutes every minute, in seconds; a row at 5 s is in windows 0 to 9:

    >>> ten_minutes = SlidingWindows(range=600, slide=60)
    >>> [int(end) for end in ten_minutes.wids(5)]
    [0, 9]
    >>> [int(end) for end in ten_minutes.extent(9)]
    [0, 600]
    """

    range: int
    slide: int
    origin: int = 0
    attribute: Attribute = "time"

    def __post_init__(self) -> None:
        _check_length("RANGE", self.range)
        _check_length("SLIDE", self.slide)
        _check_origin(self.origin)

    @property
    def tumbling(self) -> bool:
        """Whether each value is in exactly one window."""
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
        """Return the panes: tumbling windows, whose ids number the panes and whose extents are theirs."""
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
    """Windows from the beginning of the stream to every SLIDE: RANGE ALL (Eq. 5.8).

    Attributes
    ----------
    slide, origin, attribute
        As for :class:`SlidingWindows`.
    """

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
    """A window that ends with a row: every row, or every n-th, opens the window of the last RANGE before it (Eq.
    5.10-5.18).

    A window's id is the time of its row, so which windows there are depends on the stream: :meth:`windows` returns
    those that some rows open. A row's windows are among the ids in ``wids(x)``, which needs no other rows; those that
    exist are known once the rows up to ``x + range`` are (the paper's forward context), and :meth:`among` finds them.
    Rows with equal times open one window.

    Attributes
    ----------
    range : int
        In units of x. The extent is ``w - range < x <= w``.
    every : int
        SLIDE, in rows: the n-th, 2n-th, ... row opens a window.
    order : {"arrival", "time"}
        Whether rows are counted as they arrive, or in the order of their times (ties in the order of arrival).
    """

    range: int
    every: int = 1
    order: Literal["arrival", "time"] = "arrival"

    def __post_init__(self) -> None:
        _check_length("RANGE", self.range)
        _check_length("SLIDE", self.every)

    def windows(self, x: Whole, number: Whole) -> Int64s:
        """Return the ids of the windows that some rows open, increasing.

        Parameters
        ----------
        x
            The times of the rows.
        number
            The number of each row, counted from 0: in order of arrival, or by its rank in time
            (:func:`.rows.ranks_by_time`), depending on `order`.
        """
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
