"""Pack the rows of one side of a join into frames for its shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from ...core.pushdown.source_steps import ArrowStep
from ...core.rows.frames import by_bucket, some_at_once, split_punctuation, to_frame
from ..runtime.feeds import named
from ..runtime.pack import check_keys, newest_rows, packed
from .latest_plan import LatestSide
from .side import as_sent

Batches = Iterator[pa.RecordBatch]


def join_pack(on: Sequence[str], slots: Sequence[int], side: str, *, whole: bool) -> Callable[[Batches], Batches]:
    """Return a function for ``mapInArrow`` that packs a task's rows into frames for shards by `on`.

    `side` is the input's name, which marks each frame and precedes the names of input partitions. `slots` has Spark's
    grouping number of each shard. With `whole`, rows keep their whole system column, and the shards check them.
    Otherwise rows are :func:`~upstream.operators.joins.side.as_sent`. A row with a null in `on` goes to some shard,
    which counts it.
    """

    def run(batches: Batches) -> Batches:
        for table in some_at_once(named(side)(batches) if whole else batches):
            rows, punctuation = split_punctuation(table if whole else as_sent(table, side))
            found: list[tuple[int, bytes]] = []
            if rows.num_rows:
                for number, part in by_bucket(rows, on, len(slots)):
                    found.append((number, to_frame(pa.concat_tables([part, punctuation]))))
            if punctuation.num_rows:
                # Each shard gets the punctuation of every feed, whether it has rows or not.
                alone, reached = to_frame(punctuation), {number for number, _ in found}
                found += [(number, alone) for number in range(len(slots)) if number not in reached]
            batch = packed(found, slots)
            yield batch.set_column(2, "control", pa.array([side] * batch.num_rows, pa.string()))

    return run


def latest_pack(
    by: Sequence[str],
    slots: Sequence[int],
    side: str,
    key: Sequence[str] = (),
    event_time: str | None = None,
    *,
    punctuation: bool = False,
) -> Callable[[Batches], Batches]:
    """Return a function for ``mapInArrow`` that packs one side of a join of newest rows for shards by some columns.

    It packs only the newest row of each key in a task; without a `key`, all rows. With `punctuation`, all shards get
    the punctuation; otherwise it is dropped.
    """

    def run(batches: Batches) -> Batches:
        for table in some_at_once(batches):
            rows, bounds = split_punctuation(table)
            found: list[tuple[int, bytes]] = []
            if rows.num_rows:
                if key:
                    check_keys(rows, key, "join")
                    rows, _ = newest_rows(rows, key, event_time)
                found = [(number, to_frame(part)) for number, part in by_bucket(rows, by, len(slots))]
            if punctuation and bounds.num_rows:
                alone = to_frame(bounds)
                found += [(number, alone) for number in range(len(slots))]
            if not found:
                continue
            batch = packed(found, slots)
            yield batch.set_column(2, "control", pa.array([side] * batch.num_rows, pa.string()))

    return run


def newest_pack(side: LatestSide, slots: Sequence[int], name: str) -> tuple[list[str], ArrowStep]:
    """Return the columns that shards by `on` take of a side, and the step that packs them.

    The rows come from the stage of versions, unless the shards find the versions themselves.
    """
    if not side.stays:
        return side.versioned.names, latest_pack(side.on, slots, name, (), side.event_time)
    return side.schema.names, own_pack(side, side.on, slots, name)


def own_pack(side: LatestSide, by: Sequence[str], slots: Sequence[int], name: str) -> ArrowStep:
    """Return the step that packs a side's own rows for shards by some columns, which find the versions."""
    return latest_pack(by, slots, name, side.key, side.event_time, punctuation=side.hears)
