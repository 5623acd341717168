"""Which buckets are rewritten after a commit: readers bear little at any time, and what is written follows what was
made worse.
"""

from hypothesis import given
from hypothesis import strategies as st

from upstream.sink.maintenance.compact import FILE, SHARE, WORTH, BucketStats, worst_buckets

WORN = st.dictionaries(
    st.integers(0, 40),
    st.builds(BucketStats, st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 9)),
    max_size=20,
)


@given(WORN)
def test_what_remains_is_little_and_what_is_written_is_worth_it(worn):
    chosen = worst_buckets(worn)
    counted = {bucket: each for bucket, each in worn.items() if each.live + each.dead >= WORTH}
    live = sum(each.live for each in counted.values())
    left = sum(each.burden for bucket, each in counted.items() if bucket not in chosen)
    assert set(chosen) <= counted.keys()
    assert left <= live / SHARE
    if chosen:
        assert SHARE * (left + worn[chosen[-1]].burden) > live - SHARE, "as few as will do"
    assert sum(worn[each].live for each in chosen) <= SHARE * (sum(worn[each].burden for each in chosen) + len(chosen))


def test_small_buckets_are_left_alone():
    assert worst_buckets({0: BucketStats(100, WORTH, 9), 1: BucketStats(100, 50, 5)}) == [0]
    assert worst_buckets({1: BucketStats(100, 50, 5)}) == []
    assert worst_buckets({}) == []


def test_a_batch_that_changes_much_has_much_written_anew():
    worn = {bucket: BucketStats(100_000, 50_000, 1) for bucket in range(8)}
    assert len(worst_buckets(worn)) == 7
    assert worst_buckets({bucket: BucketStats(10 * FILE * SHARE, 0, 12) for bucket in range(3)}) == []
    assert len(worst_buckets({bucket: BucketStats(10 * FILE * SHARE, 0, 13) for bucket in range(3)})) == 1
