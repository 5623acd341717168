"""Rows of large keys in buckets: what is read is what was written, whatever the buckets share."""

from collections import Counter

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.grouped import groups
from upstream.operators.relations.arrangement import BucketArrangement, OperatorState
from upstream.operators.relations.zsets import key_numbers
from upstream.operators.state.store import CountingStore, DictStore

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("n", pa.int64())])


def numbers_of(rows):
    return key_numbers(rows, ["k"])


def frame(rows):
    return pl.DataFrame(rows, {"k": pl.Int64, "v": pl.Int64, "n": pl.Int64}, orient="row")


def opened(store, saved):
    state = OperatorState(store, "o", saved)
    return BucketArrangement(SCHEMA, ["k", "v"], numbers_of, state, "rows"), state


def colliding(numbers, bucket):
    """All buckets of all keys but the first of each lie at one of two places."""
    return np.where(bucket == 0, numbers, -(bucket & 1) - 10)


ROWS = st.dictionaries(st.tuples(st.integers(0, 2), st.integers(0, 20)), st.integers(0, 3), max_size=25)


@pytest.mark.parametrize("place_of", [groups.place_of, colliding])
@given(batches=st.lists(st.tuples(ROWS, st.sets(st.integers(0, 2), max_size=1), st.booleans()), max_size=6))
def test_what_is_read_is_what_was_written(place_of, batches):
    """Of each batch, n = 0 takes a row out; some batches end with a sweep of the odd values."""
    store, saved, expected = DictStore(), {}, {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "ROWS_OF_BUCKET", 1)
        patch.setattr(groups, "place_of", place_of)
        for changed, whole, sweeps in batches:
            arrangement, state = opened(store, saved)
            changes = frame([(k, v, n) for (k, v), n in changed.items()])
            found, numbers = arrangement.read(
                changes, numbers_of(changes), numbers_of(frame([(k, 0, 0) for k in whole]))
            )
            rows = {(k, v): n for k, v, n in found.rows()}
            assert len(rows) == found.height
            assert numbers.tolist() == numbers_of(found).tolist()
            assert rows.items() <= expected.items()
            assert {key for key in expected if key in changed or key[0] in whole} <= rows.keys()
            replaced = np.array([(k, v) in changed for k, v in rows], dtype=np.bool_)
            left = changes.filter(pl.col("n") > 0)
            arrangement.write(left, numbers_of(left), replaced)
            expected = {key: n for key, n in (expected | changed).items() if n}
            if sweeps:
                arrangement.keep(lambda rows: rows.get_column("v").to_numpy() % 2 == 0)
                expected = {(k, v): n for (k, v), n in expected.items() if v % 2 == 0}
            assert arrangement.rows == len(expected)
            saved = state.to_json()
        found = opened(store, saved)[0].read_all()
        assert Counter(found.rows()) == Counter((k, v, n) for (k, v), n in expected.items())


def test_a_change_of_a_large_key_costs_little_of_what_the_key_has():
    store = CountingStore(DictStore())
    arrangement, _ = opened(store, {})
    all_ = frame([(1, value, 1) for value in range(50_000)])
    arrangement.read(all_, numbers_of(all_), np.empty(0, dtype=np.int64))
    arrangement.write(all_, numbers_of(all_), np.empty(0, dtype=np.bool_))
    whole, store.written = store.written, 0
    found, _ = arrangement.read(all_[:1], numbers_of(all_[:1]), np.empty(0, dtype=np.int64))
    assert 0 < found.height < 1000
    arrangement.write(all_[:0], numbers_of(all_[:0]), found.get_column("v").to_numpy() == 0)
    assert arrangement.rows == 49_999
    assert 0 < store.written < whole / 20
