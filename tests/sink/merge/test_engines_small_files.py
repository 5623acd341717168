"""Which files are put together: few remain, small ones are not written often, large ones only at the bucket's turn."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.sink.merge.engines import files_to_fold
from upstream.sink.table.table import Snapshot

FILES = st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**6)), max_size=12)


@given(FILES, st.integers(0, 10**5))
def test_without_the_turn_the_work_follows_what_comes(files, fresh):
    live, rows = [each[0] for each in files], [sum(each) for each in files]
    chosen = files_to_fold(live, rows, fresh, turn=False)
    assert sum(live[at] for at in chosen) <= 16 * fresh + 4096
    assert chosen == sorted(set(chosen))
    left = [live[at] for at in range(len(live)) if at not in chosen]
    assert not chosen or not left or min(left) >= max(live[at] for at in chosen)


@given(FILES, st.integers(1, 10**5))
def test_at_the_turn_what_remains_grows_geometrically(files, fresh):
    live, rows = [each[0] for each in files], [sum(each) for each in files]
    chosen = files_to_fold(live, rows, fresh, turn=True)
    smaller = fresh
    for at in sorted(range(len(live)), key=live.__getitem__):
        if at not in chosen:
            assert live[at] > 4 * smaller, "so a bucket has few files, however long it is written to"
            assert 4 * (rows[at] - live[at]) < rows[at]
        smaller += live[at]


def test_one_file_alone_is_not_written_for_nothing():
    assert files_to_fold([5], [5], 0, turn=True) == []
    assert files_to_fold([5], [5], 0, turn=False) == []
    assert files_to_fold([5], [7], 0, turn=True) == [0]
    assert files_to_fold([], [], 10, turn=True) == []


@pytest.mark.parametrize("buckets", [2, 16, 64, 100])
@pytest.mark.parametrize("stride", [1, 2, 15, 16, 64])
def test_each_bucket_has_its_turn_however_many_versions_others_make(buckets, stride):
    """Where another writer commits between any two batches, a query sees every second version alone."""
    turns = min(buckets, 64)
    waits = dict.fromkeys(range(buckets), 0)
    for batch in range(turns * (turns + 2)):
        seen = dataclasses.replace(Snapshot.empty(), version=7 + stride * batch)
        chosen = {bucket for bucket in range(buckets) if seen.has_turn(bucket, buckets)}
        assert len(chosen) <= -(-buckets // turns), "no batch has to do many"
        waits = {bucket: 0 if bucket in chosen else wait + 1 for bucket, wait in waits.items()}
        assert max(waits.values()) <= turns * (turns + 1)
