"""Bounds of single keys of one side, by group-wise punctuation, ahead of the side's low-watermark (thesis §2.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.pushdown.ipc_frames import from_frame, to_frame
from ...core.rows.columns import columns_at
from ...core.rows.exact_integers import HIGHEST, LOWEST, Int64s
from ...core.rows.newest import key_codes
from ...core.watermark.bounds import BEFORE_ALL
from ..runtime.entries import grouped
from ..runtime.store import Store
from .matching import key_numbers

__all__ = ["KeyBounds", "RaisedBounds"]

_FEED, _BOUND, _WAS = "__upstream_feed", "__upstream_bound", "__upstream_was"


class RaisedBounds(NamedTuple):
    """Keys that have gone further than before.

    Attributes
    ----------
    keys : pyarrow.Table
        The key's columns, by the side's names.
    before, after : int64 arrays of length keys
        Their bounds before the batch, and now.
    """

    keys: pa.Table
    before: Int64s
    after: Int64s


class KeyBounds:
    """Bounds of single keys of a side. Without group-wise punctuation nothing is read or written.

    Parameters
    ----------
    store : Store
        The shard's state.
    kind : str
        What it is called there.
    key : pyarrow.Schema
        The columns of the key.
    saved : int
        What :attr:`rows` was after the batch before.
    """

    def __init__(self, store: Store, kind: str, key: pa.Schema, saved: int) -> None:
        self._store = store
        self._kind = kind
        self._names = key.names
        own = [pa.field(_FEED, pa.string()), pa.field(_BOUND, pa.int64()), pa.field(_WAS, pa.int64())]
        self._table = pa.schema([*key, *own]).empty_table()
        self._saved = saved
        if saved:
            frame = store.get(kind, 0)
            assert frame is not None, f"{kind} is not in the state store"
            self._table = from_frame(frame).cast(self._table.schema)

    @property
    def rows(self) -> int:
        """The number of bounds: of each key one for each feed whose punctuation named it."""
        return self._table.num_rows

    def hear(self, keys: pa.Table, feeds: pa.ChunkedArray, bounds: Int64s) -> None:
        """Take group-wise punctuation: all rows of a feed with this key and an earlier time have arrived."""
        if keys.num_rows == 0:
            return
        none = pa.array(np.full(len(bounds), LOWEST, dtype=np.int64))
        more = pa.table([*keys.columns, feeds, pa.array(bounds), none], schema=self._table.schema)
        both = pa.concat_tables([self._table, more]).combine_chunks()
        codes, first, size = grouped(both.select([*self._names, _FEED]).columns)
        owner, _, owners = grouped(both.select(self._names).columns)
        bound = _greatest(both.column(_BOUND).to_numpy(), codes, size)
        was = _greatest(both.column(_WAS).to_numpy(), owner, owners)[owner]
        table = both.take(pa.array(first)).drop_columns([_BOUND, _WAS])
        self._table = table.append_column(_BOUND, pa.array(bound)).append_column(_WAS, pa.array(was[first]))

    def raised(self, feeds: Mapping[str, int]) -> RaisedBounds | None:
        """Return the keys whose bounds are higher than when this was last asked, and keep the bounds that still matter.

        Parameters
        ----------
        feeds
            The bound of each feed for all keys.
        """
        if self.rows == 0:
            return None
        codes, first, size = grouped(self._table.select(self._names).columns)
        named, mine = self._table.column(_FEED), self._table.column(_BOUND).to_numpy()
        least = np.full(size, HIGHEST, dtype=np.int64)
        further = np.zeros(len(mine), dtype=np.bool_)
        for feed in sorted({*feeds, *pc.unique(named).to_pylist()}):
            whole = feeds.get(feed, BEFORE_ALL)
            here = pc.equal(named, feed).to_numpy()
            further |= here & (mine > whole)
            own = np.full(size, whole, dtype=np.int64)
            np.maximum.at(own, codes[here], mine[here])
            least = np.minimum(least, own)
        before = _greatest(self._table.column(_WAS).to_numpy(), codes, size)
        after = np.maximum(before, least)
        changed = np.flatnonzero(after > before)
        found = RaisedBounds(
            self._table.select(self._names).take(pa.array(first[changed])), before[changed], after[changed]
        )
        table = self._table.set_column(self._table.num_columns - 1, _WAS, pa.array(after[codes]))
        self._table = table.filter(pa.array(further)).combine_chunks()
        return found

    def of(self, numbers: Int64s, rows: pa.Table, names: Sequence[str]) -> Int64s:
        """Return the bound of each row's key, as :meth:`raised` found it; the least number for a key without one.

        Parameters
        ----------
        numbers
            The :func:`~upstream.operators.joins.matching.key_numbers` of the rows.
        rows, names
            The rows, of either side, and the columns of their key.
        """
        found = np.full(len(numbers), LOWEST, dtype=np.int64)
        if self.rows == 0:
            return found
        mine = columns_at(self._table, self._names)
        at = np.flatnonzero(np.isin(numbers, key_numbers(mine)))
        if len(at):
            theirs = [column.take(pa.array(at)) for column in columns_at(rows, names)]
            both = [
                pa.chunked_array([*one.chunks, *two.cast(one.type).chunks])
                for one, two in zip(mine, theirs, strict=True)
            ]
            codes, size = key_codes(both)
            known = _greatest(self._table.column(_WAS).to_numpy(), codes[: self.rows], size)
            found[at] = known[codes[self.rows :]]
        return found

    def save(self) -> None:
        """Write the bounds to the store; nothing where there are none, and were none."""
        if self.rows:
            self._store.put(self._kind, 0, to_frame(self._table))
        elif self._saved:
            self._store.remove(self._kind, 0)


def _greatest(values: Int64s, codes: Int64s, size: int) -> Int64s:
    """Return the greatest of the values of each code."""
    found = np.full(size, LOWEST, dtype=np.int64)
    np.maximum.at(found, codes, values)
    return found
