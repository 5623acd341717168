"""What punctuation says of feeds, and of single keys."""

from __future__ import annotations

import pyarrow as pa

from upstream.core.rows.exact_integers import LOWEST
from upstream.operators.runtime.feeds import ENDED, FeedBounds
from upstream.operators.windows.groupwise import KeyBounds
from upstream.operators.windows.kinds import SlidingWindows
from upstream.operators.windows.shards.punctuation import hear

from .drawn import plan_of
from .windows_of import punctuation_table

PLAN = plan_of(SlidingWindows(10, 10))


def test_punctuation_with_a_key_raises_the_bound_of_that_key_alone() -> None:
    feeds, ahead = FeedBounds(), KeyBounds(None, PLAN.key_schema)
    told = [
        punctuation_table(5, 1, "a"), punctuation_table(3, 1, "b"), punctuation_table(9, 1, "a", key=1),
        punctuation_table(7, 1, "b", key=1), punctuation_table(8, 1, "c", key=2),
    ]  # fmt: skip
    hear(PLAN, pa.concat_tables(told), feeds, ahead)
    assert dict(feeds.bounds) == {"a": 5, "b": 3, "c": LOWEST}
    assert feeds.low_watermark is None, "a feed that has promised nothing for all keys holds them back"
    keys = pa.table([pa.array([1, 2, 3])], schema=PLAN.key_schema)
    assert ahead.bounds_for(keys, {"a": 5, "b": 3}, 3).tolist() == [7, 3, 3]
    ahead.forget({"a": 9, "b": 6, "c": 8})
    assert ahead.keys.column("key").to_pylist() == [1]
    hear(PLAN, punctuation_table(None, 2, "a", key=1), feeds, None)
    assert dict(feeds.bounds) == {"a": 5, "b": 3, "c": LOWEST}
    hear(PLAN, punctuation_table(None, 2, "a"), feeds, None)
    assert feeds.bounds["a"] == ENDED
