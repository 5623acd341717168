"""The staleness of a commit's rows at the moment they become visible."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from ...core.feedback.ages import Ages, Staleness
from ...core.rows.exact_integers import Int64s
from .batch_rows import UNKNOWN

# More distinct arrivals than this are grouped by rank, so that a message stays small; ranks are then right to 1 in this
# many.
_MOST = 4096


@dataclasses.dataclass(frozen=True)
class Arrivals:
    """The distribution of delivered rows' first arrivals, of bounded size, from which the commit computes ages.

    A row's *application staleness* is the time from the first arrival of the oldest update that it represents
    to the commit that shows it.
    """

    at_us: Int64s  # distinct arrivals, or means of neighbouring ones, increasing
    count: Int64s  # rows at each
    first_us: int  # the exact earliest arrival; meaningless without rows

    @classmethod
    def of(cls, arrival_us: Int64s | None) -> Arrivals:
        if arrival_us is None:
            arrival_us = np.empty(0, dtype=np.int64)
        at_us, count = np.unique(arrival_us[arrival_us != UNKNOWN], return_counts=True)
        return cls._bounded(at_us, count.astype(np.int64))

    @classmethod
    def together(cls, parts: Sequence[Arrivals]) -> Arrivals:
        if not parts:
            return cls.of(None)
        if len(parts) == 1:
            return parts[0]
        at_us, place = np.unique(np.concatenate([part.at_us for part in parts]), return_inverse=True)
        count = np.zeros(len(at_us), dtype=np.int64)
        np.add.at(count, place, np.concatenate([part.count for part in parts]))
        merged = cls._bounded(at_us, count)
        return dataclasses.replace(
            merged, first_us=min((part.first_us for part in parts if len(part.at_us)), default=0)
        )

    @classmethod
    def _bounded(cls, at_us: Int64s, count: Int64s) -> Arrivals:
        first = int(at_us[0]) if len(at_us) else 0
        if len(at_us) <= _MOST:
            return cls(at_us, count, first)
        rank = np.cumsum(count) - count
        starts = np.flatnonzero(np.diff(rank * _MOST // int(count.sum()), prepend=-1))
        grouped = np.add.reduceat(count, starts)
        offset = np.add.reduceat((at_us - first).astype(np.float64) * count, starts)
        return cls(first + np.round(offset / grouped).astype(np.int64), grouped, first)

    def staleness(self, committed_us: int) -> Staleness | None:
        """Return the rows' ages at the commit; None without rows.

        A row from the future (after a clock was set back) has age 0.
        """
        rows = int(self.count.sum())
        if rows == 0:
            return None
        ages = np.maximum(committed_us - self.at_us[::-1], 0) / 1e6
        count = self.count[::-1]
        upto = np.cumsum(count)
        p50, p99 = (float(ages[np.searchsorted(upto, np.ceil(share * rows))]) for share in (0.5, 0.99))
        mean = float((ages * count).sum() / rows)
        return Staleness(mean, p50, p99, max(committed_us - self.first_us, 0) / 1e6)

    def ages(self, committed_us: int) -> Ages:
        """Return the rows' ages at the commit, to be added to those of other commits."""
        return Ages.of(committed_us - self.at_us, self.count)

    def area(self, committed_us: int, previous_us: int | None) -> tuple[float, float]:
        """Return bounds of the staleness over time that ends with this commit, in square seconds, summed over keys.

        A key whose update arrived at e, committed at t, adds the integral of x - e from max(e, p) to t; p is the
        commit of its previous result, which the table does not record. It is not later than `previous_us`, so the
        integral from there is the least, and the whole ramp from e the most.
        """
        age = np.maximum(committed_us - self.at_us, 0) / 1e6
        before = np.zeros_like(age) if previous_us is None else np.maximum(previous_us - self.at_us, 0) / 1e6
        most = age**2 / 2
        least = most - np.minimum(before, age) ** 2 / 2
        return float((least * self.count).sum()), float((most * self.count).sum())
