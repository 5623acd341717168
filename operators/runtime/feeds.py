"""The bounds that a shard has received by punctuation, and those that it has sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.pushdown.source_steps import ArrowStep
from ...core.rows.columns import column_at
from ...core.rows.sort_keys import in_order
from ...core.rows.system_column import SYSTEM, punctuation_mask, system_array, system_field, with_system_fields
from ...core.watermark.bounds import AFTER_ALL, BEFORE_ALL, times_of_bounds

ENDED = AFTER_ALL
"""The bound of a feed that has ended."""


class FeedBounds:
    """The bound of each feed: all of its rows with an earlier time have arrived. Bounds never decrease."""

    def __init__(self, saved: Any = None) -> None:
        saved = saved or {}
        self._bounds: dict[str, int] = dict(saved.get("bounds", {}))
        self._promised: dict[str, int] = dict(saved.get("told", {}))

    def to_json(self) -> dict[str, Any]:
        return {"bounds": self._bounds, "told": self._promised}

    def hear(self, feeds: Iterable[str], bounds: Iterable[int]) -> None:
        """Raise the bounds of feeds by their punctuation."""
        for feed, bound in zip(feeds, bounds, strict=True):
            self._bounds[feed] = max(self._bounds.get(feed, bound), bound)

    @property
    def bounds(self) -> Mapping[str, int]:
        return self._bounds

    @property
    def low_watermark(self) -> int | None:
        """The least bound (Eq. 4.1). None before the first punctuation, and while a feed with rows has sent none."""
        least = min(self._bounds.values(), default=None)
        return None if least == BEFORE_ALL else least

    @property
    def over(self) -> frozenset[str]:
        """The feeds that have ended."""
        return frozenset(feed for feed, bound in self._bounds.items() if bound == ENDED)

    def due(self, limit: int) -> list[tuple[str, int]]:
        """Return new punctuation ``(feed, bound)`` where a bound, capped at `limit`, has risen; it counts as sent."""
        capped = [(feed, min(bound, limit)) for feed, bound in self._bounds.items()]
        due = [(feed, bound) for feed, bound in capped if bound > self._promised.get(feed, bound - 1)]
        self._promised.update(due)
        return due


def key_mask(punctuation: pa.Table, key: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return a mask of the group-wise punctuation: rows with a value in some column of `key`, for such keys alone."""
    given = np.zeros(punctuation.num_rows, dtype=np.bool_)
    for name in key:
        given |= pc.is_valid(column_at(punctuation, name)).to_numpy(zero_copy_only=False)
    return given


def without_single_keys(key: Sequence[str]) -> ArrowStep:
    """Return a step that drops group-wise punctuation, because it would be wrong for an operator with another key."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            marks = punctuation_mask(batch).to_numpy(zero_copy_only=False)
            if marks.any():
                marks = marks & key_mask(pa.Table.from_batches([batch]), key)
                yield batch.filter(pa.array(~marks)) if marks.any() else batch
            else:
                yield batch

    return run


def named(name: str) -> ArrowStep:
    """Return a step that renames an input's feeds to ``name/feed``, so that feeds of two inputs never share a name."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            source = pc.fill_null(system_field(table, "source"), "").combine_chunks()
            renamed = with_system_fields(table, source=pc.binary_join_element_wise(name, source, "/"))
            yield from renamed.combine_chunks().to_batches()

    return run


def punctuation_rows(schema: pa.Schema, feeds: Sequence[str], now_us: int, **times: pa.Array) -> pa.Table:
    """Return one punctuation row for each of `feeds`, which arrives at `now_us`.

    `schema` includes the system column. `times` holds the columns that are not null, as
    :func:`~upstream.core.watermark.bounds.times_of_bounds` returns them.
    """
    n = len(feeds)
    system = system_array(
        source="",
        seq=np.zeros(n, dtype=np.int64),
        arrival_us=np.full(n, now_us, dtype=np.int64),
        covered=np.zeros(n, dtype=np.int64),
        punctuation=True,
    )
    fields = system.flatten()
    fields[1] = pa.array(feeds, pa.string())
    columns: dict[str, pa.Array] = {each.name: pa.nulls(n, each.type) for each in schema}
    columns |= times
    columns[SYSTEM] = pa.StructArray.from_arrays(fields, fields=list(system.type)).cast(schema.field(SYSTEM).type)
    return pa.table(columns, schema=pa.schema([field.with_nullable(True) for field in schema]))


def punctuation_at(
    schema: pa.Schema, time: str, feeds: Sequence[str], bounds: Sequence[int], now_us: int, keys: pa.Table | None = None
) -> pa.Table:
    """Return punctuation with bounds in the order of the column `time`: of all keys, or of one of `keys` each."""
    kind = schema.field(time).type
    times = times_of_bounds(bounds, kind, lambda bound: in_order(bound, kind))
    named = (
        {} if keys is None else {name: keys.column(name).cast(schema.field(name).type) for name in keys.column_names}
    )
    return punctuation_rows(schema, feeds, now_us, **named, **{time: times})
