"""Rows that the newest pair of a key no longer needs: the kernel against each time that may come, shards against shards
that drop none.
"""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kit.join_batches import BANDS, streams
from kit.join_batches import plan as join_plan

from upstream.core.rows.exact_integers import HIGHEST, LOWEST
from upstream.operators.joins import shard as shard_module
from upstream.operators.joins.band import LEFT, RIGHT, IntervalBand
from upstream.operators.joins.pair_kernel import sorted_rows
from upstream.operators.joins.pairs import superseded
from upstream.operators.joins.shard import JoinShard
from upstream.operators.runtime.feeds import ENDED
from upstream.operators.state.store import DictStore

from .batches import INTEGERS, TEXTS, run_all


def plan(band, how="inner", schemas=INTEGERS, **changes):
    return join_plan(band, how, *schemas, output="latest", **changes)


def meets(band, side, one, two):
    least, greatest = band.partners(side, np.array([one], dtype=np.int64))
    return least[0] <= two <= greatest[0]


@given(
    BANDS,
    st.sampled_from([LEFT, RIGHT]),
    st.lists(st.tuples(st.integers(0, 1), st.integers(-6, 12)), max_size=10),
    st.integers(-14, 20),
)
def test_a_row_goes_if_whatever_comes_and_meets_it_meets_a_newer_row_of_its_key(band, side, pairs, bound):
    numbers, times = (np.array([pair[at] for pair in pairs], dtype=np.int64) for at in (0, 1))
    rows = sorted_rows(numbers, times, pa.table({"at": np.arange(len(pairs))}))
    gone = superseded(rows, ("at",), True, band, side, bound)
    coming = range(bound, 40)
    expected = []
    for at, (key, time) in enumerate(zip(rows.numbers.tolist(), rows.times.tolist(), strict=True)):
        newer = [
            other
            for number, other in zip(rows.numbers.tolist(), rows.times.tolist(), strict=True)
            if number == key and other > time
        ]
        # Another one may be newer still: each row that comes must meet one of them.
        met = all(
            any(meets(band, side, other, each) for other in newer) for each in coming if meets(band, side, time, each)
        )
        if newer and met:
            expected.append(at)
    # The kernel asks for one row that meets all, the next newer one; where several share the work, rows stay.
    assert set(gone.tolist()) <= set(expected)
    for at in set(expected) - set(gone.tolist()):
        here = rows.numbers == rows.numbers[at]
        nearest = min(rows.times[here & (rows.times > rows.times[at])])
        least = max(bound, int(band.partners(side, rows.times[[at]])[0][0]))
        greatest = int(band.partners(side, rows.times[[at]])[1][0])
        assert least > greatest or not meets(band, side, int(nearest), least)


def test_rows_of_one_time_and_of_keys_with_one_hash_stay():
    both = pa.table({"k": ["a", "b"]})
    rows = sorted_rows(np.array([7, 7]), np.array([1, 2]), both)
    assert superseded(rows, ("k",), False, IntervalBand(9, 9), LEFT, HIGHEST).tolist() == []
    assert superseded(rows, ("k",), True, IntervalBand(9, 9), LEFT, HIGHEST).tolist() == [0]
    equal = sorted_rows(np.array([7, 7]), np.array([2, 2]), both)
    assert superseded(equal, ("k",), True, IntervalBand(9, 9), LEFT, HIGHEST).tolist() == []
    none = sorted_rows(np.array([7, 7]), np.array([LOWEST, LOWEST + 1]), both)
    assert superseded(none, ("k",), True, IntervalBand(0, 0), LEFT, LOWEST).tolist() == []


def run(join, batches, store, *, drops=True):
    """Pairs and reports of each batch."""
    with pytest.MonkeyPatch.context() as patch:
        if not drops:
            patch.setattr(shard_module, "supersedes", lambda *_: False)
        found, _, reports = run_all(JoinShard, join, batches, store)
    return [sorted(pairs) for pairs in found], reports


INTEGERS_OR_TEXTS = st.one_of(st.tuples(st.just(INTEGERS), streams()), st.tuples(st.just(TEXTS), streams(texts=True)))
CONDITIONS = [None, "l.a >= r.b OR r.b = 3", "r.b > 2", "l.a > 2", "r.k IS NOT NULL"]


MET = [([(1, 0, 0)], None, [], None), ([(1, 1, 1)], None, [(1, 1, 2)], 1), ([], ENDED, [], ENDED)]


@example((INTEGERS, (None, MET)), IntervalBand(9, 9), "full", None)  # one that has met stays known after others went
@given(INTEGERS_OR_TEXTS, BANDS, st.sampled_from(["inner", "left", "right", "full"]), st.sampled_from(CONDITIONS))
def test_each_batch_gives_the_same_newest_pairs_as_a_join_that_drops_nothing(case, band, how, condition):
    schemas, (_, batches) = case
    join = plan(band, how, schemas, condition=condition)
    kept, dropped = DictStore(), DictStore()
    expected, before = run(join, batches, kept, drops=False)
    found, after = run(join, batches, dropped)
    assert found == expected
    for one, two in zip(before, after, strict=True):
        assert two.left_kept <= one.left_kept
        assert two.right_kept <= one.right_kept
        assert (two.results, two.unmatched, two.promised) == (one.results, one.unmatched, one.promised)
    assert dropped.values.keys() == {("head", 0)}  # both have ended


def many(batches=30, rows=200):
    """Two keys with many updates within one reach of the join."""
    chance = np.random.default_rng(5)
    found = []
    for batch in range(batches):
        first = batch * rows
        cells = []
        for _ in range(2):
            cells += [[(int(chance.integers(0, 2)), first + at, first + at) for at in range(rows)], first + rows]
        found.append(tuple(cells))
    return found


def test_the_state_stays_small_where_keys_have_many_rows():
    join = plan(IntervalBand(100_000, 100_000), "full")
    kept, dropped = DictStore(), DictStore()
    expected, before = run(join, many(), kept, drops=False)
    found, after = run(join, many(), dropped)
    assert found == expected
    assert before[-1].left_kept == before[-1].right_kept == 6000
    assert after[-1].left_kept <= 800  # twice what is needed, and a batch
    assert after[-1].left_superseded + after[-1].left_kept == 6000
    assert after[-1].right_superseded + after[-1].right_kept == 6000
    sizes = [sum(map(len, store.values.values())) for store in (kept, dropped)]
    assert sizes[1] * 4 < sizes[0]


def test_rows_stay_where_the_condition_needs_their_own_values():
    batches = many(4)
    for condition, sides in (("l.a >= r.b", "neither"), ("l.a > 2", "right"), ("r.b > 2", "left")):
        _, reports = run(plan(IntervalBand(9999, 9999), condition=condition), batches, DictStore())
        went = [name for name in ("left", "right") if getattr(reports[-1], f"{name}_superseded")]
        assert went == ([] if sides == "neither" else [sides])
