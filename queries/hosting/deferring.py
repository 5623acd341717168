"""Changes of queries whose results a batch does not put out: kept, added up, until one does."""

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

    Of a table the net changes wait: the state grows with the rows that differ, not with the batches that pass. Of a
    feed all changes do.

    Parameters
    ----------
    store : Store
    saved
        What :meth:`to_json` gave; empty at first.
    """

    def __init__(self, store: Store, saved: Any) -> None:
        self._pages = Waiting(store, saved.get("pages", {}), "deferred")
        self._firsts: dict[int, int] = {int(query): first for query, first in saved.get("firsts", {}).items()}

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value."""
        return {"pages": self._pages.to_json(), "firsts": self._firsts}

    @property
    def firsts(self) -> Mapping[int, int]:
        """The queries with changes that wait: when the oldest row behind them came, in microseconds."""
        return self._firsts

    def put(self, query: Hosted, changes: pl.DataFrame, first_us: int) -> None:
        """Let changes wait; the oldest row behind them came at ``first_us``."""
        name = str(query.id)
        self._firsts[query.id] = min(first_us, self._firsts.get(query.id, first_us))
        if query.result.kind == "latest" and self._pages.count(name) + 1 >= _PAGES:
            changes = added_up(query, [*self._frames(query), changes])
            if changes.height == 0:
                del self._firsts[query.id]
        self._pages.put(name, changes.to_arrow(compat_level=pl.CompatLevel.oldest()))

    def take(self, query: Hosted) -> tuple[list[pl.DataFrame], int | None]:
        """Return the changes of a query in the order in which they came, and the arrival of the oldest row behind them.

        They wait no longer.
        """
        return self._frames(query), self._firsts.pop(query.id, None)

    def keep(self, queries: Collection[int]) -> None:
        """Forget the changes of other queries."""
        self._pages.keep({str(query) for query in queries})
        self._firsts = {query: first for query, first in self._firsts.items() if query in queries}

    def _frames(self, query: Hosted) -> list[pl.DataFrame]:
        frames = [pl.from_arrow(table) for table in self._pages.take(str(query.id))]
        return [each for each in frames if isinstance(each, pl.DataFrame)]


def added_up(query: Hosted, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return the changes of several batches: of a table the net changes, at the last of their times."""
    changes = pl.concat(frames)
    if query.result.kind == "feed":
        return changes
    last = pl.lit(changes.get_column(TIME).max(), pl.Int64).alias(TIME)
    return net(changes).with_columns(last).select(*(each for each in changes.columns if each != WEIGHT), WEIGHT)
