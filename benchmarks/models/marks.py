"""Window marks, and the aggregate that acts on them (tr620 §6.1.3, Table 1).

The queue decides which windows there are and writes it on the rows that start them; the operator opens, updates and
emits windows by these marks alone. This is the report's model of one row at a time, for figures and as what faster
operators are compared with.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import NamedTuple

__all__ = ["DISALLOW", "NO_STARTER", "Aggregate", "Commit", "MarkedRow", "Result", "ServedTick"]

DISALLOW = 0
"""The mark of a window starter whose window is not to be opened."""
NO_STARTER = -1
"""The mark of a row that starts no window."""


class MarkedRow(NamedTuple):
    """A row as it lies in a window buffer.

    Attributes
    ----------
    time : int
        Its tick, from 1 on.
    win_spec : int
        τ > 0, the last tick of the window to open; or :data:`DISALLOW`, or :data:`NO_STARTER`.
    """

    time: int
    win_spec: int


@dataclasses.dataclass(frozen=True)
class Result:
    """A window that was emitted.

    Attributes
    ----------
    key : int
    start, end : int
        The ticks of the row that opened it, and its last tick, both inside.
    rows : tuple of int
        The ticks of its rows.
    """

    key: int
    start: int
    end: int
    rows: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Commit:
    """The operator commits to a key's window: the key no longer waits.

    Attributes
    ----------
    key, end : int
        The key, and its window's last tick.
    since, at : int
        From when to when the key waited.
    """

    key: int
    end: int
    since: int
    at: int


@dataclasses.dataclass(frozen=True)
class ServedTick:
    """What the operator did in one tick."""

    results: tuple[Result, ...] = ()
    commit: Commit | None = None


@dataclasses.dataclass
class _Open:
    start: int
    end: int
    rows: list[int] = dataclasses.field(default_factory=list)


class Aggregate:
    """Keeps the open windows of each key, as the marks say. Rows of a key come in the order of time."""

    def __init__(self) -> None:
        self._open: dict[int, collections.deque[_Open]] = {}

    def read(self, key: int, row: MarkedRow) -> tuple[int, list[Result]]:
        """Take a row.

        Returns
        -------
        updated : int
            How many windows it is in: what reading it costs.
        results : list of Result
            Windows that end with it, or ended before it.
        """
        results = self.close(key, row.time)
        windows = self._open.setdefault(key, collections.deque())
        if row.win_spec > 0:
            windows.append(_Open(row.time, row.win_spec))
        for window in windows:
            window.rows.append(row.time)
        updated = len(windows)
        return updated, results + self.close(key, row.time + 1)

    def close(self, key: int, bound: int) -> list[Result]:
        """Emit a key's windows that end before `bound`: no row of theirs is still to come."""
        windows = self._open.get(key)
        results: list[Result] = []
        while windows and windows[0].end < bound:
            window = windows.popleft()
            results.append(Result(key, window.start, window.end, tuple(window.rows)))
        return results

    def close_all(self, bound: int) -> list[Result]:
        """Emit the windows of all keys that end before `bound`."""
        return [result for key in self._open for result in self.close(key, bound)]
