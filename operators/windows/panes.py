"""Windows over whole panes, by which state is kept for all kinds of windows."""

from __future__ import annotations

import dataclasses

from ...conf.errors import OptionError
from ...core.rows.exact_integers import Int64s, Whole, as_int64
from .kinds import CalendarWindows, LandmarkWindows, SlideByTupleWindows, SlidingWindows, Windows


@dataclasses.dataclass(frozen=True)
class PaneWindows:
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


def paned(windows: Windows) -> PaneWindows:
    """Return the windows as runs of panes."""
    inner = windows.over if isinstance(windows, CalendarWindows) else windows
    if isinstance(inner, SlidingWindows):
        assert isinstance(windows, SlidingWindows | CalendarWindows)
        return PaneWindows(windows, SlidingWindows(inner.range // inner.pane, inner.slide // inner.pane))
    if isinstance(inner, LandmarkWindows):
        assert isinstance(windows, LandmarkWindows | CalendarWindows)
        return PaneWindows(windows, LandmarkWindows(1))
    assert isinstance(inner, SlideByTupleWindows)
    return PaneWindows(inner, inner)


MOST_WINDOWS = 10_000
"""Windows that a row may be in where state holds something for each of them, for each row."""
MOST_RESULTS = 1_000_000
"""Windows that a row may be in where each of them gives a result."""
MOST_PANES = 1 << 31
"""Panes that a window may consist of. Beyond, no two rows share one, and what is kept is a costly copy of the rows."""


def check_size(paned: PaneWindows, method: str, every: bool, entry_bytes: int) -> None:
    """Refuse windows that need more for one row than any state holds; the number of rows is unknown here."""
    windows, panes = paned.most_windows, paned.most_panes
    if windows is None or panes is None:
        return
    if method == "wid" and windows > MOST_WINDOWS:
        raise OptionError(
            f"with method='wid' each row would be in {windows:,} windows: {_size(windows * entry_bytes)} of partial "
            "aggregates for one row",
            expected=f"at most {MOST_WINDOWS:,} windows for each row (RANGE / SLIDE)",
            hint="take method='paned', which keeps one partial aggregate for each row at most, or a longer SLIDE",
        )
    if every and windows > MOST_RESULTS:
        raise OptionError(
            f"with output='all' one row would give {windows:,} results, one for each window that it is in: "
            f"{_size(windows * entry_bytes)}",
            expected=f"at most {MOST_RESULTS:,} windows for each row (RANGE / SLIDE)",
            hint="take output='latest', which gives of each key the latest window only, or a longer SLIDE",
        )
    if method == "paned" and panes > MOST_PANES:
        raise OptionError(
            f"a window would consist of {panes:,} panes: up to {_size(panes * entry_bytes)} of partial aggregates for "
            "one key",
            expected=f"at most {MOST_PANES:,} panes, each as long as the largest duration that divides both RANGE and "
            "SLIDE",
            hint="choose a SLIDE that divides RANGE, such as a tenth of it; or take method='buffering', which keeps "
            "the rows instead",
        )


def _size(count: float) -> str:
    for unit in ("bytes", "KB", "MB", "GB", "TB"):
        if count < 1024:
            return f"{count:,.0f} {unit}"
        count /= 1024
    return f"{count:,.0f} PB"
