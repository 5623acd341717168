"""Windows over whole panes: what state is kept by, whatever the windows are over."""

from __future__ import annotations

import dataclasses

from ...conf.errors import OptionError
from .calendars import CalendarWindows
from .exact import Int64s, Whole
from .kinds import LandmarkWindows, SlidingWindows, Windows

__all__ = ["Paned", "paned"]


@dataclasses.dataclass(frozen=True)
class Paned:
    """Windows as runs of panes (thesis §6.2): rows are reduced to panes, and all that follows knows pane numbers only.

    Attributes
    ----------
    windows : Windows
        Over the windowing attribute x.
    over : SlidingWindows or LandmarkWindows
        The same windows over pane numbers: same ids.
    """

    windows: SlidingWindows | LandmarkWindows | CalendarWindows
    over: SlidingWindows | LandmarkWindows

    def pane_of(self, x: Whole) -> Int64s:
        """The pane of each row."""
        if self.endless:
            return self.windows.wids(x)[0]
        assert not isinstance(self.windows, LandmarkWindows)
        return self.windows.pane_of(x)

    def first_and_last(self, w: Whole) -> tuple[Int64s, Int64s]:
        """First and last pane (both inclusive) of windows."""
        low, high = self.over.extent(w)
        return low, high - 1

    @property
    def endless(self) -> bool:
        """Whether rows never leave the windows: landmark windows."""
        return isinstance(self.over, LandmarkWindows)

    @property
    def disjoint(self) -> bool:
        """Whether a pane is in one window at most."""
        return isinstance(self.over, SlidingWindows) and self.over.range <= self.over.slide

    @property
    def most_panes(self) -> int | None:
        """Panes in a window; None for landmark windows."""
        return self.over.range if isinstance(self.over, SlidingWindows) else None


def paned(windows: Windows) -> Paned:
    """The windows as runs of panes.

    Raises
    ------
    OptionError
        They have no panes: windows that slide by tuple.
    """
    inner = windows.over if isinstance(windows, CalendarWindows) else windows
    if isinstance(inner, SlidingWindows):
        assert isinstance(windows, SlidingWindows | CalendarWindows)
        return Paned(windows, SlidingWindows(inner.range // inner.pane, inner.slide // inner.pane))
    if isinstance(inner, LandmarkWindows):
        assert isinstance(windows, LandmarkWindows | CalendarWindows)
        return Paned(windows, LandmarkWindows(1))
    raise OptionError(
        "windows that slide by tuple have no panes",
        expected="sliding, tumbling or landmark windows, by time or of a calendar",
    )
