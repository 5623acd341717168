"""The statistics monitor (tr620 §4.2): the update rates of keys, and the cost of a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...conf.errors import OptionError
from ...core.rows.exact_integers import Int64s

Floats = npt.NDArray[np.float64]

_LN2 = float(np.log(2.0))
_SLOW = 256.0  # by how much longer the half-life of the slow count is
_SILENT = 3.0  # a key that has been silent for some seconds has at most this rate within them


class StatisticsMonitor:
    """Update rates and the cost of a row, by which linecutting and shedding decide. Both can be pinned.

    Rates are decayed counts: an update counts 1 when it arrives, and half of that after `half_life_s`. If a key has
    fewer than 2 by then, a count that fades more slowly decides: the last update would make the rate alone. A key that
    has been silent for long has a lower rate. The counts are in a table of `cells` entries, by the key's number, which
    doubles with the keys up to `most_cells`. Keys that share a cell seem faster than they are, so they are not mistaken
    for slow updaters. Pinned rates are by the key's number.
    """

    def __init__(
        self,
        *,
        half_life_s: float = 60.0,
        cells: int = 1 << 12,
        most_cells: int = 1 << 18,
        cost_s: float | None = None,
        rate_per_s: Floats | None = None,
    ) -> None:
        if half_life_s <= 0 or cells < 1 or (cost_s is not None and cost_s < 0):
            raise OptionError(
                f"half life {half_life_s} s, {cells} cells, cost {cost_s} s",
                expected="a half life above 0, at least 1 cell, a cost of at least 0",
            )
        self._half_life_s = half_life_s
        self._decay = _LN2 / half_life_s / np.array([[1.0], [_SLOW]])
        self._most_cells = most_cells
        self._pinned_cost = cost_s
        self._pinned_rate = rate_per_s
        self._pinned_up_to: Floats | None = None
        # By cell: both counts, and 1 if a key has been there since the table was made.
        self._count: Floats = np.zeros((3, cells), dtype=np.float64)
        self._at_us: int | None = None
        self._since_us: int | None = None
        self._cost_s: float | None = None

    @property
    def cost_s(self) -> float | None:
        """Seconds to process one row, pinned or measured; None until something is measured."""
        return self._cost_s if self._pinned_cost is None else self._pinned_cost

    def arrived(self, keys: Int64s, now_us: int, covered: Int64s | None = None) -> None:
        """Count one update for each of `keys`, or as many as in `covered`; a key may occur more than once."""
        if self._pinned_rate is not None:
            return
        self._fade(now_us)
        count = self._count
        count[2, keys % count.shape[1]] = 1
        while 2 * count[2].sum() > count.shape[1] < self._most_cells:
            # Half of a cell's keys move. A fast one would leave its slow count to the others.
            count[1, count[0] >= 4] = 0
            count = self._count = np.tile(count / 2, 2)
            count[2] = 0
            count[2, keys % count.shape[1]] = 1
        count[:2] += np.bincount(keys % count.shape[1], covered, count.shape[1])

    def served(self, rows: int, seconds: float) -> None:
        """Record that processing `rows` took `seconds`. Half of the estimate is the newest figure."""
        if rows > 0 and seconds >= 0:
            measured = seconds / rows
            self._cost_s = measured if self._cost_s is None else (self._cost_s + measured) / 2

    def rate_per_s(self, keys: Int64s) -> Floats:
        if self._pinned_rate is not None:
            return self._pinned_rate[keys]
        if self._at_us is None or self._since_us is None:
            return np.zeros(len(keys))
        # A constant rate u seen for T seconds has the decayed count u (1 - e^(-decay T)) / decay. The first update only
        # opens the interval, so a key that is seen for the first time is not yet a fast one.
        seen_s = max((self._at_us - self._since_us) / 1e6, 1e-6)
        count = self._count[:2, keys % self._count.shape[1]]
        fast, slow = count * self._decay / -np.expm1(-self._decay * seen_s)
        with np.errstate(divide="ignore"):
            silent_s = self._half_life_s * np.maximum(-np.log2(count[0]), 0)
            return np.where(count[0] < 2, np.minimum(slow, _SILENT / silent_s), fast)

    def slow(self, keys: Int64s, residents: Int64s) -> npt.NDArray[np.bool_]:
        """Return whether each of `keys` is a slow updater, if `residents` keys wait including it (tr620 §5.3).

        A key is slow if all residents are served once between two of its updates: ``c n < 1 / u_k``. Slower keys leave
        less time for that: ``u_k c n < 1 - c Σ u_j`` over all j with ``u_j <= u_k``. Without the sum, slow updaters
        that together overload the server would keep all others waiting forever (docs/decisions/0005-linecutting.md). No
        key is slow while the cost is unknown.
        """
        cost = self.cost_s
        if cost is None:
            return np.zeros(len(keys), dtype=np.bool_)
        up_to = self._rates_up_to() if self._pinned_up_to is None else self._pinned_up_to
        if self._pinned_rate is not None:
            self._pinned_up_to = up_to  # these rates stay as they are
        return self.rate_per_s(keys) * cost * residents < 1.0 - cost * up_to[keys % len(up_to)]

    def _rates_up_to(self) -> Floats:
        """Return for each cell the sum of all rates up to its own, with one search per cell and not per row."""
        pinned = self._pinned_rate
        each = self.rate_per_s(np.arange(self._count.shape[1] if pinned is None else len(pinned)))
        every = np.sort(each)
        return np.cumsum(every)[np.searchsorted(every, each, side="right") - 1]

    def snapshot(self) -> dict[str, Any]:
        return {"count": self._count.copy(), "at_us": self._at_us, "since_us": self._since_us, "cost_s": self._cost_s}

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from a snapshot. Without counts in it, the rates start again from zero."""
        if len(state["count"]):
            self._count = np.array(state["count"], dtype=np.float64)
            self._at_us, self._since_us = state["at_us"], state["since_us"]
        self._cost_s = state["cost_s"]

    def _fade(self, now_us: int) -> None:
        if self._at_us is None:
            self._at_us = self._since_us = now_us
        elif now_us > self._at_us:  # a clock that jumps back fades nothing
            self._count[:2] *= np.exp(-self._decay * (now_us - self._at_us) / 1e6)
            self._at_us = now_us
