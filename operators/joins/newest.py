"""The newest pair of each key: that with the greatest time, then the greatest time of its earlier row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.rows.exact_integers import LOWEST, Int64s
from ...core.rows.newest import key_codes
from ...core.rows.sort_keys import ordered
from ..runtime.entries import PANE
from ..runtime.runs import Run, Runs
from ..runtime.store import Store
from .band import RIGHT
from .matching import equal_keys, key_numbers, matches, sorted_rows
from .plan import JOIN_TIME, JoinPlan
from .side import NUMBER

__all__ = ["NewestPairs"]

_LOW, _HIGH = "__upstream_low", "__upstream_high"


class NewestPairs:
    """The last emitted result of each key, as long as another pair may have the same time.

    A latest table takes the row with the greatest time, and of two with one time the one that arrives later. A pair of
    an older row, found late, must not replace the newer pair with the same time. A pair is newer than a row without a
    partner at its time, since such a row may have been emitted early.
    """

    def __init__(self, store: Store, plan: JoinPlan, known: Sequence[Any]) -> None:
        self._plan = plan
        self._given = Runs(store, "newest", known, 1)
        # A time that is one of the columns of `on` is there once, under the left's name.
        names = dict(zip(plan.right.on, plan.left.on, strict=True))
        names |= {each.source: each.name for each in plan.columns if each.side == RIGHT}
        self._other_time = names[plan.right.time]

    @property
    def known(self) -> list[Run]:
        return self._given.known

    @property
    def bytes(self) -> int:
        return self._given.bytes

    def filtered(self, results: pa.Table, promised: int) -> pa.Table:
        """Return the newest result of each key, unless a newer one with its time was emitted before.

        Later results are not before `promised`.
        """
        plan, segment = self._plan, self._plan.band.segment
        if results.num_rows:
            keys = list(plan.left.on)
            low, high = self._times(results)
            codes, size = key_codes([results.column(name) for name in keys])
            last = np.full(size, -1)
            order = np.lexsort((low, high))
            last[codes[order]] = order  # of equal indices the last one stays
            best = np.sort(last[last >= 0])
            results, low, high = results.take(pa.array(best)).combine_chunks(), low[best], high[best]
            numbers = key_numbers([results.column(name) for name in keys])
            stale = np.zeros(len(low), dtype=np.bool_)
            for table in self._given.tables(int(high.min()) // segment, int(high.max()) // segment):
                rows = sorted_rows(table.column(NUMBER).to_numpy(), table.column(_HIGH).to_numpy(), table)
                for at, there in matches(numbers, high, high, rows):
                    newer = rows.table.column(_LOW).to_numpy()[there] > low[at]
                    if not plan.exact:
                        same = equal_keys(results, plan.left.on, at, rows.table, plan.left.on, there)
                        newer &= same.to_numpy(zero_copy_only=False)
                    stale[at[newer]] = True
            results, low, high, numbers = results.filter(pa.array(~stale)), low[~stale], high[~stale], numbers[~stale]
            again = pa.array(high >= promised)
            kept = results.select(keys)
            for name, values in ((PANE, high // segment), (NUMBER, numbers), (_LOW, low), (_HIGH, high)):
                kept = kept.append_column(name, pa.array(values))
            self._given.add(kept.filter(again))
        self._given.drop_below(promised // segment)
        return results

    def _times(self, results: pa.Table) -> tuple[Int64s, Int64s]:
        """Return the earlier and the later time of each result's two rows; `LOWEST` for a missing row."""
        high = ordered(results.column(JOIN_TIME)).astype(np.int64, copy=False)
        low = high
        for name in (self._plan.left.time, self._other_time):
            if name not in results.column_names:
                continue
            column = results.column(name)
            there = column.is_valid().to_numpy()
            times = np.full(len(high), LOWEST, dtype=np.int64)
            times[there] = ordered(column.filter(pc.is_valid(column)))
            low = np.minimum(low, times)
        return low, high
