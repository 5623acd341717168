"""How far both sides of a join by time are complete, and what its results promise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ...core.rows.columns import columns_at
from ...core.rows.exact_integers import LOWEST, Int64s
from ...core.rows.sort_keys import in_order, ordered
from ...core.rows.system_column import system_field
from ...core.watermark.bounds import bounds_in, times_of_bounds
from ..runtime.feeds import FeedBounds, key_mask, punctuation_rows
from ..runtime.store import Store
from .arriving import numbers_of, without_key
from .band import SIDES
from .key_bounds import KeyBounds, RaisedBounds
from .plan import JoinSide

__all__ = ["JoinProgress"]


class JoinProgress:
    """The bounds of both sides, and the bound of the results.

    Parameters
    ----------
    sides : sequence of JoinSide
    saved : mapping
        The shard's head, with what :meth:`to_json` gave; empty at first.
    store : Store
        The shard's state.

    Attributes
    ----------
    keys : list of KeyBounds
        Of each side, by group-wise punctuation.
    """

    def __init__(self, sides: Sequence[JoinSide], saved: Mapping[str, Any], store: Store) -> None:
        self._sides = sides
        self.keys = [
            KeyBounds(store, f"{name}_keys", _key_of(side), int(saved.get(f"{name}_keys", 0)))
            for name, side in zip(SIDES, sides, strict=True)
        ]
        self._feeds = [FeedBounds(saved.get(f"{name}_feeds")) for name in SIDES]
        self.promised = int(saved.get("promised", LOWEST))
        """No later result has an earlier time."""

    def to_json(self) -> dict[str, Any]:
        """Return members of the shard's head."""
        feeds = {f"{name}_feeds": each.to_json() for name, each in zip(SIDES, self._feeds, strict=True)}
        keys = {f"{name}_keys": each.rows for name, each in zip(SIDES, self.keys, strict=True)}
        return {**feeds, **keys, "promised": self.promised}

    def save(self) -> None:
        """Write the bounds of single keys to the state."""
        for each in self.keys:
            each.save()

    def hear(self, side: int, punctuation: pa.Table, *, single: bool = True) -> None:
        """Raise the bounds of a side's input partitions, and those of single keys unless they are to be left out."""
        if punctuation.num_rows == 0:
            return
        each = self._sides[side]
        of_keys = key_mask(punctuation, [*each.on, *each.key])
        rows = punctuation.filter(pa.array(~of_keys))
        if rows.num_rows:
            at = bounds_in(rows.column(each.time), ordered)
            self._feeds[side].hear(system_field(rows, "source").to_pylist(), at.tolist())
        if single and of_keys.any():
            # Of the others' rows with these columns, which a longer key tells apart, more may come.
            whole = ~without_key(punctuation, each.on)
            whole &= ~key_mask(punctuation, [name for name in each.key if name not in each.on])
            rows = punctuation.filter(pa.array(whole))
            keys = pa.table(columns_at(rows, each.on), names=list(each.on))
            self.keys[side].hear(keys, system_field(rows, "source"), bounds_in(rows.column(each.time), ordered))

    def raised(self, side: int) -> RaisedBounds | None:
        """Return the keys of a side whose own bounds are higher than in the batch before; None if none has one."""
        return self.keys[side].raised(self._feeds[side].bounds)

    def bound(self, side: int) -> int:
        """Return the low-watermark of a side."""
        found = self._feeds[side].low_watermark
        return LOWEST if found is None else found

    def own_bounds(self, side: int, rows: pa.Table, names: Sequence[str]) -> Int64s:
        """Return the bound on a side of each row's key; the least number for a key without one of its own.

        Parameters
        ----------
        side : int
        rows, names
            Rows of either side, and the columns of their key, which may be null.
        """
        found = np.full(rows.num_rows, LOWEST, dtype=np.int64)
        if self.keys[side].rows and rows.num_rows:
            there = ~without_key(rows, names)
            some = rows.filter(pa.array(there))
            found[there] = self.keys[side].of(numbers_of(some, names), some, names)
        return found

    def late(self, side: int, rows: pa.Table, times: Int64s) -> int:
        """Return how many rows of a side are below its bound, or below that of their key."""
        return int(
            np.count_nonzero(times < np.maximum(self.bound(side), self.own_bounds(side, rows, self._sides[side].on)))
        )

    @property
    def bounds(self) -> dict[str, int]:
        """The bound of each input partition of both sides."""
        return {feed: bound for feeds in self._feeds for feed, bound in feeds.bounds.items()}

    def promise(self, bound: int, schema: pa.Schema, time: str, shard: int, now_us: int) -> list[pa.Table]:
        """Raise the bound of the results.

        Parameters
        ----------
        bound : int
            Of later results' times.
        schema, time
            The results' columns, and the one of their time.
        shard : int
            Names the shard's punctuation.
        now_us : int
            Its arrival.

        Returns
        -------
        list of pyarrow.Table
            The punctuation; nothing if the bound is not higher than before.
        """
        if bound <= self.promised:
            return []
        self.promised = bound
        kind = schema.field(time).type
        at = times_of_bounds([bound], kind, lambda each: in_order(each, kind))
        return [punctuation_rows(schema, [f"join/{shard}"], now_us, **{time: at}).cast(schema)]


def _key_of(side: JoinSide) -> pa.Schema:
    return pa.schema([side.schema.field(name).with_nullable(True) for name in side.on])
