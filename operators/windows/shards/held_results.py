"""The results that a shard of windows holds, and the low-watermark that would release some of them."""

from __future__ import annotations

import dataclasses
from typing import Any

from ....core.rows.exact_integers import LOWEST, Int64s
from ..panes import Paned
from .kept import KeptPanes

__all__ = ["Held", "Holding", "Since"]

_MOST = 64


@dataclasses.dataclass(frozen=True)
class Held:
    """The entries that wait for windows to close."""

    count: int = 0  # kept entries and rows of windows not yet closed; some may have been in earlier windows
    since_us: int | None = None  # arrival of the oldest of them, to a batch
    needs: int | None = None  # least low-watermark that closes a window with entries; None if nothing is held


class Holding:
    """A search for what a shard holds. It reads the kept panes only if windows have closed."""

    def __init__(self, saved: Any = None) -> None:
        saved = saved or {}
        self._floor: int | None = saved.get("floor")
        self._first: int | None = saved.get("first")
        self._since = Since(saved.get("since", ()))

    def to_json(self) -> dict[str, Any]:
        return {"floor": self._floor, "first": self._first, "since": self._since.to_json()}

    def after(
        self, paned: Paned, kept: KeptPanes, new: Int64s, closed: int, committed: int | None, now_us: int
    ) -> Held:
        """Return what is held after a batch; `committed` is the first window to which a key is committed, if eager."""
        floor = _first_open_pane(paned, closed)
        if floor != self._floor:
            self._floor, self._first = floor, kept.first_from(floor)
        ahead = new[new >= floor]
        if len(ahead):
            self._first = int(ahead.min()) if self._first is None else min(self._first, int(ahead.min()))
            self._since.add(int(ahead.max()), now_us)
        since, count = self._since.oldest(floor), kept.rows_from(floor)
        if self._first is None or count == 0:  # eager emission keeps nothing of what it passes over
            return Held()
        first = int(paned.over.wids(self._first)[0])
        wid = committed if committed is not None else first if closed == LOWEST else max(first, closed + 1)
        return Held(count, since, int(paned.windows.extent(wid)[1]))


class Since:
    """The arrival of the oldest held entries, by the greatest pane that arrivals reached."""

    def __init__(self, saved: Any = ()) -> None:
        # [greatest pane, arrival], both increasing: what came later and reaches less far is never the last to go.
        self._reach: list[list[int]] = [list(each) for each in saved]

    def to_json(self) -> list[list[int]]:
        return self._reach

    def add(self, last_pane: int, now_us: int) -> None:
        if not self._reach or last_pane > self._reach[-1][0]:
            self._reach.append([last_pane, now_us])
        if len(self._reach) > _MOST:  # rather too old than too young
            self._reach[:2] = [[self._reach[1][0], self._reach[0][1]]]

    def oldest(self, floor: int) -> int | None:
        """Return the arrival of the oldest entries with panes from `floor` on; forget those below."""
        self._reach = [each for each in self._reach if each[0] >= floor]
        return self._reach[0][1] if self._reach else None


def _first_open_pane(paned: Paned, closed: int) -> int:
    """Return the least pane with results that may not have been emitted yet, once windows up to `closed` are closed."""
    if closed == LOWEST:
        return LOWEST
    # In landmark windows, and where rows open windows, a pane is first given in the window with its own number.
    return closed + 1 if paned.endless or paned.by_row else int(paned.first_and_last(closed + 1)[0])
