"""Group-wise punctuation: bounds for single keys, ahead of the low-watermark of all (thesis §2.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.rows.exact_integers import HIGHEST, LOWEST, Int64s
from ..aggregates.algebra import Aggregates
from ..runtime.entries import Keys, grouped
from .emission import every_window, most_recent
from .evaluate import Results, combine_each
from .operator import Kept
from .panes import Paned
from .recent import latest_per_key

__all__ = ["KeyBounds", "KeysAhead"]

Mask = npt.NDArray[np.bool_]

_FEED, _BOUND, _CLOSED = "__upstream_feed", "__upstream_bound", "__upstream_closed"


class KeysAhead(NamedTuple):
    """What is closed for keys by punctuation of their own.

    Attributes
    ----------
    keys : Keys
    before, closed : int64 arrays of length keys
        The greatest window that was closed for each by its own punctuation before a batch, and that is closed after it.
    """

    keys: Keys
    before: Int64s
    closed: Int64s


class KeyBounds:
    """Bounds of single keys, and which windows were closed by them before all others.

    Parameters
    ----------
    table : pyarrow.Table or None
        What :meth:`table` gave.
    key : pyarrow.Schema
        The update key's columns.
    """

    def __init__(self, table: pa.Table | None, key: pa.Schema) -> None:
        self._names = key.names
        own = [pa.field(_FEED, pa.string()), pa.field(_BOUND, pa.int64()), pa.field(_CLOSED, pa.int64())]
        self._table = pa.schema([*key, *own]).empty_table() if table is None else table

    def __len__(self) -> int:
        return self._table.num_rows

    @property
    def table(self) -> pa.Table:
        """The table to keep: the key's columns, a feed, its bound, and the greatest window closed ahead for the key."""
        return self._table

    @property
    def farthest(self) -> int:
        """The greatest window that is closed for any key; LOWEST for none."""
        closed = self._table.column(_CLOSED).to_numpy()
        return int(closed.max()) if len(closed) else LOWEST

    def hear(self, keys: pa.Table, feeds: pa.ChunkedArray, bounds: Int64s) -> None:
        """Raise the bounds of keys and feeds by their punctuation: all rows with an earlier time have arrived."""
        closed = np.full(len(bounds), LOWEST, dtype=np.int64)
        more = keys.append_column(_FEED, feeds).append_column(_BOUND, pa.array(bounds))
        both = pa.concat_tables([self._table, more.append_column(_CLOSED, pa.array(closed)).cast(self._table.schema)])
        codes, first, size = grouped(both.select([*self._names, _FEED]).columns)
        bound = latest_per_key(both.column(_BOUND).to_numpy(), codes, size)
        owner = Keys([both.select(self._names)]).codes[0]
        closed = latest_per_key(both.column(_CLOSED).to_numpy(), owner, size)[owner]
        table = both.take(pa.array(first))
        table = table.set_column(table.num_columns - 2, _BOUND, pa.array(bound))
        self._table = table.set_column(table.num_columns - 1, _CLOSED, pa.array(closed[first]))

    def closed_for(self, keys: pa.Table) -> Int64s:
        """Return the greatest window that is closed for each key; LOWEST for a key without punctuation of its own."""
        if len(self) == 0:
            return np.full(keys.num_rows, LOWEST, dtype=np.int64)
        numbers = Keys([self._table.select(self._names), keys])
        known = latest_per_key(self._table.column(_CLOSED).to_numpy(), numbers.codes[0], numbers.size)
        return known[numbers.codes[1]]

    def given(self, results: Results) -> Mask:
        """Return which of some results were emitted before, when their key's window closed ahead."""
        return results.wids <= self.closed_for(results.keys)

    def close(
        self,
        paned: Paned,
        aggregates: Aggregates,
        every: bool,
        now: int,
        complete: Callable[[Int64s], Int64s],
        feeds: Mapping[str, int],
        kept: Kept,
    ) -> Results | None:
        """Close windows of single keys that go beyond what is closed for all.

        Parameters
        ----------
        paned, aggregates
        every : bool
            Whether to return each window, or only the most recent one of a key.
        now : int
            The greatest window that is closed for all keys.
        complete : callable
            From bounds to the greatest window that each completes.
        feeds : mapping of str to int
            The bound of each feed for all keys.
        kept : Kept
            All entries that there are.

        Returns
        -------
        Results or None
            None if no window closes.
        """
        found = self.advance(now, complete, feeds)
        if found is None:
            return None
        found = found._replace(before=np.maximum(found.before, now))
        return self._results(paned, aggregates, every, found, kept)

    def advance(self, now: int, complete: Callable[[Int64s], Int64s], feeds: Mapping[str, int]) -> KeysAhead | None:
        """Raise what is closed for single keys, without computing results.

        Parameters
        ----------
        now, complete, feeds
            As for :meth:`close`.

        Returns
        -------
        KeysAhead or None
            None if no key has punctuation of its own that says more than that of all keys.
        """
        if len(self) == 0:
            return None
        keys, bound, further = self._bounds(feeds)
        of_row = keys.codes[0]
        before = latest_per_key(self._table.column(_CLOSED).to_numpy(), of_row, keys.size)
        closed = np.maximum(np.maximum(before, now), complete(bound))
        ahead = further | (closed[of_row] > now)  # the others have nothing left to say
        table = self._table.set_column(self._table.num_columns - 1, _CLOSED, pa.array(closed[of_row]))
        self._table = table.filter(pa.array(ahead))
        return KeysAhead(keys, before, closed)

    def bounds_for(self, keys: pa.Table, feeds: Mapping[str, int], whole: int) -> Int64s:
        """Return up to where all rows of each key have arrived: by its own punctuation, or by that for all keys.

        Parameters
        ----------
        keys : pyarrow.Table
        feeds : mapping of str to int
            The bound of each feed for all keys.
        whole : int
            The least of them.
        """
        found = np.full(keys.num_rows, whole, dtype=np.int64)
        if len(self) and len(feeds):
            own, bound, _ = self._bounds(feeds)
            both = Keys([own.take(np.arange(own.size)), keys])
            known = np.full(both.size, whole, dtype=np.int64)
            known[both.codes[0]] = np.maximum(bound, whole)
            found = known[both.codes[1]]
        return found

    def forget(self, feeds: Mapping[str, int]) -> None:
        """Forget the keys of which no feed has promised more than of all keys."""
        if len(self):
            self._table = self._table.filter(pa.array(self._bounds(feeds)[2]))

    @property
    def keys(self) -> pa.Table:
        """The keys with a bound of their own; some of them several times."""
        return self._table.select(self._names)

    def _bounds(self, feeds: Mapping[str, int]) -> tuple[Keys, Int64s, Mask]:
        """Return the keys of the table, each key's bound, and which rows of the table are ahead of their feed's."""
        keys = Keys([self._table.select(self._names)])
        of_row = keys.codes[0]
        bound = np.full(keys.size, HIGHEST, dtype=np.int64)
        told_by = self._table.column(_FEED)
        mine = self._table.column(_BOUND).to_numpy()
        further = np.zeros(len(mine), dtype=np.bool_)
        for feed, whole in feeds.items():
            here = pc.equal(told_by, feed).to_numpy()
            further |= here & (mine > whole)
            own = np.full(keys.size, whole, dtype=np.int64)
            np.maximum.at(own, of_row[here], mine[here])
            bound = np.minimum(bound, own)
        return keys, bound, further

    def _results(
        self,
        paned: Paned,
        aggregates: Aggregates,
        every: bool,
        ahead: KeysAhead,
        kept: Kept,
    ) -> Results | None:
        keys, before, closed = ahead
        asked = np.flatnonzero(closed > before)
        if len(asked) == 0:
            return None
        entries = kept(LOWEST, HIGHEST)
        every_key = Keys([keys.take(asked), entries.keys])
        mine, codes = every_key.codes
        after = np.full(every_key.size, HIGHEST - 1, dtype=np.int64)
        through = np.full(every_key.size, LOWEST, dtype=np.int64)
        after[mine], through[mine] = before[asked], closed[asked]
        entries, codes = entries.take(through[codes] > LOWEST), codes[through[codes] > LOWEST]
        if every:
            code, wid = every_window(paned, codes, entries.panes, after[codes], through[codes])
        else:
            inside = (entries.panes if paned.by_row else paned.over.wids(entries.panes)[0]) <= through[codes]
            last = latest_per_key(entries.panes[inside], codes[inside], every_key.size)
            code = np.flatnonzero(last > LOWEST)
            wid = np.minimum(most_recent(paned, last[code], HIGHEST), through[code])
            code, wid = code[wid > after[code]], wid[wid > after[code]]
        state = combine_each(paned, aggregates, entries, codes, (code, wid))
        return Results(every_key.take(code), wid, state)
