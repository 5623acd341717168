"""Refusal of windows that no state can hold, before the first row arrives."""

from __future__ import annotations

from ...conf.errors import OptionError
from .panes import Paned

__all__ = ["MOST_PANES", "MOST_RESULTS", "MOST_WINDOWS", "check_size"]

MOST_WINDOWS = 10_000
"""Windows that a row may be in where state holds something for each of them, for each row."""
MOST_RESULTS = 1_000_000
"""Windows that a row may be in where each of them gives a result."""
MOST_PANES = 1 << 31
"""Panes that a window may consist of. Beyond, no two rows share one, and what is kept is a costly copy of the rows."""


def check_size(paned: Paned, method: str, every: bool, entry_bytes: int) -> None:
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
