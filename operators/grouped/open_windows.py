"""The windows that rows may still change: what is late, and which windows are final."""

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
    """The windows that become final in a batch.

    Attributes
    ----------
    before, through : int
        Windows ``before < w <= through``.
    ended : bool
        Whether all input partitions have ended.
    """

    before: int
    through: int
    ended: bool


class OpenWindows:
    """The windows of a shard.

    Parameters
    ----------
    plan : GroupWindowPlan
    saved
        What :meth:`to_json` gave; empty at first.

    Attributes
    ----------
    final : int
        The greatest window that is final.
    late, outside : int
        Rows that came for a window which was final, and rows that are in no window.
    missed : pyarrow.Table or None
        The late rows of this batch.
    """

    def __init__(self, plan: GroupWindowPlan, saved: Any) -> None:
        self._plan = plan
        self._feeds = FeedBounds(saved.get("feeds"))
        self.final = int(saved.get("final", LOWEST))
        self.late = int(saved.get("late", 0))
        self.outside = int(saved.get("outside", 0))
        self.missed: pa.Table | None = None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value."""
        return {"feeds": self._feeds.to_json(), "final": self.final, "late": self.late, "outside": self.outside}

    def placed(self, rows: pa.Table) -> pa.Table:
        """Return rows once for each of their windows that is not final, with the window beside them."""
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
        """Return placed rows without those whose window is final, which are counted as late."""
        late = rows.column(WINDOW).to_numpy() <= self.final
        if not late.any():
            return rows
        self.late += int(np.count_nonzero(late))
        return rows.filter(pa.array(~late))

    def hear(self, punctuation: pa.Table) -> Finals:
        """Raise the bounds of input partitions; return the windows that are final from now on."""
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
    """Yield the rows of each segment of windows; all are in one where windows never become final."""
    if not plan.ends:
        yield 0, rows
        return
    segments: Int64s = rows.column(WINDOW).to_numpy() // plan.segment
    for segment in np.unique(segments).tolist():
        yield segment, rows.filter(pa.array(segments == segment)).combine_chunks()
