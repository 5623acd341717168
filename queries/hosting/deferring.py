"""Changes of queries whose results wait for a later batch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import polars as pl

from ...operators.runtime.store import Store
from ..deltas.zsets import TIME, WEIGHT
from .host_plan import Hosted
from .results import net
from .stage_store import Waiting

__all__ = ["Deferred", "added_up"]

_PAGES = 8


class Deferred:
    """The changes that wait in a shard, by query.

    For a table, they are consolidated to net changes, so the state grows with the changed rows and not with the
    batches. For a feed, all changes are kept.
    """

    def __init__(self, store: Store, saved: Any) -> None:
        self._pages = Waiting(store, saved.get("pages", {}), "deferred")
        self._firsts: dict[int, int] = {int(query): first for query, first in saved.get("firsts", {}).items()}

    def to_json(self) -> dict[str, Any]:
        return {"pages": self._pages.to_json(), "firsts": self._firsts}

    @property
    def firsts(self) -> Mapping[int, int]:
        """The oldest arrival behind each query's waiting changes, in microseconds, by incarnation."""
        return self._firsts

    def put(self, query: Hosted, changes: pl.DataFrame, first_us: int) -> None:
        """Add changes that wait; `first_us` is the oldest arrival behind them."""
        name = str(query.id)
        self._firsts[query.id] = min(first_us, self._firsts.get(query.id, first_us))
        if query.result.kind == "latest" and self._pages.count(name) + 1 >= _PAGES:
            changes = added_up(query, [*self._frames(query), changes])
            if changes.height == 0:
                del self._firsts[query.id]
        self._pages.put(name, changes.to_arrow(compat_level=pl.CompatLevel.oldest()))

    def take(self, query: Hosted) -> tuple[list[pl.DataFrame], int | None]:
        """Remove and return a query's changes in order, and the oldest arrival behind them (None if none wait)."""
        return self._frames(query), self._firsts.pop(query.id, None)

    def keep(self, queries: Collection[int]) -> None:
        self._pages.keep({str(query) for query in queries})
        self._firsts = {query: first for query, first in self._firsts.items() if query in queries}

    def _frames(self, query: Hosted) -> list[pl.DataFrame]:
        frames = [pl.from_arrow(table) for table in self._pages.take(str(query.id))]
        return [each for each in frames if isinstance(each, pl.DataFrame)]


def added_up(query: Hosted, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Combine the changes of several batches: all of them for a feed, net changes at the last time for a table."""
    changes = pl.concat(frames)
    if query.result.kind == "feed":
        return changes
    last = pl.lit(changes.get_column(TIME).max(), pl.Int64).alias(TIME)
    return net(changes).with_columns(last).select(*(each for each in changes.columns if each != WEIGHT), WEIGHT)
