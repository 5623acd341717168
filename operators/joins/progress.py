"""The low-watermarks of both sides of a join by time, and of its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ...core.rows.columns import columns_at
from ...core.rows.exact_integers import LOWEST, Int64s
from ...core.rows.sort_keys import ordered
from ...core.rows.system_column import system_field
from ...core.watermark.bounds import bounds_in
from ..runtime.feeds import FeedBounds, key_mask, punctuation_at
from ..runtime.key_bounds import KeyBounds, KeyShare, RaisedBounds
from ..state.store import Store
from .band import LEFT, RIGHT, SIDES
from .plan import JoinSide
from .side import without_key


class JoinProgress:
    """The low-watermarks of both sides, of their single keys, and of the results."""

    def __init__(
        self, sides: Sequence[JoinSide], saved: Mapping[str, Any], store: Store, number: int = 0, shards: int = 1
    ) -> None:
        self._sides = sides
        self._shard = KeyShare(number, shards, tuple(sides[LEFT].on))
        self.keys = [
            KeyBounds(
                store, f"{name}_keys", side.on, int(saved.get(f"{name}_keys", 0)), self._shard._replace(by=side.on)
            )
            for name, side in zip(SIDES, sides, strict=True)
        ]
        self._feeds = [FeedBounds(saved.get(f"{name}_feeds")) for name in SIDES]
        self.promised = int(saved.get("promised", LOWEST))
        """No later result has an earlier time."""

    def to_json(self) -> dict[str, Any]:
        feeds = {f"{name}_feeds": each.to_json() for name, each in zip(SIDES, self._feeds, strict=True)}
        keys = {f"{name}_keys": len(each) for name, each in zip(SIDES, self.keys, strict=True)}
        return {**feeds, **keys, "promised": self.promised}

    def save(self) -> None:
        """Write the bounds of single keys to the state."""
        for each in self.keys:
            each.save()

    def hear(self, side: int, punctuation: pa.Table, *, single: bool = True) -> None:
        """Raise the bounds of a side's input partitions and, with `single`, of single keys."""
        if punctuation.num_rows == 0:
            return
        each = self._sides[side]
        of_keys = key_mask(punctuation, [*each.on, *each.key])
        rows = punctuation.filter(pa.array(~of_keys))
        if rows.num_rows:
            at = bounds_in(rows.column(each.time), ordered)
            self._feeds[side].hear(system_field(rows, "source").to_pylist(), at.tolist())
        if single and of_keys.any():
            # Punctuation by more columns than these does not count: other rows with these columns may still come.
            rows = punctuation.filter(pa.array(~without_key(punctuation, each.on)))
            self.keys[side].hear(rows, each.key, bounds_in(rows.column(each.time), ordered))

    def raised(self, side: int) -> RaisedBounds | None:
        """Return the keys of a side whose own bounds are higher than in the batch before; None if none has one."""
        return self.keys[side].raised(self._feeds[side].bounds)

    def bound(self, side: int) -> int:
        """Return the low-watermark of a side; `LOWEST` if unknown."""
        found = self._feeds[side].low_watermark
        return LOWEST if found is None else found

    def own_bounds(self, side: int, rows: pa.Table, names: Sequence[str]) -> Int64s:
        """Return a side's own bound for the key of each row; `LOWEST` for a key without one.

        The rows may be of either side, and their key columns `names` may have nulls.
        """
        found = np.full(rows.num_rows, LOWEST, dtype=np.int64)
        if len(self.keys[side]) and rows.num_rows:
            there = ~without_key(rows, names)
            some = rows.filter(pa.array(there))
            found[there] = self.keys[side].of(columns_at(some, names))
        return found

    def late(self, side: int, rows: pa.Table, times: Int64s) -> int:
        """Return how many rows of a side are below its bound, or below that of their key."""
        return int(
            np.count_nonzero(times < np.maximum(self.bound(side), self.own_bounds(side, rows, self._sides[side].on)))
        )

    @property
    def figures(self) -> dict[str, Any]:
        """The report's fields on progress."""
        bounds = {feed: bound for feeds in self._feeds for feed, bound in feeds.bounds.items()}
        return {"bounds": bounds, "promised": self.promised if self.promised > LOWEST else None}

    def promise(self, bound: int, schema: pa.Schema, time: str, now_us: int) -> list[pa.Table]:
        """Raise the low-watermark of the results, and return its punctuation; none unless it has risen."""
        if bound <= self.promised:
            return []
        self.promised = bound
        return [punctuation_at(schema, time, [self._feed], [bound], now_us).cast(schema)]

    def promise_keys(
        self,
        bounds: Callable[[Int64s, Int64s], Int64s],
        key: Sequence[str],
        schema: pa.Schema,
        time: str,
        now_us: int,
    ) -> list[pa.Table]:
        """Raise the low-watermarks of the results of single keys, after that of all, and return their punctuation.

        `bounds` maps the bounds of keys on both sides to those of their results. If the update `key` of the results
        lacks a column of the join, no key has a low-watermark of its own.
        """
        on = list(self._sides[LEFT].on)
        found: list[pa.Table] = []
        if time in on or not set(on) <= set(key):
            return found
        for side in (LEFT, RIGHT):
            mine, others = self.keys[side], self.keys[1 - side]
            if len(mine) == 0:
                continue
            keys, own = mine.entries
            both = [
                np.maximum(self.own_bounds(each, keys, keys.column_names), self.bound(each)) for each in (LEFT, RIGHT)
            ]
            both[side] = np.maximum(own, self.bound(side))
            at = bounds(*both)
            due = mine.due(at, np.maximum(others.promised(keys.columns), self.promised))
            if len(due):
                keys = keys.take(pa.array(due))
                others.count_as_promised(keys, at[due])
                named = keys.rename_columns(on)
                feeds = self._shard.feeds(named, self._feed)
                found.append(punctuation_at(schema, time, feeds, at[due].tolist(), now_us, named).cast(schema))
        return found

    @property
    def _feed(self) -> str:
        return f"join/{self._shard.number}"
