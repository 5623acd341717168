"""On-demand paging of a queue's cells (tr620 §7.1): the location of each pending update."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from ...conf.errors import OptionError

__all__ = ["OnDemandPages", "Usage"]

Int64s = npt.NDArray[np.int64]


@dataclasses.dataclass
class Usage:
    """Memory usage integrated over time, in locations times seconds (tr620 §7.3)."""

    allocated: float = 0.0  # of locations that held a row or could not be given to another key
    used: float = 0.0  # of locations that held a pending row
    paged: float = 0.0  # of all locations in held pages
    seconds: float = 0.0

    def add(self, seconds: float, *, allocated: int, used: int, paged: int) -> None:
        self.allocated += allocated * seconds
        self.used += used * seconds
        self.paged += paged * seconds
        self.seconds += seconds

    @property
    def average(self) -> float:
        """Locations allocated, on average over time."""
        return self.allocated / self.seconds if self.seconds else 0.0

    @property
    def effective(self) -> float:
        """The share of the allocated space that was in use, on average over time; 1 if nothing was ever allocated."""
        return self.used / self.allocated if self.allocated else 1.0

    @property
    def page_fill(self) -> float:
        """The share of the pages' space that was in use; 1 if there never was a page."""
        return self.used / self.paged if self.paged else 1.0


class OnDemandPages:
    """Fixed-size pages of locations, numbered ``page * slots + slot``.

    `stored` pages are read and written as a whole. `held` marks by page and slot the locations that hold a row. An
    empty page is released at once, and its number is used again by the next new page.
    """

    def __init__(self, slots: int, *, stored: bool = False) -> None:
        if slots < 1:
            raise OptionError(f"a page of {slots} slots", expected="at least 1 slot in a page")
        self.slots = slots
        self.stored = stored
        self.held: npt.NDArray[np.bool_] = np.zeros((0, slots), dtype=np.bool_)
        self._count: Int64s = np.zeros(0, dtype=np.int64)

    @property
    def used(self) -> int:
        """The number of locations that hold a row."""
        return int(self._count.sum())

    @property
    def capacity(self) -> int:
        """The number of locations in all pages, including released and unused ones."""
        return self.held.size

    def pages(self) -> Int64s:
        """Return the numbers of the pages that are held, increasing."""
        return np.flatnonzero(self._count)

    def of(self, locations: Int64s) -> Int64s:
        """Return the numbers of the pages that contain some locations, increasing."""
        return np.flatnonzero(np.bincount(locations // self.slots))

    def allocate(self, n: int) -> Int64s:
        """Find room for `n` rows: distinct locations, freed ones first, then new pages.

        In memory the fullest pages are filled first, so that those with few cells run empty. Stored pages cost the size
        of their contents, so the emptiest take new rows, and those more than half full stay as they are.
        """
        if n == 0:
            return np.empty(0, dtype=np.int64)
        most = self.slots // 2 if self.stored else self.slots - 1
        partly = np.flatnonzero((self._count > 0) & (self._count <= most))
        partly = partly[np.argsort(self._count[partly] if self.stored else -self._count[partly], kind="stable")]
        room = np.cumsum(self.slots - self._count[partly])
        chosen = partly[: int(np.searchsorted(room, n)) + 1]
        missing = n - (int(room[len(chosen) - 1]) if len(chosen) else 0)
        if missing > 0:
            chosen = np.concatenate([chosen, self._new(-(-missing // self.slots))])
        page, slot = np.nonzero(~self.held[chosen])
        page, slot = chosen[page[:n]], slot[:n]
        self.held[page, slot] = True
        np.add.at(self._count, page, 1)
        return page * self.slots + slot

    def free(self, locations: Int64s) -> Int64s:
        """Release locations, and return the pages that are released because they are empty now."""
        page = locations // self.slots
        self.held.reshape(-1)[locations] = False
        np.subtract.at(self._count, page, 1)
        touched = self.of(locations)
        return touched[self._count[touched] == 0]

    def restore(self, held: Int64s) -> None:
        pages = int(held.max()) // self.slots + 1 if len(held) else 0
        self.held = np.zeros((pages, self.slots), dtype=np.bool_)
        self.held.reshape(-1)[held] = True
        self._count = self.held.sum(axis=1).astype(np.int64)

    def _new(self, n: int) -> Int64s:
        unused = np.flatnonzero(self._count == 0)[:n]
        more = n - len(unused)
        if more <= 0:
            return unused
        first = len(self._count)
        # Room is made by halves, so that pages added one by one are not copied each time.
        grown = max(more, first // 2)
        self.held = np.concatenate([self.held, np.zeros((grown, self.slots), dtype=np.bool_)])
        self._count = np.concatenate([self._count, np.zeros(grown, dtype=np.int64)])
        return np.concatenate([unused, np.arange(first, first + more)])
