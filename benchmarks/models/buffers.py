"""Window buffers: the rows of one key that wait, and those of the window that is being processed (tr620 §6.2, Figure
11).

Rows accumulate in the enqueue buffer, which drops them in units of windows; a commit moves the window that is the most
recent update to the dequeue buffer, and marks it. A lazy buffer overwrites when a window closes, an eager one when a
window starts.
"""

from __future__ import annotations

import abc
import collections
import functools

from upstream.core.rows.exact_integers import LOWEST
from upstream.operators.windows.emission import NONE, latest_started
from upstream.operators.windows.kinds import SlidingWindows

from .marks import DISALLOW, NO_STARTER, MarkedRow

__all__ = ["EagerWindowBuffer", "LazyWindowBuffer", "WindowBuffer"]


class WindowBuffer(abc.ABC):
    """The rows of one key.

    Parameters
    ----------
    windows : SlidingWindows
        Over ticks.

    Attributes
    ----------
    enqueued, dequeued : deque of MarkedRow
        The two buffers, each in the order of time.
    committed : (int, int) or None
        First and last tick of the window that is being processed.
    bound : int
        Every row of this key before this tick has arrived.
    """

    def __init__(self, windows: SlidingWindows) -> None:
        self.enqueued: collections.deque[MarkedRow] = collections.deque()
        self.dequeued: collections.deque[MarkedRow] = collections.deque()
        self.committed: tuple[int, int] | None = None
        self.bound = LOWEST
        self._windows = windows
        self._started = NONE  # the window that the last starter started

    @abc.abstractmethod
    def enqueue(self, time: int) -> bool:
        """Take a row; whether it is an update by itself."""

    @abc.abstractmethod
    def commit(self) -> int:
        """Move the most recent window to the dequeue buffer; returns its last tick."""

    def held(self) -> list[int]:
        """Return the ticks of all rows that are kept; a row in both buffers is kept once."""
        alone = self.enqueued[0].time if self.enqueued else self.bound
        return [row.time for row in self.dequeued if row.time < alone] + [row.time for row in self.enqueued]

    @property
    def fully_arrived(self) -> bool:
        """Whether the committed window gets no more rows."""
        return self.committed is not None and self.committed[1] < self.bound

    def starter(self, time: int) -> int:
        """Return the mark of an arriving row, or :data:`NONE` if it is in no window."""
        window = _started_by(self._windows, time)
        if window == NONE:
            return NONE
        if window == self._started:
            return NO_STARTER
        self._started = window
        return DISALLOW

    def ends(self, window: int) -> tuple[int, int]:
        """Return the first and last tick of a window."""
        return _ends(self._windows, window)

    def _allow(self, window: int, rows: list[MarkedRow]) -> int:
        """Make these the committed window's rows: its starter's mark opens it."""
        self.committed = self.ends(window)
        end = self.committed[1]
        self.dequeued.extend([MarkedRow(rows[0].time, end), *rows[1:]])
        return end


class LazyWindowBuffer(WindowBuffer):
    """Holds the latest fully arrived window and those that are open.

    Attributes
    ----------
    starters : deque of int
        Ticks of the starters of open windows.
    """

    def __init__(self, windows: SlidingWindows) -> None:
        super().__init__(windows)
        self.starters: collections.deque[int] = collections.deque()
        self._top: int | None = None

    def enqueue(self, time: int) -> bool:
        mark = self.starter(time)
        if mark != NONE:
            self.enqueued.append(MarkedRow(time, mark))
        if mark == DISALLOW:
            self.starters.append(time)
        return False

    def overwrite(self, window: int) -> None:
        """Put a window on top, which is the latest fully arrived one now: older ones are dropped."""
        self._top = window
        next_start = self.ends(window + 1)[0]
        while self.starters and self.starters[0] < next_start:  # a window's starter is a row of its first SLIDE
            self.starters.popleft()
        self._drop_before(self.ends(window)[0])

    def commit(self) -> int:
        assert self._top is not None, "a key waits only once a window is fully arrived"
        low, last = self.ends(self._top)
        end = self._allow(self._top, [row for row in self.enqueued if low <= row.time <= last])
        self._top = None
        if self.starters:
            self._drop_before(self.starters[0])
        else:
            self.enqueued.clear()
        return end

    def _drop_before(self, time: int) -> None:
        while self.enqueued and self.enqueued[0].time < time:
            self.enqueued.popleft()


class EagerWindowBuffer(WindowBuffer):
    """Holds the latest started window, as far as it has arrived; the committed one gets its rows, too."""

    def enqueue(self, time: int) -> bool:
        mark = self.starter(time)
        if mark == NONE:
            return False
        row = MarkedRow(time, mark)
        if mark == DISALLOW:
            self.enqueued.clear()
        if mark == DISALLOW or self.enqueued:
            self.enqueued.append(row)
        if self.committed is not None and time <= self.committed[1]:
            self.dequeued.append(row)
        return mark == DISALLOW

    def commit(self) -> int:
        rows = list(self.enqueued)
        self.enqueued.clear()
        return self._allow(self._started, rows)


# Keys are at the same few ticks, which are asked for over and over.
@functools.lru_cache(maxsize=4096)
def _started_by(windows: SlidingWindows, time: int) -> int:
    return int(latest_started(windows, time))


@functools.lru_cache(maxsize=4096)
def _ends(windows: SlidingWindows, window: int) -> tuple[int, int]:
    low, high = windows.extent(window)
    return int(low), int(high) - 1
