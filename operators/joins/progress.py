"""How far both sides of a join by time are complete, and what its results promise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ...core.rows.exact_integers import LOWEST
from ...core.rows.sort_keys import in_order, ordered
from ...core.rows.system_column import system_field
from ...core.watermark.bounds import bounds_in, times_of_bounds
from ..runtime.feeds import FeedBounds, key_mask, punctuation_rows
from .band import SIDES
from .plan import JoinSide

__all__ = ["JoinProgress"]


class JoinProgress:
    """The bounds of both sides, and the bound of the results.

    Parameters
    ----------
    sides : sequence of JoinSide
    saved : mapping
        The shard's head, with what :meth:`to_json` gave; empty at first.
    """

    def __init__(self, sides: Sequence[JoinSide], saved: Mapping[str, Any]) -> None:
        self._sides = sides
        self._feeds = [FeedBounds(saved.get(f"{name}_feeds")) for name in SIDES]
        self.promised = int(saved.get("promised", LOWEST))
        """No later result has an earlier time."""

    def to_json(self) -> dict[str, Any]:
        """Return members of the shard's head."""
        feeds = {f"{name}_feeds": each.to_json() for name, each in zip(SIDES, self._feeds, strict=True)}
        return {**feeds, "promised": self.promised}

    def hear(self, side: int, punctuation: pa.Table) -> None:
        """Raise the bounds of a side's input partitions."""
        each = self._sides[side]
        # Punctuation of one key would let go of that key's rows earlier; without it they are kept longer, that is all.
        rows = punctuation.filter(pa.array(~key_mask(punctuation, each.on)))
        if rows.num_rows:
            at = bounds_in(rows.column(each.time), ordered)
            self._feeds[side].hear(system_field(rows, "source").to_pylist(), at.tolist())

    def bound(self, side: int) -> int:
        """Return the low-watermark of a side."""
        found = self._feeds[side].low_watermark
        return LOWEST if found is None else found

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
