"""Retention of deleted keys, until the watermark has passed them and no older row is expected."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.rows.exact_integers import LOWEST
from ...core.rows.sort_keys import ordered
from ...core.rows.system_column import system_field
from ...core.watermark.bounds import bounds_in
from ..runtime.arrivals import micros
from ..runtime.feeds import ENDED, FeedBounds, key_mask
from .latest_plan import VERSION, LatestSide

__all__ = ["ALIVE", "TIME", "Forgetting"]

TIME, ALIVE = "__upstream_time", "__upstream_alive"
"""Columns of kept rows: the time that orders a key's rows, and a flag that is false for a deleted key."""

Mask = npt.NDArray[np.bool_]


class Forgetting:
    """The retention of one side's deleted keys in a shard, and the side's low-watermark.

    `floor` is the greatest version of a forgotten key: a key that returns must get a greater one. `heard_us` is the
    arrival of the last punctuation that counts.
    """

    def __init__(self, side: LatestSide, saved: Any) -> None:
        self._side = side
        self._feeds = FeedBounds(saved.get("feeds"))
        self.floor = int(saved.get("floor", 0))
        self.heard_us = int(saved.get("heard_us", 0))
        low = None if side.retention is None else self._feeds.low_watermark
        # A batch's own punctuation counts from the next batch on.
        self._below = LOWEST if low is None or side.retention is None else max(low - side.retention, LOWEST)

    def to_json(self) -> dict[str, Any]:
        return {"feeds": self._feeds.to_json(), "floor": self.floor, "heard_us": self.heard_us}

    def hear(self, punctuation: pa.Table) -> None:
        """Raise the bounds of the side's input partitions. Punctuation of single keys does not count."""
        side = self._side
        if not side.hears or side.event_time is None or not punctuation.num_rows:
            return
        rows = punctuation.filter(pa.array(~key_mask(punctuation, [*side.on, *side.key])))
        if rows.num_rows:
            self.heard_us = max(self.heard_us, int(micros(rows, "arrival").max()))
            at = bounds_in(rows.column(side.event_time), ordered)
            self._feeds.hear(system_field(rows, "source").to_pylist(), at.tolist())

    @property
    def passed(self) -> int | None:
        """The low-watermark of the input partitions that have not ended.

        None if it is unknown, or if all have ended: the last rows then stay.
        """
        bounds = [bound for bound in self._feeds.bounds.values() if bound != ENDED]
        return min(bounds) if bounds and self._feeds.low_watermark is not None else None

    def over(self, rows: pa.Table) -> Mask:
        """Return which kept rows, with :data:`TIME` and :data:`ALIVE`, are deletions past their retention."""
        if self._below == LOWEST:
            return np.zeros(rows.num_rows, dtype=np.bool_)
        alive = pc.fill_null(rows.column(ALIVE), True).to_numpy()
        return ~alive & (pc.fill_null(rows.column(TIME), 0).to_numpy() < self._below)

    def forget(self, rows: pa.Table) -> Mask:
        """Return which kept rows can be dropped, and raise `floor` to their greatest version."""
        over = self.over(rows)
        if over.any():
            self.floor = max(self.floor, int(rows.column(VERSION).to_numpy()[over].max()))
        return over
