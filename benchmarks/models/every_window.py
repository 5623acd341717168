"""Every window, as on append streams, and random window drop: what update semantics are compared with (tr620 §6.3.1).

Rows wait in one queue, first come first served. Each starter opens its window, so that a row costs as much as there are
open windows of its key: the snowball of overlapping windows. Random window drop opens only a part of the windows; rows
of none are not queued.
"""

from __future__ import annotations

import collections

import numpy as np

from upstream.conf.errors import OptionError
from upstream.core.rows.exact_integers import LOWEST
from upstream.operators.windows.emission import NONE, latest_started
from upstream.operators.windows.kinds import SlidingWindows

from .marks import DISALLOW, NO_STARTER, Aggregate, MarkedRow, Result, ServedTick
from .transitions import check_cost, check_tick

__all__ = ["EveryWindow"]


class EveryWindow:
    """A queue and an operator with append semantics; its events are those of :class:`.transitions.KeyTransitionGraph`.

    Parameters
    ----------
    windows : SlidingWindows
        Over ticks.
    cost : int
        Ticks that a row takes in each window that it updates.
    keep : float
        The share of windows that are opened, chosen at random. A row is in RANGE / SLIDE windows, so load is at most 1
        with SLIDE / (RANGE · cost · rows per tick).
    seed : int
        Of the choice.
    """

    def __init__(self, windows: SlidingWindows, *, cost: int = 1, keep: float = 1.0, seed: int = 0) -> None:
        check_cost(cost)
        if not 0 <= keep <= 1:
            raise OptionError(f"a share of {keep} of the windows", expected="a share from 0 to 1")
        self._windows = windows
        self._cost = cost
        self._keep = keep
        self._random = np.random.default_rng(seed)
        self._queue: collections.deque[tuple[int, MarkedRow]] = collections.deque()
        self._started: dict[int, int] = {}
        self._opened_until: dict[int, int] = {}
        self._arrived: dict[int, int] = {}
        self._aggregate = Aggregate()
        self._bound = LOWEST
        self._busy_until: int | None = None
        self._emerging: list[Result] = []

    def __len__(self) -> int:
        """Return the number of rows that wait."""
        return len(self._queue)

    def arrive(self, time: int, key: int, now: int) -> None:
        """Accept a row. Rows of a key come in the order of time, one per tick of its windows."""
        del now
        check_tick(time, key, max(self._bound, self._arrived.get(key, LOWEST)))
        self._arrived[key] = time + 1
        window = int(latest_started(self._windows, time))
        mark = NO_STARTER
        if window not in (NONE, self._started.get(key)):
            self._started[key] = window
            mark = DISALLOW
            if self._random.random() < self._keep:
                mark = self._opened_until[key] = int(self._windows.extent(window)[1]) - 1
        if time <= self._opened_until.get(key, 0):
            self._queue.append((key, MarkedRow(time, mark)))

    def progress(self, bound: int, now: int) -> None:
        """Raise the low-watermark: every row before `bound` has arrived, of all keys."""
        del now
        self._bound = max(self._bound, bound)

    def serve(self, now: int) -> ServedTick:
        """Run the operator for a tick: finish a row whose time is up, and begin the next one."""
        if self._busy_until is not None and now < self._busy_until:
            return ServedTick()
        results, self._emerging = self._emerging, []
        self._busy_until = None
        # What is queued before a row in time has been read, so the low-watermark stands at the row.
        results += self._aggregate.close_all(min(self._bound, self._queue[0][1].time) if self._queue else self._bound)
        if self._queue:
            key, row = self._queue.popleft()
            updated, self._emerging = self._aggregate.read(key, row)
            self._busy_until = now + self._cost * updated
        return ServedTick(tuple(results))
