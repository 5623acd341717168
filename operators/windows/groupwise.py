"""Group-wise punctuation: windows of single keys that close ahead of all others (thesis §2.1)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.rows.exact_integers import HIGHEST, LOWEST, Int64s
from ..aggregates.algebra import Aggregates
from ..runtime.entries import Keys
from ..runtime.key_bounds import KeyBounds
from .emission import every_window, most_recent
from .evaluate import Results, combine_each
from .operator import Kept
from .panes import Paned
from .recent import latest_per_key

__all__ = ["KeysAhead"]

Mask = npt.NDArray[np.bool_]


class KeysAhead:
    """The windows that are closed for single keys, by punctuation of their own.

    `complete` maps bounds to the greatest window that each completes. If `endless`, a key that has ended still has a
    result in each later window.
    """

    def __init__(self, bounds: KeyBounds, complete: Callable[[Int64s], Int64s], *, endless: bool) -> None:
        self.bounds = bounds
        self._complete = complete
        self._endless = endless

    def __len__(self) -> int:
        return len(self.bounds)

    @property
    def farthest(self) -> int:
        """The greatest window that is closed for any key; LOWEST for none."""
        return int(self.closed(np.array([self.bounds.farthest], dtype=np.int64))[0])

    def closed(self, bounds: Int64s) -> Int64s:
        """Return the greatest window that each bound closes; LOWEST for the least bound."""
        return np.where(bounds == LOWEST, LOWEST, self._complete(bounds))

    def closed_for(self, keys: pa.Table) -> Int64s:
        """Return the greatest window that is closed for each key; LOWEST for a key without punctuation of its own."""
        if len(self) == 0:
            return np.full(keys.num_rows, LOWEST, dtype=np.int64)
        return self.closed(self.bounds.of(keys.columns))

    def given(self, results: Results) -> Mask:
        """Return which results were emitted before, when their key's window closed ahead."""
        return results.wids <= self.closed_for(results.keys)

    def advance(self, feeds: Mapping[str, int], bound: int | None) -> Int64s:
        """Raise the bounds of single keys without computing results; return the windows that the risen bounds close."""
        raised = self.bounds.raised(feeds, floor=LOWEST if bound is None else bound, endless=self._endless)
        none = np.empty(0, dtype=np.int64)
        return none if raised is None else self.closed(raised.after)

    def close(
        self,
        paned: Paned,
        aggregates: Aggregates,
        every: bool,
        now: int,
        feeds: Mapping[str, int],
        bound: int | None,
        kept: Kept,
    ) -> Results | None:
        """Close windows of single keys beyond `now`, the greatest window that is closed for all; None if none closes.

        `every` returns each window, not only a key's most recent one. `kept` returns all entries that there are.
        """
        known = copy.copy(self.bounds)
        if not (self.advance(feeds, bound) > now).any():
            return None
        entries = kept(LOWEST, HIGHEST)
        keys = Keys([entries.keys])
        codes = keys.codes[0]
        each = keys.take(np.arange(keys.size))
        after = np.maximum(self.closed(known.of(each.columns)), now)
        through = self.closed_for(each)
        asked = (through > after)[codes]
        if not asked.any():
            return None
        entries, codes = entries.take(asked), codes[asked]
        if every:
            code, wid = every_window(paned, codes, entries.panes, after[codes], through[codes])
        else:
            inside = (entries.panes if paned.by_row else paned.over.wids(entries.panes)[0]) <= through[codes]
            last = latest_per_key(entries.panes[inside], codes[inside], keys.size)
            code = np.flatnonzero(last > LOWEST)
            wid = np.minimum(most_recent(paned, last[code], HIGHEST), through[code])
            code, wid = code[wid > after[code]], wid[wid > after[code]]
        state = combine_each(paned, aggregates, entries, codes, (code, wid))
        return Results(keys.take(code), wid, state)
