"""Windows over whole panes, by which state is kept for all kinds of windows."""

from __future__ import annotations

import dataclasses

from ...core.rows.exact_integers import Int64s, Whole, as_int64
from .calendars import CalendarWindows
from .kinds import LandmarkWindows, SlideByTupleWindows, SlidingWindows, Windows

__all__ = ["Paned", "paned"]


@dataclasses.dataclass(frozen=True)
class Paned:
    """Windows as runs of panes (thesis §6.2): rows are reduced to panes, and all else uses pane numbers only."""

    windows: SlidingWindows | LandmarkWindows | CalendarWindows | SlideByTupleWindows  # over the windowing attribute x
    # the same windows, with the same ids, over pane numbers
    over: SlidingWindows | LandmarkWindows | SlideByTupleWindows

    def pane_of(self, x: Whole) -> Int64s:
        if isinstance(self.windows, SlideByTupleWindows):
            return as_int64(x)
        if self.endless:
            return self.windows.wids(x)[0]
        assert not isinstance(self.windows, LandmarkWindows)
        return self.windows.pane_of(x)

    def first_and_last(self, w: Whole) -> tuple[Int64s, Int64s]:
        """Return the first and last pane (both inclusive) of windows."""
        low, high = self.over.extent(w)
        return low, high - 1

    @property
    def endless(self) -> bool:
        """True for landmark windows, which rows never leave."""
        return isinstance(self.over, LandmarkWindows)

    @property
    def disjoint(self) -> bool:
        """True if a pane is in one window at most."""
        return isinstance(self.over, SlidingWindows) and self.over.range <= self.over.slide

    @property
    def most_panes(self) -> int | None:
        """Panes in a window; None for landmark windows."""
        return None if isinstance(self.over, LandmarkWindows) else self.over.range

    @property
    def most_windows(self) -> int | None:
        """Windows that a row may be in; None if that depends on other rows, or has no end."""
        return -(-self.over.range // self.over.slide) if isinstance(self.over, SlidingWindows) else None

    @property
    def by_row(self) -> bool:
        """True if rows open windows: then each instant is a pane, and a window has the id of its row's pane."""
        return isinstance(self.over, SlideByTupleWindows)


def paned(windows: Windows) -> Paned:
    """Return the windows as runs of panes."""
    inner = windows.over if isinstance(windows, CalendarWindows) else windows
    if isinstance(inner, SlidingWindows):
        assert isinstance(windows, SlidingWindows | CalendarWindows)
        return Paned(windows, SlidingWindows(inner.range // inner.pane, inner.slide // inner.pane))
    if isinstance(inner, LandmarkWindows):
        assert isinstance(windows, LandmarkWindows | CalendarWindows)
        return Paned(windows, LandmarkWindows(1))
    assert isinstance(inner, SlideByTupleWindows)
    return Paned(inner, inner)
