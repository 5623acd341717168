"""The punctuation that a shard of windows receives, and that which it emits for single keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ....core.rows.exact_integers import LOWEST, Int64s
from ....core.rows.system_column import system_field
from ....core.watermark.bounds import bounds_in
from ...runtime.feeds import ENDED, FeedBounds, key_mask, punctuation_rows
from ...runtime.key_bounds import ALL_FEEDS, KeyBounds, KeyShare, hear_all
from ...state.store import Store
from .plan import WindowPlan
from .results import result_schema


def key_bounds(plan: WindowPlan, store: Store, head: Mapping[str, Any], number: int) -> KeyBounds:
    """Return the bounds of single keys that a shard keeps."""
    shard = KeyShare(number, plan.shards, plan.key)
    return KeyBounds(store, "ahead", plan.key, int(head.get("ahead", 0)), shard)


def hear(plan: WindowPlan, punctuation: pa.Table, feeds: FeedBounds, ahead: KeyBounds | None) -> None:
    """Raise the bounds of input partitions, and of single keys in `ahead`; None if the windows wait for all keys."""
    assert plan.time is not None
    name = plan.time
    bounds = bounds_in(punctuation.column(name), lambda times: plan.times(pa.table([times], [name])))
    hear_all(punctuation, bounds, plan.rows_key, feeds, ahead)
    own = system_field(punctuation, "source").filter(pa.array(key_mask(punctuation, plan.rows_key)))
    known = [feed for feed in pc.unique(own).to_pylist() if feed != ALL_FEEDS]
    feeds.hear(known, [LOWEST] * len(known))  # feeds, though they have promised nothing for all keys


def key_punctuation(
    plan: WindowPlan, bounds: KeyBounds, times: tuple[Int64s, Int64s], number: int, promised: int, now_us: int
) -> pa.Table:
    """Return punctuation for single keys: all results of each before its next window's have been emitted.

    `times` are the ``window_time`` and the ``window_end`` of the next result of each key; ENDED if there is none. All
    results of all keys before the ``window_time`` `promised` have been emitted.
    """
    due = bounds.due(times[0], promised)
    schema = result_schema(plan)
    if len(due) == 0:
        return schema.empty_table()
    keys = bounds.entries[0].take(pa.array(due))
    columns: dict[str, Any] = {name: keys.column(name) for name in keys.column_names}
    for name, each in zip(("window_time", "window_end"), times, strict=True):
        at = each[due]
        columns[name] = pa.array(at, pa.int64(), mask=at == ENDED).cast(plan.ends_type)
    feeds = KeyShare(number, plan.shards, plan.key).feeds(keys, f"window/{number}")
    return punctuation_rows(schema, feeds, now_us, **columns).cast(schema)
