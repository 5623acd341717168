"""Memory of window buffers: blocks of rows within pages (tr620 §7.2).

A block is a stretch of memory in which rows of one key lie in the order of time; blocks are given and taken on demand,
as single locations are in an update queue. The report calls what is known of one a FixedLength-ContiguousZone (FLCZ).
"""

from __future__ import annotations

import dataclasses

import numpy as np

from upstream.conf.errors import OptionError
from upstream.operators.queue.cells import OnDemandPages

__all__ = ["WindowPages"]


@dataclasses.dataclass
class _Zone:
    """A block: where it lies, its rows, and how far it is filled (the enqueue offset)."""

    location: int
    rows: set[int]
    filled: int = 0


class WindowPages:
    """Follows where the rows of window buffers lie.

    Parameters
    ----------
    block_rows : int
        Rows in a block.
    page_blocks : int
        Blocks in a page.

    Attributes
    ----------
    rows : int
        Rows that are kept.
    """

    def __init__(self, block_rows: int, page_blocks: int) -> None:
        if block_rows < 1:
            raise OptionError(f"a block of {block_rows} rows", expected="at least 1 row in a block")
        self.rows = 0
        self._block_rows = block_rows
        self._blocks = OnDemandPages(page_blocks)
        self._zones: dict[int, list[_Zone]] = {}

    @property
    def allocated(self) -> int:
        """Rows for which blocks are held."""
        return self._blocks.used * self._block_rows

    @property
    def paged(self) -> int:
        """Rows for which pages are held."""
        return len(self._blocks.pages()) * self._blocks.slots * self._block_rows

    def hold(self, key: int, times: list[int]) -> None:
        """Make a key's window buffer hold exactly these rows.

        Parameters
        ----------
        times : list of int
            In order. Rows that it lacks are removed; rows newer than all before are added.
        """
        zones = self._zones.get(key, [])
        before: set[int] = set().union(*(zone.rows for zone in zones))
        kept = set(times)
        self.rows += len(kept) - len(before)
        for zone in zones:
            zone.rows &= kept
        empty = [zone.location for zone in zones if not zone.rows]
        if empty:
            self._blocks.free(np.array(empty, dtype=np.int64))
            zones = [zone for zone in zones if zone.rows]
        for time in sorted(kept - before):
            if not zones or zones[-1].filled == self._block_rows:
                zones.append(_Zone(int(self._blocks.allocate(1)[0]), set()))
            zones[-1].rows.add(time)
            zones[-1].filled += 1
        self._zones[key] = zones
