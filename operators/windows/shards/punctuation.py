"""Punctuation as a shard of windows receives it."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ....core.rows.exact_integers import LOWEST
from ....core.rows.system_column import system_field
from ....core.watermark.bounds import bounds_in
from ...runtime.feeds import FeedBounds, key_mask
from ..groupwise import KeyBounds
from .plan import WindowPlan

__all__ = ["hear"]


def hear(plan: WindowPlan, punctuation: pa.Table, feeds: FeedBounds, ahead: KeyBounds | None) -> None:
    """Raise the bounds of feeds, and of single keys.

    Parameters
    ----------
    plan : WindowPlan
    punctuation : pyarrow.Table
    feeds : FeedBounds
    ahead : KeyBounds or None
        None if the windows wait for all keys.
    """
    assert plan.time is not None
    name = plan.time
    bounds = bounds_in(punctuation.column(name), lambda times: plan.times(pa.table([times], [name])))
    named = system_field(punctuation, "source")
    single = key_mask(punctuation, plan.rows_key)
    feeds.hear(named.filter(pa.array(~single)).to_pylist(), bounds[~single].tolist())
    if single.any():
        own = named.filter(pa.array(single))
        known = pc.unique(own).to_pylist()
        feeds.hear(known, [LOWEST] * len(known))  # feeds, though they have promised nothing for all keys
        if ahead is not None:
            ahead.hear(punctuation.filter(pa.array(single)).select(list(plan.rows_key)), own, bounds[single])
