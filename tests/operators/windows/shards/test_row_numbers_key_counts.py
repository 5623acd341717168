"""Counts of keys, over batches."""

from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.state.store import DictStore
from upstream.operators.windows.shards.row_numbers import KeyCounts

KEY = pa.schema([("key", pa.int64()), ("name", pa.string())])
BATCHES = st.lists(st.dictionaries(st.integers(0, 2500), st.integers(1, 9), max_size=30), max_size=6)


@given(batches=BATCHES, many=st.booleans())
def test_counts_add_up_over_batches_and_restarts(batches, many):
    store, saved, counted = DictStore(), {}, Counter[int]()
    for batch in [dict.fromkeys(range(2000), 1)] * many + batches:
        counts = KeyCounts(store, KEY, saved)
        keys = pa.table([list(batch), [str(key) for key in batch]], schema=KEY)
        before = counts.count(keys, np.array(list(batch.values()), dtype=np.int64))
        assert before.tolist() == [counted[key] for key in batch]
        counted.update(batch)
        saved = counts.to_json()
    assert saved.get("rows", 0) == len(counted)
