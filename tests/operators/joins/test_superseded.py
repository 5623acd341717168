"""Rows that the newest pair of a key no longer needs: the kernel against each time that may come, shards against shards
that drop none.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.core.pushdown.ipc_frames import to_frame
from upstream.core.rows.exact_integers import HIGHEST, LOWEST
from upstream.core.rows.sort_keys import in_order
from upstream.core.rows.split import split_punctuation
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array
from upstream.core.watermark.bounds import times_of_bounds
from upstream.operators.joins import shard as shard_module
from upstream.operators.joins.band import LEFT, RIGHT, IntervalBand, TumblingBand
from upstream.operators.joins.matching import sorted_rows
from upstream.operators.joins.plan import JoinPlan, JoinSide
from upstream.operators.joins.shard import JoinShard
from upstream.operators.joins.superseded import superseded
from upstream.operators.runtime.feeds import ENDED, punctuation_rows
from upstream.operators.runtime.store import DictStore

BANDS = st.one_of(
    st.tuples(st.integers(-3, 6), st.integers(-3, 6)).filter(lambda pair: sum(pair) >= 0).map(
        lambda pair: IntervalBand(*pair)
    ),
    st.integers(1, 7).map(TumblingBand),
)  # fmt: skip


def schema(name, kind):
    return pa.schema([("k", kind), ("t", pa.int64()), (name, pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])


def plan(band, how="inner", kind=None, **changes):
    left, right = (JoinSide(("k",), "t", schema(name, kind or pa.int64())) for name in "ab")
    return JoinPlan(left, right, band, how=how, output="latest", **changes)


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


def test_the_row_goes_at_the_exact_bound():
    rows = sorted_rows(np.array([1, 1]), np.array([10, 12]), pa.table({"k": [1, 1]}))
    # All that comes meets 12 if it is not before 12 - 2.
    assert superseded(rows, ("k",), True, IntervalBand(2, 3), LEFT, 10).tolist() == [0]
    assert superseded(rows, ("k",), True, IntervalBand(2, 3), LEFT, 9).tolist() == []
    # The mirror: 12 - 3.
    assert superseded(rows, ("k",), True, IntervalBand(2, 3), RIGHT, 9).tolist() == [0]
    assert superseded(rows, ("k",), True, IntervalBand(2, 3), RIGHT, 8).tolist() == []


def test_rows_of_one_time_and_of_keys_with_one_hash_stay():
    both = pa.table({"k": ["a", "b"]})
    rows = sorted_rows(np.array([7, 7]), np.array([1, 2]), both)
    assert superseded(rows, ("k",), False, IntervalBand(9, 9), LEFT, HIGHEST).tolist() == []
    assert superseded(rows, ("k",), True, IntervalBand(9, 9), LEFT, HIGHEST).tolist() == [0]
    equal = sorted_rows(np.array([7, 7]), np.array([2, 2]), both)
    assert superseded(equal, ("k",), True, IntervalBand(9, 9), LEFT, HIGHEST).tolist() == []
    none = sorted_rows(np.array([7, 7]), np.array([LOWEST, LOWEST + 1]), both)
    assert superseded(none, ("k",), True, IntervalBand(0, 0), LEFT, LOWEST).tolist() == []


def frame(side, rows, bound):
    numbers = np.array([row[2] for row in rows], dtype=np.int64)
    columns = [pa.array([row[at] for row in rows], side.schema.field(at).type) for at in range(3)]
    system = system_array(source="f", seq=numbers, arrival_us=numbers)
    table = pa.table([*columns, system], schema=side.schema)
    if bound is not None:
        at = times_of_bounds([bound], pa.int64(), lambda one: in_order(one, pa.int64()))
        table = pa.concat_tables([table, punctuation_rows(table.schema, ["f"], 0, t=at)])
    return [to_frame(table)] if table.num_rows else []


def run_all(join, batches, store, *, drops=True):
    """Results and reports of each batch; each is run by a shard that has just read its state."""
    found, reports = [], []
    with pytest.MonkeyPatch.context() as patch:
        if not drops:
            patch.setattr(shard_module, "supersedes", lambda *_: False)
        for number, (left, left_bound, right, right_bound) in enumerate(batches):
            result, report = JoinShard(0, join, store).run(
                frame(join.left, left, left_bound), frame(join.right, right, right_bound), number
            )
            rows = [] if result is None else split_punctuation(result)[0].drop_columns([SYSTEM]).to_pylist()
            found.append(sorted(rows, key=str))
            reports.append(report)
    return found, reports


@st.composite
def streams(draw, keys):
    both = [
        [
            (draw(st.sampled_from(keys)), draw(st.integers(-12, 24)), number)
            for number in range(draw(st.integers(0, 14)))
        ]
        for _ in range(2)
    ]
    count = draw(st.integers(1, 5))
    places = [[draw(st.integers(0, count - 1)) for _ in rows] for rows in both]
    batches = []
    for batch in range(count):
        cells = []
        for rows, place in zip(both, places, strict=True):
            later = [row[1] for row, at in zip(rows, place, strict=True) if at > batch]
            bound = draw(st.none() | st.integers(-14, min(later, default=30)))
            cells += [
                [row for row, at in zip(rows, place, strict=True) if at == batch],
                ENDED if batch == count - 1 else bound,
            ]
        batches.append(tuple(cells))
    return batches


@given(
    st.booleans().flatmap(lambda text: st.tuples(st.just(text), streams(["x", "y", None] if text else [1, 2, None]))),
    BANDS,
    st.sampled_from(["inner", "left", "right", "full"]),
    st.sampled_from([None, "l.a >= r.b OR r.b = 3", "r.b > 2", "l.a > 2", "r.k IS NOT NULL"]),
)
def test_each_batch_gives_the_same_newest_pairs_as_a_join_that_drops_nothing(case, band, how, condition):
    text, batches = case
    join = plan(band, how, pa.string() if text else None, condition=condition)
    kept, dropped = DictStore(), DictStore()
    expected, before = run_all(join, batches, kept, drops=False)
    found, after = run_all(join, batches, dropped)
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


@pytest.mark.parametrize("how", ["inner", "full"])
def test_the_state_stays_small_where_keys_have_many_rows(how):
    join = plan(IntervalBand(100_000, 100_000), how)
    kept, dropped = DictStore(), DictStore()
    expected, before = run_all(join, many(), kept, drops=False)
    found, after = run_all(join, many(), dropped)
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
        _, reports = run_all(plan(IntervalBand(9999, 9999), condition=condition), batches, DictStore())
        went = [name for name in ("left", "right") if getattr(reports[-1], f"{name}_superseded")]
        assert went == ([] if sides == "neither" else [sides])


def test_rows_that_must_be_given_without_a_partner_stay():
    # The left's rows of one key have met none: only the end of the right gives them.
    batches = [([(1, time, time) for time in range(10)], None, [], 9), ([], None, [], 40)]
    found, reports = run_all(plan(IntervalBand(20, 20), "left"), batches, DictStore())
    assert (reports[0].left_kept, reports[0].left_superseded) == (10, 0)
    assert reports[1].unmatched == 10
    assert [row["a"] for row in found[1]] == [9]


def test_a_row_that_has_met_one_is_still_known_to_have_after_others_went():
    store = DictStore()
    batches = [([(1, 0, 0)], None, [], None), ([(1, 1, 1)], None, [(1, 1, 2)], 1), ([], ENDED, [], ENDED)]
    found, reports = run_all(plan(IntervalBand(9, 9), "full"), batches, store)
    assert [(row["a"], row["b"]) for row in found[1]] == [(1, 2)]
    assert reports[1].left_superseded == 1
    assert (found[2], reports[2].unmatched) == ([], 0)
