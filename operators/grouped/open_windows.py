"""The windows that rows may still change: late rows, and final windows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ...core.rows.exact_integers import LOWEST, Int64s
from ...core.rows.system_column import system_field
from ...core.watermark.bounds import bounds_in
from ..runtime.feeds import ENDED, FeedBounds, key_mask
from ..windows.rows import expand
from .window_plan import WINDOW, GroupWindowPlan

__all__ = ["Finals", "OpenWindows", "by_segment"]


class Finals(NamedTuple):
    """The windows ``before < w <= through``, which become final in a batch."""

    before: int
    through: int
    ended: bool  # whether all input partitions have ended


class OpenWindows:
    """A shard's progress through windows: those up to `final` are final.

    `late` counts rows of a final window, `outside` those in no window. `missed` holds the late rows of this batch.
    """

    def __init__(self, plan: GroupWindowPlan, saved: Any) -> None:
        self._plan = plan
        self._feeds = FeedBounds(saved.get("feeds"))
        self.final = int(saved.get("final", LOWEST))
        self.late = int(saved.get("late", 0))
        self.outside = int(saved.get("outside", 0))
        self.missed: pa.Table | None = None

    def to_json(self) -> dict[str, Any]:
        return {"feeds": self._feeds.to_json(), "final": self.final, "late": self.late, "outside": self.outside}

    def placed(self, rows: pa.Table) -> pa.Table:
        """Return each row once for each of its windows that is not final, with a column of the window."""
        if rows.num_rows == 0:
            return rows.append_column(WINDOW, pa.array([], pa.int64()))
        windows = self._plan.window.windows
        first, last = windows.wids(self._plan.window.times(rows))
        nowhere = last < first
        self.outside += int(np.count_nonzero(nowhere))
        late = (first <= self.final) & ~nowhere
        if late.any():
            missed = self.missed = rows.filter(pa.array(late))
            self.late += missed.num_rows
            first = np.where(late, self.final + 1, first)
        row, window = expand(first, last)
        return rows.take(pa.array(row)).append_column(WINDOW, pa.array(window))

    def still_open(self, rows: pa.Table) -> pa.Table:
        """Return placed rows without those of final windows, which are counted as late."""
        late = rows.column(WINDOW).to_numpy() <= self.final
        if not late.any():
            return rows
        self.late += int(np.count_nonzero(late))
        return rows.filter(pa.array(~late))

    def hear(self, punctuation: pa.Table) -> Finals:
        """Raise the bounds of input partitions by punctuation; return the windows that become final."""
        plan = self._plan.window
        if punctuation.num_rows:
            # Punctuation of one key makes no window of a group final.
            names = dict.fromkeys([*self._plan.key, *self._plan.group])
            punctuation = punctuation.filter(
                pa.array(~key_mask(punctuation, [name for name in names if name != plan.time]))
            )
        if punctuation.num_rows:
            assert plan.time is not None
            name = plan.time
            bounds = bounds_in(punctuation.column(name), lambda times: plan.times(pa.table([times], [name])))
            self._feeds.hear(system_field(punctuation, "source").to_pylist(), bounds.tolist())
        bound, before = self._feeds.low_watermark, self.final
        if bound == ENDED:
            self.final = max(before, int(plan.windows.last_complete(ENDED)))
        elif bound is not None and bound > LOWEST + plan.lateness_us:
            self.final = max(before, int(plan.windows.last_complete(bound - plan.lateness_us)))
        return Finals(before, self.final, bound == ENDED)


def by_segment(plan: GroupWindowPlan, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each segment of windows; one segment has all if windows never become final."""
    if not plan.ends:
        yield 0, rows
        return
    segments: Int64s = rows.column(WINDOW).to_numpy() // plan.segment
    for segment in np.unique(segments).tolist():
        yield segment, rows.filter(pa.array(segments == segment)).combine_chunks()
