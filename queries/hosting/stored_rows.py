"""The stored relations' rows for a shard of the first stage, at the version that the registry pins."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np
import polars as pl

from ...operators.tables.reading import Version, rows_at
from ..relations.nodes import Stream
from .host_plan import Group, HostPlan, Routing
from .scanning import shards_of

__all__ = ["stored_rows"]

_Options = tuple[tuple[str, str], ...]


def stored_rows(
    plan: HostPlan, group: Group, shard: int, storage: Mapping[str, str]
) -> dict[str, Callable[[], pl.DataFrame]]:
    """Return a reader of the shard's rows for each stored relation of a group.

    Each row is in one shard: the same expressions route it as the streams' rows that it joins. A reader raises
    FeedChangedError if the version no longer exists.
    """
    found: dict[str, Callable[[], pl.DataFrame]] = {}
    for name, routing in group.routings.items():
        stored = plan.routing(name, routing)
        if stored.stream.static:
            found[name] = functools.partial(_of_shard, stored, shard, plan.shards, tuple(sorted(storage.items())))
    return found


def _of_shard(routing: Routing, shard: int, shards: int, storage: _Options) -> pl.DataFrame:
    frame = _rows(routing.stream, storage)
    if routing.shard is not None:
        return frame if routing.shard == shard else frame.clear()
    mine = shards_of(frame, routing.by, routing.stream.schema, shards) == shard
    return frame[np.flatnonzero(mine)]


@functools.lru_cache(maxsize=2)  # a worker runs several shards of a batch, one after another
def _rows(relation: Stream, storage: _Options) -> pl.DataFrame:
    table = relation.table
    assert table is not None, "a stored relation of the registry has a table"
    frame = pl.from_arrow(
        rows_at(
            table.location,
            dict(storage),
            relation.schema,
            Version(table.id, table.version),
            f"let queries read the table as it is now: refresh the relation '{relation.name}', then activate them",
        )
    )
    assert isinstance(frame, pl.DataFrame)
    return frame
